package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

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
}

// staysError says why a letter cannot be redriven.
type staysError string

func (e staysError) Error() string { return string(e) }

func (c *command) openLetterSource(ctx context.Context, log *zap.Logger, chosen []cdc.Letter) (*letterSource, error) {
	config, err := c.settings.sinkConfig(log)
	if err != nil {
		return nil, err
	}
	database := c.settings.cdcConfig(log, config.Topic.Columns())
	for i := range database.Mappings { // the topic is the letter's, see redriveSink
		database.Mappings[i].Topic = nil
	}
	s := &letterSource{topic: config.DeadTopic}
	if s.letters, err = sink.OpenLetters(ctx, config); err != nil {
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
	case ev != nil && (!digests(l.PayloadDigest, ev.Payload) || !digests(l.KeyDigest, ev.Key)):
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

// digests says that a digest is that of b; both may be nil.
func digests(digest, b []byte) bool {
	if b == nil || digest == nil {
		return b == nil && digest == nil
	}
	sum := sha256.Sum256(b)
	return bytes.Equal(digest, sum[:])
}

// redriveSink publishes beside the stream, to the topics that events are given.
func (s *Settings) redriveSink(log *zap.Logger) (*sink.Kafka, error) {
	config, err := s.sinkConfig(log)
	if err != nil {
		return nil, err
	}
	if config.Topic, err = sink.ParseTemplate("{topic}"); err != nil {
		return nil, err
	}
	config.TopicRules = nil // of the shape, letters have theirs, and what comes from a row gets it here
	config.Replay, config.OnPoison, config.FollowKey = redriveName, sink.Skip, false
	config.Observer, config.Now = unobserved{}, time.Now
	return sink.New(config)
}
