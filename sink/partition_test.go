package sink

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
)

// A partition that met an error may have another log: it is proven again with one batch in flight.
func TestPartition_IsProvenAnewAfterAnError(t *testing.T) {
	t.Parallel()
	s := &sender{}
	p := &partition{topic: &topic{name: "orders", limit: 1000}, leader: s, proven: now()}
	for range 8 {
		p.queue = append(p.queue, &batch{entries: make([]entry, 10), firstSequence: -1})
	}
	sendable := func() bool { ok, _ := p.sendable(s, now()); return ok }
	for order := range uint64(maxInFlight) {
		require.True(t, sendable())
		require.EqualValues(t, 10*order, p.send(s, order).firstSequence)
	}
	require.False(t, sendable(), "five are in flight")

	first := p.inFlight[0]
	for len(p.inFlight) > 0 {
		b := p.inFlight[len(p.inFlight)-1] // in whatever order the answers come
		p.answered(b)
		require.Equal(t, b != first, p.behindUnresolved(b))
		p.fail(b, nil, false)
		require.False(t, sendable(), "muted")
	}
	require.Nil(t, p.settle(func(int) time.Duration { return 0 }))
	require.True(t, sendable())
	require.Same(t, first, p.send(s, 10), "resent unchanged, in order")
	require.Zero(t, first.firstSequence)
	require.False(t, sendable(), "one until it is acknowledged")
	p.proven = now()
	require.False(t, sendable(), "what is sent again goes alone")
	p.answered(first)
	for order := range uint64(maxInFlight - 1) {
		require.True(t, sendable())
		p.answered(p.send(s, 20+order))
	}
	p.send(s, 30) // for the first time
	require.True(t, sendable())
	require.False(t, func() bool { ok, _ := p.sendable(&sender{}, now()); return ok }(), "another leader waits")
	require.False(t, func() bool { ok, _ := p.sendable(s, now().Add(2*provenFor)); return ok }(), "proof ages")
}

// What the broker knows of a producer ages from the latest timestamp in its last batch.
func TestBatch_Youngest(t *testing.T) {
	t.Parallel()
	at := now().Truncate(time.Millisecond)
	b := &batch{entries: []entry{{stamp: 1}, {stamp: at.Add(-time.Minute).UnixMilli()}, {stamp: 2}}}
	require.Equal(t, at.Add(-time.Minute), b.youngest(at))
	b.entries[0].stamp = at.Add(time.Minute).UnixMilli()
	require.Equal(t, at, b.youngest(at))
}

func TestNewRefusal_IgnoresIndexesOutsideTheBatch(t *testing.T) {
	t.Parallel()
	r := newRefusal(&sarama.ProduceResponseBlock{
		Err:          sarama.ErrInvalidRecord,
		RecordErrors: []sarama.ProduceResponseRecordError{{BatchIndex: 7}, {BatchIndex: 1}, {BatchIndex: -1}},
	}, "reason", 3)
	require.Equal(t, []int32{1}, r.records)
}
