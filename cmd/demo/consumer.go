package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// arrival is an event as the consumer got it.
type arrival struct {
	key      string
	kind     string
	position string
	latency  time.Duration
}

// consumer reads the topic with a client that walrelay does not use, and reports to the ledger.
type consumer struct {
	ledger *ledger
	client *kgo.Client

	mu     sync.Mutex
	next   map[int32]int64 // by partition: the offset after the last record read
	latest arrival
}

func openConsumer(b *broker, l *ledger) (*consumer, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(b.addrs...),
		kgo.ConsumeTopics(b.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		kgo.MetadataMinAge(200*time.Millisecond),
	)
	if err != nil {
		return nil, fmt.Errorf("open consumer: %w", err)
	}
	return &consumer{ledger: l, client: client, next: make(map[int32]int64)}, nil
}

// run reads until ctx ends. The client itself tries again what fails.
func (c *consumer) run(ctx context.Context) error {
	for {
		fetches := c.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end that was asked for
		}
		if fetches.IsClientClosed() {
			return errors.New("the consumer's client is closed")
		}
		now := time.Now()
		fetches.EachRecord(func(r *kgo.Record) { c.read(r, now) })
	}
}

func (c *consumer) read(r *kgo.Record, now time.Time) {
	a := arrival{key: string(r.Key)}
	var id []byte
	for _, header := range r.Headers {
		switch header.Key {
		case "id":
			id = header.Value
		case "eventType":
			a.kind = string(header.Value)
		case "walrelay-position":
			a.position = string(header.Value)
		}
	}
	a.latency = c.ledger.arrived(id, now)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.next[r.Partition] = r.Offset + 1
	c.latest = a
}

// newest is the event that arrived last.
func (c *consumer) newest() arrival {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest
}

// reached says whether everything before those offsets was read.
func (c *consumer) reached(ends map[int32]int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for partition, end := range ends {
		if c.next[partition] < end {
			return false
		}
	}
	return true
}
