package checkpoint

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
)

// Errors of a stream that does not come as pgoutput promises it. The tracker is unchanged.
var (
	ErrOpen    = errors.New("a transaction is open")
	ErrNotOpen = errors.New("no transaction is open")
	// ErrRegress: commit ends only grow in stream order, and the server has skipped to the position
	// of a keepalive for good. Going on could confirm what has not arrived.
	ErrRegress = errors.New("commit end lies before a position already passed")
)

// Tracker finds the frontier of one START_REPLICATION. It is told what arrives, in stream order,
// and what is settled, in any order:
//
//	Begin  Add 1  Add 2  Commit A  Begin  Add 3  Commit B      settled: 2, 3     frontier: start
//	                                                           settled: 1        frontier: end of B
//
// Its memory depends on what is in flight, not on the size of a transaction nor on how many
// transactions without events come by.
//
// Tracker is not safe for concurrent use: the session's goroutine owns it.
type Tracker struct {
	flight inFlight

	open       bool
	commitTime time.Time // of the open transaction

	// pending lists the committed transactions that are not wholly settled, from head on. Every
	// entry has an event of its own, so the list is never longer than the window.
	pending []transaction
	head    int

	passed   pglogrepl.LSN // highest commit end or adopted position: what comes next must lie behind it
	frontier pglogrepl.LSN
	received pglogrepl.LSN
}

type transaction struct {
	last       uint64        // its last event
	end        pglogrepl.LSN // of its commit record, or of the last empty transaction right behind it
	commitTime time.Time
}

// NewTracker returns a tracker for a session that starts at the slot's confirmed_flush_lsn.
func NewTracker(start pglogrepl.LSN, w Window) *Tracker {
	return &Tracker{flight: newInFlight(w), passed: start, frontier: start, received: start}
}

// Begin opens a transaction.
func (t *Tracker) Begin(commitTime time.Time) error {
	if t.open {
		return fmt.Errorf("begin: %w", ErrOpen)
	}
	t.open, t.commitTime = true, commitTime
	return nil
}

// Add takes one event of the open transaction, which is in flight until it is settled, and returns
// its sequence. Sequences start at 1 and grow by one. Add never refuses for lack of room: the caller
// waits while Full.
func (t *Tracker) Add(bytes int) (seq uint64, err error) {
	if !t.open {
		return 0, fmt.Errorf("add event: %w", ErrNotOpen)
	}
	if bytes < 0 {
		return 0, fmt.Errorf("add event: size of %d bytes", bytes)
	}
	return t.flight.add(bytes), nil
}

// Commit closes the transaction. End is the end LSN of its commit record, which is confirmed as it
// stands: the server drops what starts before it, so one byte more would drop a transaction whose
// commit record starts right there, and the commit's start would repeat this one.
func (t *Tracker) Commit(end pglogrepl.LSN) error {
	if !t.open {
		return fmt.Errorf("commit: %w", ErrNotOpen)
	}
	if end < t.passed {
		return fmt.Errorf("commit at %s, already at %s: %w", end, t.passed, ErrRegress)
	}
	t.open, t.passed = false, end

	last := t.flight.next - 1
	switch {
	case last < t.flight.base: // it and everything before it is settled
		t.frontier = end
	case t.head < len(t.pending) && t.pending[len(t.pending)-1].last == last:
		// Without events of its own it is settled together with the one before. Sharing that entry
		// keeps a long run of empty transactions behind one slow event from piling up.
		t.pending[len(t.pending)-1].end = end
	default:
		t.push(transaction{last: last, end: end, commitTime: t.commitTime})
	}
	return nil
}

// Settle marks events as acknowledged, in any order. It ends at the first sequence that is not in
// flight, with ErrNotInFlight; those before it are settled.
func (t *Tracker) Settle(seqs []uint64) (err error) {
	for _, seq := range seqs {
		if err = t.flight.settle(seq); err != nil {
			break
		}
	}
	t.flight.advance()
	for t.head < len(t.pending) && t.pending[t.head].last < t.flight.base {
		t.frontier = t.pending[t.head].end
		t.head++
	}
	if t.head == len(t.pending) {
		t.pending, t.head = t.pending[:0], 0
	}
	return err
}

// Frontier returns the end LSN of the last transaction of which every event, and every event before
// it, is settled. It starts at the tracker's start, never regresses, and never exceeds what was
// received: the server would take a position ahead of what it sent and skip what lies between.
func (t *Tracker) Frontier() pglogrepl.LSN { return min(t.frontier, t.received) }

// Receive notes a position that the server has sent in this session, in the head of a data message
// or in a keepalive. Only the highest counts.
func (t *Tracker) Receive(lsn pglogrepl.LSN) { t.received = max(t.received, lsn) }

// Idle reports that nothing is in flight and no transaction is open.
func (t *Tracker) Idle() bool { return !t.open && t.flight.base == t.flight.next }

// Adopt takes the position of a keepalive as the frontier and reports whether the frontier now
// stands there. It does so only when Idle, since otherwise the server may have passed events that
// are not settled; never backwards; and never beyond what was received.
func (t *Tracker) Adopt(lsn pglogrepl.LSN) bool {
	if !t.Idle() || lsn < t.frontier || lsn > t.received {
		return false
	}
	t.frontier, t.passed = lsn, lsn
	return true
}

// Oldest returns the commit time of the oldest transaction that is not wholly settled, the open one
// included. ok is false when there is none.
func (t *Tracker) Oldest() (commitTime time.Time, ok bool) {
	if t.head < len(t.pending) {
		return t.pending[t.head].commitTime, true
	}
	if t.open {
		return t.commitTime, true
	}
	return time.Time{}, false
}

// Settled returns how many events are settled, from the first one on without a gap.
func (t *Tracker) Settled() uint64 { return t.flight.base - 1 }

// InFlight returns how many events are not settled, and the sum of their sizes.
func (t *Tracker) InFlight() (events int, bytes int64) { return t.flight.events, t.flight.bytes }

// Full reports that the window's events or bytes are used up. It is never full with nothing in
// flight.
func (t *Tracker) Full() bool { return t.flight.full() }

// push appends to pending, first moving it to the front of its array when half of that lies unused.
func (t *Tracker) push(tx transaction) {
	if len(t.pending) == cap(t.pending) && t.head > len(t.pending)/2 {
		n := copy(t.pending, t.pending[t.head:])
		t.pending, t.head = t.pending[:n], 0
	}
	t.pending = append(t.pending, tx)
}
