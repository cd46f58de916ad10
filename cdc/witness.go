package cdc

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pglogrepl"

	"github.com/walrelay/walrelay/checkpoint"
)

// witness is what a living process knows and the database, after a failover, may not: which timeline
// was reached, and what was published. It outlives the sessions, and dies with the process. The
// stream's goroutine owns it.
//
//	timeline 1  ──────┬────────── last      published from the old primary
//	timeline 2        └─────                the new primary: it has forgotten from the fork to last
type witness struct {
	systemID  string
	timelines *Timelines          // of the server met last; nil: none yet
	last      checkpoint.Position // highest that went to the sink, whatever its epoch
	epoch     uint32              // lowest under which new positions lie behind published ones

	events uint64 // that went to the sink, repeats not counted
	marks  []mark // ascending
}

// mark says how many events had gone to the sink before a transaction.
type mark struct {
	commit pglogrepl.LSN // start of its commit record
	before uint64
}

// markLimit bounds the marks to 64 KiB. What thin keeps of 10^12 events is less.
const markLimit = 4096

// divergence is what the server that took over lacks of what was published.
type divergence struct {
	timeline uint32        // on which it was written
	from, to pglogrepl.LSN // where the histories part, and the last published commit
	// events were published or on their way to the brokers. It is at least so many: of very many, up to 2 %
	// are not counted.
	events uint64
}

// publish notes an event that goes to the sink.
func (w *witness) publish(at checkpoint.Position) {
	w.epoch = max(w.epoch, at.Epoch)
	switch cmp.Or(cmp.Compare(at.Timeline, w.last.Timeline), cmp.Compare(at.LSN, w.last.LSN)) {
	case -1:
		return
	case 0:
		if at.Index <= w.last.Index {
			return
		}
	case 1:
		if len(w.marks) == markLimit {
			w.thin()
		}
		w.marks = append(w.marks, mark{commit: at.LSN, before: w.events})
	}
	w.last = at
	w.events++
}

// thin drops marks so that their distances from the end grow by 1 to 2 % each.
func (w *witness) thin() {
	kept, distance := len(w.marks), uint64(0)
	for _, m := range slices.Backward(w.marks) {
		if d := w.events - m.before; d > distance+distance/100 {
			kept--
			w.marks[kept], distance = m, d
		}
	}
	w.marks = append(w.marks[:0], w.marks[kept:]...)
}

// outdated refuses a server that a promotion has left behind: its rows would get positions that lie
// behind published ones, and the database in use does not have them.
func (w *witness) outdated(s *Server) error {
	if w.timelines == nil || w.systemID != s.SystemID || s.Timeline >= w.timelines.Current() {
		return nil
	}
	return fmt.Errorf("it writes on timeline %d, but timeline %d has begun: it is no longer the primary, and must be "+
		"stopped or made a standby", s.Timeline, w.timelines.Current())
}

// meet compares what was published with the history of the server that is connected now. It returns what
// that lacks, once, and nil if that is nothing.
func (w *witness) meet(s *Server) *divergence {
	if w.systemID != s.SystemID { // the registry decides about that
		*w = witness{systemID: s.SystemID, timelines: s.timelines}
		return nil
	}
	// A server whose log ends before what was sent was restored from a copy of its files, or is another
	// standby's timeline of the same number.
	fork := min(w.timelines.fork(s.timelines), s.Flushed)
	w.timelines = s.timelines
	if w.last.LSN < fork {
		return nil
	}
	d := &divergence{timeline: w.last.Timeline, from: fork, to: w.last.LSN}
	first, _ := slices.BinarySearchFunc(w.marks, fork, func(m mark, lsn pglogrepl.LSN) int {
		return cmp.Compare(m.commit, lsn)
	})
	if first < len(w.marks) {
		d.events = w.events - w.marks[first].before
		w.events, w.marks = w.marks[first].before, w.marks[:first]
	}
	if s.timelines.At(fork) <= w.last.Timeline { // new positions would lie among or below published ones
		w.epoch++
	}
	// Everything before the fork was published, and comes again at most.
	before := max(fork, 1) - 1
	w.last = checkpoint.Position{Timeline: s.timelines.At(before), LSN: before, Index: math.MaxUint32}
	return d
}
