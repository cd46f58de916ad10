package checkpoint_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
)

var wide = checkpoint.Window{Events: 1 << 16, Bytes: 1 << 30}

func TestTracker_FrontierNeverExceedsReceived(t *testing.T) {
	t.Parallel()
	tr := checkpoint.NewTracker(0x1000, wide)
	require.NoError(t, tr.Begin(time.Unix(1, 0)))
	require.NoError(t, tr.Commit(0x2000))
	require.Equal(t, pglogrepl.LSN(0x1000), tr.Frontier(), "nothing was received yet")
	tr.Receive(0x1800)
	require.Equal(t, pglogrepl.LSN(0x1800), tr.Frontier())
	tr.Receive(0x3000)
	require.Equal(t, pglogrepl.LSN(0x2000), tr.Frontier())
	require.False(t, tr.Adopt(0x3001), "beyond what was received")
	require.True(t, tr.Adopt(0x3000))
}

func TestTracker_RejectsNegativeSize(t *testing.T) {
	t.Parallel()
	tr := checkpoint.NewTracker(0, wide)
	require.NoError(t, tr.Begin(time.Unix(1, 0)))
	_, err := tr.Add(-1)
	require.Error(t, err)
	events, bytes := tr.InFlight()
	require.Zero(t, events)
	require.Zero(t, bytes)
}

// A window of nothing would be a stream that never moves; it goes one event at a time instead.
func TestTracker_NeverFullWithNothingInFlight(t *testing.T) {
	t.Parallel()
	tr := checkpoint.NewTracker(0, checkpoint.Window{})
	require.NoError(t, tr.Begin(time.Unix(1, 0)))
	require.False(t, tr.Full())
	seq, err := tr.Add(0)
	require.NoError(t, err)
	require.True(t, tr.Full())
	require.NoError(t, tr.Settle([]uint64{seq}))
	require.False(t, tr.Full())
}

// The ring wraps around and grows several times while the oldest event stays open; every size must
// be found again.
func TestTracker_RingGrowsInPlace(t *testing.T) {
	t.Parallel()
	const before, total = 700, 9000 // before: the growing ring does not begin at its first slot
	tr := checkpoint.NewTracker(0, wide)
	rnd := rand.New(rand.NewPCG(1, 2))
	require.NoError(t, tr.Begin(time.Unix(1, 0)))
	for range before {
		seq, err := tr.Add(1)
		require.NoError(t, err)
		require.NoError(t, tr.Settle([]uint64{seq}))
	}
	sizes := map[uint64]int64{}
	var sum int64
	for i := range total {
		seq, err := tr.Add(i)
		require.NoError(t, err)
		sizes[seq] = int64(i)
		sum += int64(i)
	}
	require.NoError(t, tr.Commit(0x2000))
	tr.Receive(0x2000)

	for left, i := total, 0; left > 0; i++ {
		seq := uint64(before + 1 + (i*7919+rnd.IntN(3))%total)
		if i > 4*total { // the rest in order
			seq = uint64(before + 1 + i%total)
		}
		size, open := sizes[seq]
		if !open {
			require.ErrorIs(t, tr.Settle([]uint64{seq}), checkpoint.ErrNotInFlight)
			continue
		}
		require.Zero(t, tr.Frontier())
		require.NoError(t, tr.Settle([]uint64{seq}))
		delete(sizes, seq)
		sum -= size
		left--
		events, bytes := tr.InFlight()
		require.Equal(t, left, events)
		require.Equal(t, sum, bytes)
	}
	require.Equal(t, pglogrepl.LSN(0x2000), tr.Frontier())
}

// stream drives a tracker the way a session does, with acknowledgements in batches of 500, each
// batch backwards.
type stream struct {
	tracker *checkpoint.Tracker
	lsn     pglogrepl.LSN
	acks    []uint64
	err     error
}

func newStream() *stream {
	return &stream{tracker: checkpoint.NewTracker(0, wide), acks: make([]uint64, 0, 500)}
}

func (s *stream) transaction(events int) {
	s.check(s.tracker.Begin(time.Unix(int64(s.lsn), 0)))
	for range events {
		s.event()
	}
	s.lsn += 100
	s.tracker.Receive(s.lsn)
	s.check(s.tracker.Commit(s.lsn))
}

func (s *stream) event() {
	seq, err := s.tracker.Add(200)
	s.check(err)
	if s.acks = append(s.acks, seq); len(s.acks) == cap(s.acks) {
		s.drain()
	}
}

func (s *stream) drain() {
	slices.Reverse(s.acks)
	s.check(s.tracker.Settle(s.acks))
	s.acks = s.acks[:0]
}

func (s *stream) check(err error) {
	if s.err == nil {
		s.err = err
	}
}

// Memory is constant where nothing is allocated, so these tests count allocations. They cannot run
// beside others.

func TestTracker_SteadyStateAllocatesNothing(t *testing.T) {
	s := newStream()
	round := func() {
		for i := range 1000 {
			s.transaction(i % 4) // empty ones included
		}
		s.drain()
	}
	round()
	require.Zero(t, testing.AllocsPerRun(20, round))
	require.NoError(t, s.err)
	require.Equal(t, s.lsn, s.tracker.Frontier())
}

func TestTracker_HugeTransactionInConstantMemory(t *testing.T) {
	s := newStream()
	require.Zero(t, testing.AllocsPerRun(1, func() { s.transaction(5_000_000) })) // runs twice
	s.drain()
	require.NoError(t, s.err)
	require.True(t, s.tracker.Idle())
	require.Equal(t, s.lsn, s.tracker.Frontier())
}

func TestTracker_EmptyTransactionsDoNotPileUp(t *testing.T) {
	s := newStream()
	s.transaction(1)
	first := s.tracker.Frontier()
	empty := func() {
		for range 1_000_000 {
			s.transaction(0)
		}
	}
	require.Zero(t, testing.AllocsPerRun(1, empty))
	require.Equal(t, first, s.tracker.Frontier())
	s.drain()
	require.NoError(t, s.err)
	require.Equal(t, s.lsn, s.tracker.Frontier())
}

func BenchmarkTracker(b *testing.B) {
	for _, events := range []int{1, 10, 1000} {
		b.Run(fmt.Sprintf("events per transaction=%d", events), func(b *testing.B) {
			s := newStream()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ { // one iteration is one event
				if i%events == 0 {
					s.transaction(events)
				}
			}
			require.NoError(b, s.err)
		})
	}
}
