package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/cdc/replay"
	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/sink"
)

// letterSource is where the events of letters are read: their records, and the rows that they were.
type letterSource struct {
	topic   string // of dead letters
	letters *sink.Letters
	rows    *replay.Rows
	shaped  *sink.Preview // of records without a format of events, since digests are of such
}

// staysError says why a letter cannot be redriven.
type staysError string

func (e staysError) Error() string { return string(e) }

func (c *command) openLetterSource(
	ctx context.Context, log *zap.Logger, config *sink.Config, chosen []cdc.Letter,
) (*letterSource, error) {
	database := c.settings.cdcConfig(log, config.Topic.Columns())
	plain := *config
	plain.CloudEvents = nil
	s := &letterSource{topic: config.DeadTopic, shaped: sink.NewPreview(&plain)}
	var err error
	if s.letters, err = sink.OpenLetters(ctx, *config); err != nil {
		return nil, err
	}
	for i := range chosen {
		if chosen[i].Action == checkpoint.DeadLettered {
			err = s.letters.Find(ctx)
			break
		}
	}
	if err == nil {
		s.rows, err = replay.OpenRows(ctx, &database)
	}
	if err != nil {
		s.letters.Close()
		return nil, err
	}
	return s, nil
}

func (s *letterSource) close(ctx context.Context) {
	s.letters.Close()
	_ = s.rows.Close(ctx)
}

// read returns the event of a letter and where it was read. The error is a staysError when it is nowhere.
func (s *letterSource) read(ctx context.Context, l *cdc.Letter) (ev *decoder.Event, from string, err error) {
	if place, found := s.letters.Place(l.Position); found {
		ev, err = s.letters.Read(ctx, l.Position)
		from = fmt.Sprintf("%s-%d at offset %d", s.topic, place.Partition, place.Offset)
		if err != nil && !errors.Is(err, sink.ErrNoLetter) {
			return nil, "", err
		}
	}
	if ev == nil && l.EventID != "" {
		if ev, err = s.rows.Read(ctx, l.Table, l.EventID); err != nil {
			return nil, "", err
		}
		from = "its row in " + l.Table
	}
	switch {
	case ev != nil && !s.same(l, ev):
		return nil, "", staysError(from + " has another key or payload than the event had")
	case ev != nil:
		return ev, from, nil
	case l.Action == checkpoint.DeadLettered:
		return nil, "", staysError(fmt.Sprintf("topic %s does not have it any more, nor table %s its row", s.topic, l.Table))
	default:
		return nil, "", staysError(fmt.Sprintf("table %s does not have its row any more, and it was never written to a topic",
			l.Table))
	}
}

// same says that an event has the key and the payload that the letter's event had: as they are, or, of a row, as its
// record has them in a format.
func (s *letterSource) same(l *cdc.Letter, ev *decoder.Event) bool {
	if digests(l.KeyDigest, ev.Key) && digests(l.PayloadDigest, ev.Payload) {
		return true
	}
	if ev.Relation == nil {
		return false
	}
	record := s.shaped.Record(ev)
	return digests(l.KeyDigest, record.Key) && digests(l.PayloadDigest, record.Value)
}

// digests says that a digest is that of b; both may be nil.
func digests(digest, b []byte) bool {
	if b == nil || digest == nil {
		return b == nil && digest == nil
	}
	sum := sha256.Sum256(b)
	return bytes.Equal(digest, sum[:])
}

// redriveConfig is of a sink that publishes beside the stream, to the topics that events are given.
func (s *Settings) redriveConfig(log *zap.Logger) (sink.Config, error) {
	config, err := s.replayConfig(redriveName, log)
	config.TopicRules = nil // the name of a letter's topic is what they have made of it
	return config, err
}
