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

// awaitConfirmed waits until the slot is confirmed behind the backlog. Between the last commit and
// the position read after it may lie the header of a page.
func (b *bench) awaitConfirmed(ctx context.Context, from *process, task drainTask) error {
	const query = "SELECT confirmed_flush_lsn >= $2::pg_lsn - 64::numeric FROM pg_replication_slots WHERE slot_name = $1"
	ticker := time.NewTicker(offsetInterval)
	defer ticker.Stop()
	for {
		var done bool
		if err := task.db.Conn.QueryRow(ctx, query, task.slot, task.end).Scan(&done); err != nil {
			return fmt.Errorf("read slot: %w", err)
		}
		if done {
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

// found is what a topic holds.
type found struct {
	records, distinct int
	last              time.Time // highest timestamp
}

// count reads the whole topic, as read_committed consumers see it: the records and how many different
// events they are.
func (b *bench) count(ctx context.Context, topic string) (f found, err error) {
	ends, err := b.cluster.Admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return f, fmt.Errorf("list end offsets: %w", err)
	}
	client, err := b.consumer(topic)
	if err != nil {
		return f, err
	}
	defer client.Close()
	seen := make([]bool, b.options.events)
	for left := len(ends[topic]); left > 0; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return f, fmt.Errorf("fetch: %w", err)
		}
		for record := range fetches.RecordsAll() {
			if record.Offset == ends[topic][record.Partition].Offset-1 {
				left--
			}
			if record.Attrs.IsControl() {
				continue
			}
			n, err := eventNumber(record, len(seen))
			if err != nil {
				return f, err
			}
			f.records++
			if record.Timestamp.After(f.last) {
				f.last = record.Timestamp
			}
			if !seen[n] {
				seen[n] = true
				f.distinct++
			}
		}
	}
	return f, nil
}

// consumer reads a topic from its start; what arrives it gets at once.
func (b *bench) consumer(topic string) (*kgo.Client, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(b.cluster.Addrs()...),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // a topic may end with them
		kgo.FetchMinBytes(1),
		kgo.FetchMaxWait(10*time.Millisecond), // the least that the client allows
	)
	if err != nil {
		return nil, fmt.Errorf("open consumer: %w", err)
	}
	return client, nil
}
