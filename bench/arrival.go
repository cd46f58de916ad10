package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// offsetInterval is how often the end offsets are asked for; the clock stops that much late at most.
const offsetInterval = 20 * time.Millisecond

// endOffsets is the number of records in a topic that nothing was deleted from.
func (b *bench) endOffsets(ctx context.Context, topic string) (int, error) {
	offsets, err := b.cluster.Admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = offsets.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("list end offsets: %w", err)
	}
	sum := 0
	for _, partition := range offsets[topic] {
		sum += int(partition.Offset)
	}
	return sum, nil
}

// awaitOffsets waits until the topic holds as many records as there are events. It gives up with the
// process that should bring them.
func (b *bench) awaitOffsets(ctx context.Context, from *process, topic string) error {
	ticker := time.NewTicker(offsetInterval)
	defer ticker.Stop()
	for {
		switch sum, err := b.endOffsets(ctx, topic); {
		case err != nil:
			return err
		case sum >= b.options.events:
			return nil
		}
		select {
		case <-ticker.C:
		case <-from.done:
			return from.ended()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// count reads the whole topic and returns how many records there are and how many different events.
func (b *bench) count(ctx context.Context, topic string) (records, distinct int, err error) {
	total, err := b.endOffsets(ctx, topic)
	if err != nil {
		return 0, 0, err
	}
	client, err := b.consumer(topic)
	if err != nil {
		return 0, 0, err
	}
	defer client.Close()
	seen := make([]bool, b.options.events)
	for records < total {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return 0, 0, fmt.Errorf("fetch: %w", err)
		}
		for record := range fetches.RecordsAll() {
			n, err := eventNumber(record, len(seen))
			if err != nil {
				return 0, 0, err
			}
			records++
			if !seen[n] {
				seen[n] = true
				distinct++
			}
		}
	}
	return records, distinct, nil
}

// consumer reads a topic from its start; what arrives it gets at once.
func (b *bench) consumer(topic string) (*kgo.Client, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(b.cluster.Addrs()...),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMinBytes(1),
		kgo.FetchMaxWait(10*time.Millisecond), // the least that the client allows
	)
	if err != nil {
		return nil, fmt.Errorf("open consumer: %w", err)
	}
	return client, nil
}
