package main

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
)

const (
	pulseWriter = writers // its number
	pulseKeys   = 4       // of each topic
	beatSize    = 20      // events of a beat: one for each key of each topic
)

// pulse writes a transaction with events for all topics again and again, whatever else is written, and
// watches for them in Kafka: that is how the campaign knows that events flow.
type pulse struct {
	w      *world
	writer *writer
	client *kgo.Client

	mu      sync.Mutex
	began   int            // number of the last beat
	seen    map[int]uint32 // of beats that have arrived in part, a bit for each event
	arrived int            // number of the last beat that has arrived as a whole
}

func newPulse(w *world) (*pulse, error) {
	level := kgo.ReadUncommitted()
	if w.options.delivery == exactlyOnce {
		level = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(w.cluster.Addrs()...),
		kgo.ConsumeTopics(w.topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(level),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.MetadataMinAge(200*time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
	)
	if err != nil {
		return nil, fmt.Errorf("open consumer: %w", err)
	}
	w.pulse = &pulse{w: w, writer: newWriter(w, pulseWriter, nil), client: client, seen: map[int]uint32{}}
	return w.pulse, nil
}

// beat writes until stop is closed.
func (p *pulse) beat(ctx context.Context, stop <-chan struct{}) error {
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for number := 1; ; number++ {
		select {
		case <-stop:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		p.w.gate.pass(ctx)
		p.mu.Lock()
		p.began = number
		p.mu.Unlock()
		if err := p.write(ctx, number); err != nil {
			return fmt.Errorf("pulse: %w", err)
		}
	}
}

// write commits one beat, unless the server is away.
func (p *pulse) write(ctx context.Context, number int) error {
	wr := p.writer
	conn := wr.connect(ctx)
	if conn == nil {
		return nil
	}
	var kept []judge.Event
	for _, topic := range p.w.topics {
		for key := range pulseKeys {
			kept = append(kept, judge.Event{
				ID: eventID(pulseWriter, number*beatSize+len(kept)), Topic: topic,
				Key: fmt.Appendf(nil, "pulse-%d", key), Value: fmt.Append(nil, number),
			})
		}
	}
	shape := p.w.options.shape
	tx, err := begin(ctx, conn, kept[0].ID)
	if err == nil {
		tx.kept = kept
		err = shape.insert(ctx, conn, number%len(shape.places), 0, kept)
	}
	if err != nil {
		wr.disconnect(ctx)
		return nil //nolint:nilerr // the server is away, which is what a campaign is about
	}
	return wr.commit(ctx, tx)
}

// forget makes the client look for a topic that was created again.
func (p *pulse) forget(topic string) {
	p.client.PurgeTopicsFromConsuming(topic)
	p.client.AddConsumeTopics(topic)
}

// watch reads until ctx is done.
func (p *pulse) watch(ctx context.Context) {
	for ctx.Err() == nil {
		p.client.PollFetches(ctx).EachRecord(p.see) // errors are those of brokers that are away
	}
	p.client.Close()
}

func (p *pulse) see(r *kgo.Record) {
	writer, sequence, ok := parseEventID(judge.Header(r, "id"))
	if !ok || writer != pulseWriter {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	number := sequence / beatSize
	if number <= p.arrived {
		return
	}
	p.seen[number] |= 1 << (sequence % beatSize)
	if p.seen[number] == 1<<beatSize-1 {
		p.arrived = number
		maps.DeleteFunc(p.seen, func(n int, _ uint32) bool { return n <= number })
	}
}

// flows waits until a beat that begins after now has arrived, and returns how long that took.
func (p *pulse) flows(ctx context.Context, limit time.Duration) (time.Duration, error) {
	start := time.Now()
	p.mu.Lock()
	number := p.began
	p.mu.Unlock()
	began, arrived := 0, 0
	if !await(ctx, limit, func(context.Context) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		began, arrived = p.began, p.arrived
		return arrived > number
	}) {
		return 0, fmt.Errorf("no events flow within %v: beat %d was the last before, %d has begun, %d has arrived",
			limit, number, began, arrived)
	}
	return time.Since(start), nil
}
