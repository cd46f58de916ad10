package cdc

import (
	"maps"
	"sync"
	"time"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// board holds the stream's status, written by the stream and read by whoever asks. Safe for
// concurrent use.
type board struct {
	mu      sync.Mutex
	status  Status
	session Session // zero between two

	sessions uint64
}

func newBoard(cfg *Config) *board {
	return &board{status: Status{
		Stream: cfg.Stream, Slot: cfg.Slot, Publication: cfg.Publication,
		State: StateConnecting, Since: time.Now(), Reason: "starting",
		Ignored: map[string]uint64{}, Poison: map[checkpoint.Action]uint64{}, Errors: map[string]uint64{},
	}}
}

func (b *board) snapshot() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.status
	s.Ignored, s.Poison, s.Errors = maps.Clone(s.Ignored), maps.Clone(s.Poison), maps.Clone(s.Errors)
	return s
}

func (b *board) clockOffset() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status.ClockOffset
}

func (b *board) update(change func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.status)
}

// enter changes the state and reports whether that is news.
func (b *board) enter(state State, reason string) (changed bool) {
	b.update(func(s *Status) {
		changed = s.State != state
		if changed {
			s.State, s.Since = state, time.Now()
		}
		s.Reason, s.LastTick = reason, time.Now()
		if state != StateStuck {
			s.Stuck = nil
		}
		if state == StateConnecting || state == StateStandby || state == StatePaused {
			s.InFlightEvents, s.InFlightBytes = 0, 0 // what was in flight is unsettled still, hence old
		}
	})
	return changed
}

// fail notes an error of the given kind.
func (b *board) fail(kind string, err error) {
	b.update(func(s *Status) {
		s.Errors[kind]++
		s.LastError, s.LastErrorAt = err.Error(), time.Now()
	})
}

// progress is what a session reports of itself.
func (b *board) progress(from *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, t, c := &b.status, from.tracker, &from.counters
	frontier := t.Frontier()
	if c.settled > 0 || t.Idle() {
		s.LastProgress = time.Now()
	}
	// An idle stream confirms what it follows without events late, see lazyInterval.
	if from.confirmed > s.Confirmed || from.confirmed >= min(frontier, from.committed) {
		s.LastConfirmed = time.Now()
	}
	s.Frontier, s.Confirmed, s.Received = frontier, from.confirmed, from.received
	b.session.Covered = from.guard.coveredTo()
	s.InFlightEvents, s.InFlightBytes = t.InFlight()
	s.OldestUnsettled, _ = t.Oldest()
	s.LastReceived = from.server.burst.last
	if c.events > 0 {
		s.LastEvent = time.Now()
	}
	s.Events += c.events
	s.Transactions += c.transactions
	for kind, n := range c.ignored {
		if n > 0 {
			s.Ignored[decoder.Kind(kind).String()] += n
		}
	}
}
