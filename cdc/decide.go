package cdc

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
)

// action is what Register and Claim do about a stream.
type action int

const (
	// actionCreate: register the stream, create the publication if missing, then the slot.
	actionCreate action = iota
	// actionAdopt: a slot is there and nothing is recorded of it: go on where it stands.
	actionAdopt
	// actionResume: the slot is the one that was recorded.
	actionResume
)

// facts is what decide knows. It is read from the server, or made up by a test.
type facts struct {
	row       *registryRow // nil: not registered
	slot      Slot
	server    *Server
	timelines *Timelines
	database  string
	now       pglogrepl.LSN
}

// facts reads what decide needs. Another instance may be streaming: it records a position before it
// confirms it, so the slot is read before the row. It creates the slot before it records that, so when
// a recorded slot seems to be missing both are read once more.
func (s *Server) facts(ctx context.Context) (*facts, error) {
	f := &facts{server: s, timelines: s.timelines}
	var err error
	for range 2 {
		if f.slot, err = s.Slot(ctx); err != nil {
			return nil, err
		}
		if f.row, err = s.Registry().load(ctx); err != nil {
			return nil, err
		}
		if f.slot.Exists || f.row == nil || f.row.Created == 0 {
			break
		}
	}
	err = s.SQL.QueryRow(ctx, "SELECT current_database()::text, pg_current_wal_lsn()::text").Scan(&f.database, &f.now)
	if err != nil {
		return nil, Diagnose(fmt.Errorf("read position: %w", err))
	}
	return f, nil
}

// decide is the one place that compares the registry with the server:
//
//	registry row      slot                                          then
//	any               of another plugin, database or kind           fatal
//	no row            missing                                       create: row, publication, slot
//	no row            there, made by somebody else                  adopt, with a warning
//	no created_lsn    missing (creation was interrupted; new epoch) create
//	no created_lsn    there                                         adopt
//	any               there and invalidated                         fatal, gap
//	created_lsn       on another system identifier                  fatal
//	created_lsn       other slot or publication name than recorded  fatal
//	created_lsn       missing                                       fatal, gap
//	created_lsn       at or before the recorded position            resume (repeats at most)
//	created_lsn       beyond it, as far as `slot advance` was told  resume
//	created_lsn       beyond it, same timeline                      fatal, gap: re-created or advanced
//	created_lsn       beyond it, but within the recorded timeline   resume, with a warning: after a
//	                  promotion the row may be older than the synchronised slot
//	created_lsn       beyond it, on a later timeline                fatal, gap: re-created or advanced
func (f *facts) decide() (action, error) {
	if err := f.unfitSlot(); err != nil {
		return 0, err
	}
	if f.row == nil || f.row.Created == 0 {
		switch {
		case !f.slot.Exists:
			return actionCreate, nil
		case f.slot.Lost():
			return 0, lostSlot(f.slot, "what it has not streamed is lost to the stream", republish(f.server.cfg.Stream))
		default:
			return actionAdopt, nil
		}
	}
	if err := f.otherStream(); err != nil {
		return 0, err
	}
	switch gap := gapBetween(f.row.Confirmed, f.now); {
	case !f.slot.Exists && f.row.LeftOut != nil && f.row.LeftOut.How == dropped:
		return 0, &FatalError{
			Object: quoted("slot", f.slot.Name), Problem: "is gone: " + f.row.LeftOut.String(),
			Remedy: "run `walrelay slot create`, which prints the `walrelay replay` that publishes these rows, and start " +
				"walrelay",
		}
	case !f.slot.Exists && f.row.GivenUp != nil:
		return 0, &FatalError{
			Object: quoted("slot", f.slot.Name), Problem: "is gone: " + f.row.GivenUp.String(),
			Remedy: republishSince(f.server.cfg.Stream, f.row.GivenUp.since()) + "; that start creates the slot",
		}
	case !f.slot.Exists:
		return 0, &FatalError{
			Object: quoted("slot", f.slot.Name),
			Problem: "is gone, though the stream has used it since " + f.row.Created.String() +
				" (dropped, or not copied to the server that took over); " + gap,
			Remedy: republishSince(f.server.cfg.Stream, f.row.gapSince()) + "; that start creates the slot",
		}
	case f.slot.Lost():
		return 0, lostSlot(f.slot, gap, republishSince(f.server.cfg.Stream, f.row.gapSince()))
	case f.slot.ConfirmedFlush > f.row.Confirmed && !f.leftOut() && !f.promoted():
		return 0, &FatalError{
			Object: quoted("slot", f.slot.Name),
			Problem: fmt.Sprintf("stands at %s, beyond the %s that this stream confirmed last: it was created again or "+
				"advanced by somebody else; %s", f.slot.ConfirmedFlush, f.row.Confirmed,
				gapBetween(f.row.Confirmed, f.slot.ConfirmedFlush)),
			Remedy: republishSince(f.server.cfg.Stream, f.row.gapSince()),
		}
	}
	return actionResume, nil
}

// leftOut says that a slot beyond the recorded position is where `walrelay slot advance` was to bring it.
func (f *facts) leftOut() bool {
	l := f.row.LeftOut
	return l != nil && l.How == advanced && f.slot.ConfirmedFlush <= pglogrepl.LSN(l.To)
}

// promoted says that a slot beyond the recorded position is explained by a promotion: the slot was
// confirmed on the timeline that the row knows, and the row's last update did not reach the standby.
func (f *facts) promoted() bool {
	return f.timelines.Current() > f.row.Timeline && f.timelines.At(f.slot.ConfirmedFlush-1) <= f.row.Timeline
}

// unfitSlot refuses a slot that cannot carry the stream, whoever made it.
func (f *facts) unfitSlot() error {
	fatal := func(problem string) error {
		return &FatalError{
			Object: quoted("slot", f.slot.Name), Problem: problem,
			Remedy: "configure another slot name, or if nobody needs that slot: SELECT pg_drop_replication_slot(" +
				quoteLiteral(f.slot.Name) + ")",
		}
	}
	switch slot := f.slot; {
	case !slot.Exists:
		return nil
	case !slot.Logical:
		return fatal("is a physical slot")
	case slot.Plugin != outputPlugin:
		return fatal(fmt.Sprintf("uses the plugin %q instead of %s", slot.Plugin, outputPlugin))
	case slot.Database != f.database:
		return fatal(fmt.Sprintf("belongs to database %q, not %q", slot.Database, f.database))
	case slot.Temporary:
		return fatal("is temporary")
	case slot.TwoPhase:
		return fatal("was created with two_phase, and would announce transactions before their commit")
	case slot.ConfirmedFlush == 0 && !slot.Lost():
		return &SlotActiveError{PID: slot.ActivePID} // another instance is creating it
	}
	return nil
}

// otherStream refuses to go on when the recorded stream is not the configured one.
func (f *facts) otherStream() error {
	cfg := f.server.cfg
	fatal := func(what, recorded, found string) error {
		return &FatalError{
			Object:  quoted("stream", cfg.Stream),
			Problem: fmt.Sprintf("was registered with %s %s and now finds %s", what, recorded, found),
			Remedy: "correct the configuration, or give the stream another name, or after publishing again what may be " +
				"missing run `walrelay stream new-epoch " + cfg.Stream + "`",
		}
	}
	switch {
	case f.row.SystemID != f.server.SystemID:
		return fatal("system identifier", f.row.SystemID, f.server.SystemID)
	case f.row.Slot != cfg.Slot:
		return fatal("slot", f.row.Slot, cfg.Slot)
	case f.row.Publication != cfg.Publication:
		return fatal("publication", f.row.Publication, cfg.Publication)
	}
	return nil
}
