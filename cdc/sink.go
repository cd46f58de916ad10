package cdc

import (
	"context"

	"github.com/jackc/pglogrepl"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// Sink is what a session needs of the other side. All methods are called from the session's goroutine.
type Sink interface {
	// Begin starts a run and forgets the earlier one: no sequence of that is reported any more, and
	// nothing of it can reach the log after Begin has returned nil. It may block on the network and
	// is retried by the caller after an error, unless that is a *checkpoint.StateError or a
	// *checkpoint.EpochBehindError.
	Begin(ctx context.Context, run checkpoint.Run) error
	// End ends the run, if there is one: what is not delivered is not sent any more. The next Begin may be
	// long in coming.
	End(ctx context.Context) error
	// Publish takes one event over. It only works in memory and never waits for the network; the
	// event's bytes are copied. Sequences grow by one per call within a run. Whatever becomes of the
	// event is reported through the run's mailbox.
	Publish(seq uint64, ev *decoder.Event)
	// Reached says that every event before lsn has been published: a transaction ended there, or the
	// server has nothing for us up to there.
	Reached(lsn pglogrepl.LSN)
	// Recorded says that these poison events, which the sink has reported, are written down. The slice
	// is valid during the call.
	Recorded(seqs []uint64)
	// Full says that nothing more is published until something is settled. It is said again after each
	// mail that did not make room.
	Full()
	// Flush says that the input has run dry: what is held back to fill a batch should leave.
	Flush()
}
