// Command go prints each event of a topic once, though the topic holds some of them several times. It uses nothing
// but a Kafka client; what Go applications would rather use is kit/consumer.
//
//	go run ./examples/consumer/go kafka-1:9092 outbox.event.order
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	if len(os.Args) != 3 {
		_, _ = fmt.Fprintln(os.Stderr, "usage: go BROKERS TOPIC")
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := consume(ctx, os.Args[1], os.Args[2], os.Stdout)
	cancel()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// consume reads the topic from its beginning until ctx ends, so that what was seen may be kept in memory.
func consume(ctx context.Context, brokers, topic string, out io.Writer) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), // WALRELAY_DELIVERY may be exactly-once
	)
	if err != nil {
		return fmt.Errorf("open consumer: %w", err)
	}
	defer client.Close()
	seen := &seen{positions: make(map[partition]string), ids: make(map[string]bool)}
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read topic: %w", err)
		}
		for _, record := range fetches.Records() {
			fresh, err := seen.add(record)
			if err != nil {
				return fmt.Errorf("%s, partition %d, offset %d: %w", record.Topic, record.Partition, record.Offset, err)
			}
			if !fresh {
				continue
			}
			value := "null" // a tombstone
			if record.Value != nil {
				value = string(record.Value)
			}
			if _, err := fmt.Fprintf(out, "%s\t%s\t%s\n", header(record, "id"), record.Key, value); err != nil {
				return fmt.Errorf("print: %w", err)
			}
		}
	}
}

// partition is what positions are compared within.
type partition struct {
	stream string
	topic  string
	number int32
}

// seen is what was handled. Whoever does not begin at the topic's beginning each time keeps it in a database, and
// writes it in the transaction of the effect.
type seen struct {
	positions map[partition]string // the highest one
	ids       map[string]bool
}

// add says whether an event is new, and from then on it is not.
func (s *seen) add(record *kgo.Record) (fresh bool, err error) {
	stream, id, position := header(record, "walrelay-stream"), header(record, "id"), header(record, "walrelay-position")
	if stream == "" || id == "" {
		return false, errors.New("not a record of walrelay")
	}
	if position != "" { // fixed width: the order of the texts is that of the events
		if len(position) != 43 {
			return false, errors.New("not a position: " + position)
		}
		at := partition{stream, record.Topic, record.Partition}
		if position <= s.positions[at] {
			return false, nil // a repetition, or a late write of a process that was replaced
		}
		s.positions[at] = position
	}
	// A replay has walrelay-replay in place of a position, and a new epoch repeats under higher positions.
	fresh = !s.ids[id]
	s.ids[id] = true
	return fresh, nil
}

func header(record *kgo.Record, name string) string {
	for _, h := range record.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
