package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// inserters is the number of connections that share the inserts.
const inserters = 8

// latencyResult holds both ways of looking at a record's way to the consumer. All times are of one
// clock, the bench's own.
type latencyResult struct {
	Events    int     `json:"events"`     // measured; warm-up not counted
	Rate      float64 `json:"rate"`       // events a second, as inserted
	RateAsked int     `json:"rate_asked"` // and as asked for
	// InsertToConsume runs from just before the INSERT is sent, so it includes the commit;
	// CommitToConsume from when the client has learnt of the commit.
	InsertToConsume percentiles `json:"insert_to_consume"`
	CommitToConsume percentiles `json:"commit_to_consume"`
}

// percentiles are in milliseconds.
type percentiles struct {
	P50 float64 `json:"p50_ms"`
	P90 float64 `json:"p90_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

// marks are the times of every event, since the start. Each is written by one goroutine.
type marks struct {
	start                     time.Time
	sent, committed, consumed []time.Duration
}

// latency streams a steady flow of inserts and watches it arrive. The names' slot and topic are its own.
func (b *bench) latency(ctx context.Context, names relayNames) (*latencyResult, error) {
	db, err := b.database(ctx)
	if err != nil {
		return nil, err
	}
	slot := db.Slot(b.t)
	names.slot, names.topic = slot, "bench."+slot
	b.cluster.CreateTopic(b.t, names.topic, partitions, nil)
	relay := b.startRelay(ctx, db, names, "run")
	if _, err := relay.streaming(ctx); err != nil {
		return nil, err
	}

	warm := int(b.options.warmUp.Seconds() * float64(b.options.rate))
	total := warm + max(1, int(b.options.latency.Seconds()*float64(b.options.rate)))
	if total > maxEvents {
		return nil, fmt.Errorf("%d events are too many", total)
	}
	m := &marks{
		start: time.Now(),
		sent:  make([]time.Duration, total), committed: make([]time.Duration, total), consumed: make([]time.Duration, total),
	}
	// Enough for the inserts, and as much again and a minute for a slow machine.
	limit := time.Minute + 2*(b.options.warmUp+b.options.latency)
	limited, cancel := context.WithTimeoutCause(ctx, limit, errors.New("events do not arrive"))
	defer cancel()
	group, flow := errgroup.WithContext(limited)
	group.Go(func() error { return b.consume(flow, names.topic, m) })
	for i := range inserters {
		group.Go(func() error { return b.insert(flow, db.DSN, m, i) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return m.result(warm, b.options.rate), relay.stop(ctx)
}

// insert sends every event whose number leaves the remainder i, each at its time.
func (b *bench) insert(ctx context.Context, dsn string, m *marks, i int) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	const insert = insertInto + "(SELECT $1::bigint AS i) AS event"
	for n := i; n < len(m.sent); n += inserters {
		due := time.Duration(n) * time.Second / time.Duration(b.options.rate)
		if err := pause(ctx, due-time.Since(m.start)); err != nil {
			return err
		}
		m.sent[n] = time.Since(m.start)
		if _, err := conn.Exec(ctx, insert, n); err != nil {
			return fmt.Errorf("insert: %w", err)
		}
		m.committed[n] = time.Since(m.start)
	}
	return nil
}

// consume marks when each event is there for the first time, until all are.
func (b *bench) consume(ctx context.Context, topic string, m *marks) error {
	client, err := b.consumer(topic)
	if err != nil {
		return err
	}
	defer client.Close()
	for missing := len(m.consumed); missing > 0; {
		fetches := client.PollFetches(ctx)
		at := time.Since(m.start)
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %d are missing", context.Cause(ctx), missing)
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		for record := range fetches.RecordsAll() {
			if record.Attrs.IsControl() {
				continue
			}
			n, err := eventNumber(record, len(m.consumed))
			if err != nil {
				return err
			}
			if m.consumed[n] == 0 {
				m.consumed[n] = at
				missing--
			}
		}
	}
	return nil
}

// result leaves out the first events, those of the warm-up.
func (m *marks) result(warm, rate int) *latencyResult {
	r := &latencyResult{Events: len(m.sent) - warm, RateAsked: rate}
	sent, committed, consumed := m.sent[warm:], m.committed[warm:], m.consumed[warm:]
	if span := slices.Max(sent) - sent[0]; span > 0 {
		r.Rate = float64(len(sent)-1) / span.Seconds()
	}
	r.InsertToConsume = percentilesOf(consumed, sent)
	r.CommitToConsume = percentilesOf(consumed, committed)
	return r
}

// percentilesOf are those of the differences, by nearest rank.
func percentilesOf(to, from []time.Duration) percentiles {
	sorted := make([]float64, len(to))
	for i := range to {
		sorted[i] = float64(to[i]-from[i]) / float64(time.Millisecond)
	}
	slices.Sort(sorted)
	rank := func(share float64) float64 {
		return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
	}
	return percentiles{P50: rank(0.5), P90: rank(0.9), P99: rank(0.99), Max: rank(1)}
}
