package checkpoint

import (
	"fmt"

	"github.com/jackc/pglogrepl"
)

// Line is what the registry and the server say about a stream whose states follow one another: it
// begins with a state that covers nothing, and ends when the operator declares a new epoch or
// exactly-once delivery is given up. States of another line say nothing about this one.
type Line struct {
	Epoch uint32
	// Origin is the epoch under which the line began. Zero: none has, so the first state is yet to be
	// written and whatever is found belongs to another line.
	Origin   uint32
	SystemID string
	Slot     string
	Routing  string
	Timeline uint32 // of the server's session
	// Left is where the server's history left a timeline; ok is false for one that is not in it. The
	// present timeline is left at the server's write position.
	Left func(timeline uint32) (at pglogrepl.LSN, ok bool)
	// Confirmed is how far the slot and the registry are confirmed.
	Confirmed pglogrepl.LSN
}

// StateError says that a state contradicts the registry or the server, so that going on would repeat
// or lose events. Remedy has the command to run.
type StateError struct {
	Problem, Remedy string
}

func (e *StateError) Error() string { return e.Problem + "; " + e.Remedy }

// EpochBehindError says that the topic of states holds one of another line with an epoch that is not
// below the stream's: the stream's must be raised above it, for consumers have seen it.
type EpochBehindError struct {
	Found uint32
}

func (e *EpochBehindError) Error() string {
	return fmt.Sprintf("an earlier life of the stream came to epoch %d", e.Found)
}

// Begin is the line's first state.
func (l *Line) Begin() *State {
	return &State{
		Epoch: l.Epoch, Origin: l.Epoch, SystemID: l.SystemID, Timeline: l.Timeline, Slot: l.Slot, Routing: l.Routing,
		Reached: l.Confirmed,
	}
}

// Check compares the line with the state that was found; nil stands for none. Its errors are
// *StateError and *EpochBehindError.
func (l *Line) Check(found *State) error {
	if l.Origin == 0 {
		if found != nil && found.Epoch >= l.Epoch {
			return &EpochBehindError{Found: found.Epoch}
		}
		return nil
	}
	switch {
	case found == nil:
		return contradiction("no state is found, though the registry says that one was written (its topic was deleted, " +
			"or is not the one that was used)")
	case found.Origin != l.Origin:
		return contradiction("the state found began with epoch %d, the registry's with epoch %d: one of the two was "+
			"restored or replaced", found.Origin, l.Origin)
	case found.SystemID != l.SystemID:
		return contradiction("the state found belongs to system identifier %s, the server has %s", found.SystemID, l.SystemID)
	case found.Slot != l.Slot:
		return contradiction("the state found belongs to slot %q, not %q", found.Slot, l.Slot)
	case found.Epoch > l.Epoch:
		return contradiction("the state found has epoch %d, the registry only %d: the registry was restored", found.Epoch,
			l.Epoch)
	case l.Confirmed > found.Reached:
		return contradiction("the slot is confirmed up to %s, the state found only reaches %s: the topic of states lost "+
			"its end, or the slot was advanced by somebody else", l.Confirmed, found.Reached)
	}
	if left, ok := l.Left(found.Timeline); !ok || found.Reached > left || found.Position.LSN > left {
		return contradiction("the state found stands at %s of timeline %d, which this server never had: it is an older "+
			"copy, or was promoted without the last transactions", max(found.Reached, found.Position.LSN), found.Timeline)
	}
	if found.Partial && found.Routing != l.Routing {
		return &StateError{
			Problem: fmt.Sprintf("routing was changed while the state stands in the middle of the transaction at %s",
				found.Position.LSN),
			Remedy: "start once with the former routing (topic, key and id settings) until that transaction is through",
		}
	}
	return nil
}

// contradiction is an error that only the operator can judge.
func contradiction(format string, args ...any) error {
	return &StateError{
		Problem: fmt.Sprintf(format, args...),
		Remedy: "if this is the right server and the right cluster, stop every instance and run " +
			"`walrelay stream new-epoch`: the stream then goes on from its slot and may repeat events",
	}
}
