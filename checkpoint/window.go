package checkpoint

import (
	"errors"
	"fmt"
)

// ErrNotInFlight is returned for a sequence that was never handed out or is settled already.
// Whoever settles it has lost count, so nothing more may be concluded from its settlements.
var ErrNotInFlight = errors.New("sequence is not in flight")

// Window limits what may be in flight. Both limits must be greater than 0.
type Window struct {
	// Events limits the distance from the oldest unsettled event to the newest one. Settled events
	// behind an unsettled one count, because they must be remembered until it is settled too.
	Events int
	// Bytes limits the sum of the sizes of the unsettled events. It is passed by at most one event,
	// so that an event of any size gets through.
	Bytes int64
}

// settled marks a sequence in the ring; every other value is the size of an unsettled event.
const settled = -1

// minRing is the ring's first length in events: 8 KiB.
const minRing = 1024

// inFlight remembers the size of each event from the oldest unsettled one on. Sequences index a
// ring whose length is a power of two, so that neither adding nor settling searches or allocates.
// The ring starts small and doubles up to what the caller lets in.
type inFlight struct {
	limit Window
	ring  []int64

	base uint64 // the oldest unsettled sequence; next when there is none
	next uint64 // the sequence that the next event gets

	events int   // unsettled
	bytes  int64 // of the unsettled events
}

func newInFlight(limit Window) inFlight {
	return inFlight{limit: limit, ring: make([]int64, minRing), base: 1, next: 1}
}

// full says that the next event should wait. With nothing in flight it never should.
func (f *inFlight) full() bool {
	span := f.next - f.base
	return span > 0 && (span >= uint64(max(f.limit.Events, 0)) || f.bytes >= f.limit.Bytes)
}

func (f *inFlight) add(bytes int) uint64 {
	if f.next-f.base == uint64(len(f.ring)) {
		f.grow()
	}
	seq := f.next
	*f.slot(seq) = int64(bytes)
	f.next++
	f.events++
	f.bytes += int64(bytes)
	return seq
}

func (f *inFlight) settle(seq uint64) error {
	// The difference is unsigned: a sequence below base wraps around and is out of range as well.
	if seq-f.base >= f.next-f.base || *f.slot(seq) == settled {
		return fmt.Errorf("settle sequence %d of 1 to %d: %w", seq, f.next-1, ErrNotInFlight)
	}
	slot := f.slot(seq)
	f.events--
	f.bytes -= *slot
	*slot = settled
	return nil
}

// advance moves base over what is settled without a gap.
func (f *inFlight) advance() {
	for f.base < f.next && *f.slot(f.base) == settled {
		f.base++
	}
}

func (f *inFlight) slot(seq uint64) *int64 { return &f.ring[seq&uint64(len(f.ring)-1)] }

func (f *inFlight) grow() {
	old := *f
	f.ring = make([]int64, 2*len(old.ring))
	for seq := f.base; seq < f.next; seq++ {
		*f.slot(seq) = *old.slot(seq)
	}
}
