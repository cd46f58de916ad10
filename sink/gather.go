package sink

import (
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walrelay/walrelay/checkpoint"
)

// gather is what a run in exactly-once delivery holds for the next Kafka transaction. The events lie
// in their partitions' gathered and open batches; here is how far they go. Guarded by Kafka.mu.
type gather struct {
	state checkpoint.State // as written last, or as found at the start
	skip  checkpoint.State // events that it covers were delivered by an earlier run

	last  checkpoint.Position // of the last event, poison included
	whole mark                // end of the last PostgreSQL transaction
	since time.Time           // when the oldest event came

	wholeEvents, openEvents int   // up to whole, and of the PostgreSQL transaction after it
	wholeBytes, openBytes   int64 // of records, uncompressed

	full       bool                           // nothing more comes until something is settled
	unrecorded map[uint64]checkpoint.Position // poison events that are not written down yet, by sequence
	written    time.Time                      // when state was written
	begun      chan struct{}                  // closed once the run's first state is written
}

// mark is a place between two PostgreSQL transactions.
type mark struct {
	position checkpoint.Position // of the last event before it
	lsn      pglogrepl.LSN
}

func newGather(line checkpoint.Line, found *checkpoint.State) *gather {
	g := &gather{
		state: *found, skip: *found, last: found.Position,
		whole:      mark{position: found.Position, lsn: found.Reached},
		unrecorded: map[uint64]checkpoint.Position{}, begun: make(chan struct{}),
	}
	g.state.Epoch, g.state.Timeline, g.state.Routing = line.Epoch, line.Timeline, line.Routing
	return g
}

// newReplayGather is for events that have an order, and no state to go on from.
func newReplayGather() *gather {
	g := newGather(checkpoint.Line{}, &checkpoint.State{})
	g.commit(&g.state)
	return g
}

// add counts an event, and reports whether its PostgreSQL transaction has become a large one.
func (g *gather) add(pos checkpoint.Position, size int, c *Config) (large bool) {
	if g.wholeEvents+g.openEvents == 0 {
		g.since = now()
	}
	g.last, g.full = pos, false
	g.openEvents++
	g.openBytes += int64(size)
	return g.openEvents >= c.TransactionEvents || g.openBytes >= c.TransactionBytes
}

// reach ends a PostgreSQL transaction, or passes a part of the log without events. It reports whether
// a transaction may be due earlier than it was.
func (g *gather) reach(lsn pglogrepl.LSN, c *Config) bool {
	first := g.wholeEvents == 0 && (g.openEvents > 0 || g.whole.lsn <= g.state.Reached)
	g.whole = mark{position: g.last, lsn: max(lsn, g.whole.lsn)}
	g.wholeEvents += g.openEvents
	g.wholeBytes += g.openBytes
	g.openEvents, g.openBytes = 0, 0
	return first || g.wholeEvents >= c.TransactionEvents || g.wholeBytes >= c.TransactionBytes ||
		g.wholeEvents == 0 && lsn >= g.state.Reached+lazyBytes
}

// hasBegun reports whether the run's first state is written.
func (g *gather) hasBegun() bool { return !g.written.IsZero() }

const (
	// A position without events costs a transaction of its own. Small steps are taken rarely, like
	// those of the registry (cdc's guard).
	lazyBytes    = 256 << 10 // of log
	lazyInterval = time.Minute
)

// commit takes a state that is written.
func (g *gather) commit(state *checkpoint.State) {
	first := !g.hasBegun()
	g.state, g.written = *state, now()
	if first {
		close(g.begun)
	}
}

// due decides whether a transaction is due now, and up to where; if not, when to look again. A zero
// time means: when something else has happened. A PostgreSQL transaction stays whole unless it
// is larger than what a Kafka transaction may hold.
func (g *gather) due(c *Config, stopped bool) (next checkpoint.State, ok bool, at time.Time) {
	next = g.state
	if !g.hasBegun() {
		return next, true, at
	}
	next.Position, next.Partial, next.Reached = g.whole.position, false, g.whole.lsn
	large := g.openEvents >= c.TransactionEvents || g.openBytes >= c.TransactionBytes
	cramped := g.full && g.wholeEvents == 0 && g.openEvents > 0
	switch {
	case (large || cramped) && !stopped:
		next.Position, next.Partial = g.last, true
		ok = true
	case g.wholeEvents > 0:
		at = g.since.Add(c.TransactionInterval)
		ok = stopped || g.full || g.wholeEvents >= c.TransactionEvents || g.wholeBytes >= c.TransactionBytes ||
			!now().Before(at)
	case g.whole.lsn > g.state.Reached:
		at = g.written.Add(lazyInterval)
		if g.state.Partial { // its transaction has ended without another event
			at = g.written.Add(c.TransactionInterval)
		}
		ok = g.whole.lsn-g.state.Reached >= lazyBytes || !now().Before(at)
	}
	if g.state.Partial && next.Position == g.state.Position && g.whole.lsn == g.state.Reached {
		next.Partial = true // its end has not come yet
	}
	for _, pos := range g.unrecorded {
		if pos.Compare(next.Position) <= 0 {
			return next, false, time.Time{}
		}
	}
	return next, ok, at
}

// sealed says that everything up to the state is in a transaction now.
func (g *gather) sealed(next *checkpoint.State) {
	if next.Partial && next.Position == g.last {
		g.openEvents, g.openBytes = 0, 0
	}
	g.wholeEvents, g.wholeBytes = 0, 0
	g.since = now()
}
