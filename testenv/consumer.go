package testenv

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Consumer reads whole topics, from their start, without a group and independently of walrelay's own
// Kafka client. It notices new partitions within a second or so. It is for one goroutine.
type Consumer struct {
	client *kgo.Client
	buffer []*kgo.Record
	read   int
}

// Consume reads everything in the topics, also what transactions have not committed.
func (c *Cluster) Consume(t testing.TB, topics ...string) *Consumer {
	t.Helper()
	return c.consume(t, kgo.ReadUncommitted(), topics)
}

// ConsumeCommitted reads what a read_committed consumer sees.
func (c *Cluster) ConsumeCommitted(t testing.TB, topics ...string) *Consumer {
	t.Helper()
	return c.consume(t, kgo.ReadCommitted(), topics)
}

func (c *Cluster) consume(t testing.TB, level kgo.IsolationLevel, topics []string) *Consumer {
	t.Helper()
	client, err := kgo.NewClient(append(clientOptions(c.Addrs()),
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(level),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.UnknownTopicRetries(-1), // a topic may come later
	)...)
	if err != nil {
		t.Fatalf("open consumer: %v", err)
	}
	t.Cleanup(client.Close)
	return &Consumer{client: client}
}

// Next waits for the next record. Only the order within a partition means anything.
func (c *Consumer) Next(ctx context.Context) (*kgo.Record, error) {
	for len(c.buffer) == 0 {
		// What a fetch reports per partition, the client tries again; the end of ctx it does not.
		fetches := c.client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if fetches.IsClientClosed() {
			return nil, errors.New("consumer is closed")
		}
		c.buffer = fetches.Records()
	}
	next := c.buffer[0]
	c.buffer = c.buffer[1:]
	c.read++
	return next, nil
}

// WaitFor returns the next n records, or ends the test when they have not come in time.
func (c *Consumer) WaitFor(t testing.TB, n int, timeout time.Duration) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	records := make([]*kgo.Record, 0, n)
	for len(records) < n {
		record, err := c.Next(ctx)
		if err != nil {
			t.Fatalf("await %d records: %v after %d (%d since the start)", n, err, len(records), c.read)
		}
		records = append(records, record)
	}
	return records
}

// Rest returns all further records, until none has come for the time given.
func (c *Consumer) Rest(t testing.TB, idle time.Duration) []*kgo.Record {
	t.Helper()
	var records []*kgo.Record
	for {
		ctx, cancel := context.WithTimeout(context.Background(), idle)
		record, err := c.Next(ctx)
		cancel()
		if err != nil {
			return records
		}
		records = append(records, record)
	}
}
