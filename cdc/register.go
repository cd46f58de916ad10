package cdc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"
)

// Registration is what the registry and the server agree on about a stream.
type Registration struct {
	Epoch uint32
	// Created is where the slot begins. Zero until Claim, when the slot was found and not created.
	Created pglogrepl.LSN
	// Confirmed is the recorded position, at or after the slot's own.
	Confirmed   pglogrepl.LSN
	Slot        Slot
	Publication PublicationState
	// Partitions holds the recorded partition counts by topic.
	Partitions map[string]int32
	// Warnings are worth a line each in the log, once.
	Warnings []string
}

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
			return 0, lostSlot(f.slot, f.server.cfg.Stream, "what it has not streamed is lost to the stream")
		default:
			return actionAdopt, nil
		}
	}
	if err := f.otherStream(); err != nil {
		return 0, err
	}
	switch gap := gapBetween(f.row.Confirmed, f.now); {
	case !f.slot.Exists:
		return 0, &FatalError{
			Object: quoted("slot", f.slot.Name),
			Problem: "is gone, though the stream has used it since " + f.row.Created.String() +
				" (dropped, or not copied to the server that took over); " + gap,
			Remedy: republish(f.server.cfg.Stream) + "; the next start then creates the slot",
		}
	case f.slot.Lost():
		return 0, lostSlot(f.slot, f.server.cfg.Stream, gap)
	case f.slot.ConfirmedFlush > f.row.Confirmed && !f.promoted():
		return 0, &FatalError{
			Object: quoted("slot", f.slot.Name),
			Problem: fmt.Sprintf("stands at %s, beyond the %s that this stream confirmed last: it was created again or "+
				"advanced by somebody else; %s", f.slot.ConfirmedFlush, f.row.Confirmed,
				gapBetween(f.row.Confirmed, f.slot.ConfirmedFlush)),
			Remedy: republish(f.server.cfg.Stream),
		}
	}
	return actionResume, nil
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
			Remedy: "configure another slot name, or drop that slot if nobody needs it",
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

// Register makes sure that the stream's row, publication and slot exist and fit together, creating
// them only if the stream never had a slot. It is called before StartReplication and changes
// nothing that another instance, which may hold the slot, relies on.
func (s *Server) Register(ctx context.Context) (*Registration, error) {
	f, err := s.facts(ctx)
	if err != nil {
		return nil, err
	}
	act, err := f.decide()
	if err != nil {
		return nil, err
	}
	if f.row == nil {
		if err := s.Registry().insert(ctx, s); err != nil {
			return nil, err
		}
	}
	if act == actionCreate {
		return s.create(ctx)
	}
	return s.registration(ctx, f)
}

// create makes publication and slot, in this order, each committed before the next.
func (s *Server) create(ctx context.Context) (*Registration, error) {
	if err := s.roomForSlot(ctx); err != nil {
		return nil, err
	}
	if err := s.EnsurePublication(ctx); err != nil {
		return nil, err
	}
	state, err := s.CheckPublication(ctx)
	if err != nil {
		return nil, err
	}
	created, err := s.CreateSlot(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Registry().begin(ctx, s, created, state); err != nil {
		return nil, err
	}
	s.log.Info("slot created: rows that were committed before are not streamed",
		zap.String("slot", s.cfg.Slot), zap.Stringer("lsn", created),
		zap.String("existing_rows", strings.Join(s.existingRows(ctx), ", ")))
	f, err := s.facts(ctx)
	if err != nil {
		return nil, err
	}
	return s.registration(ctx, f)
}

// Claim is called once the slot is held, that is after StartReplication: only then can nobody else
// change the row. It looks again at everything that Register looked at, records a slot that was
// found, and raises the epoch when events are now routed or delivered differently.
func (s *Server) Claim(ctx context.Context) (*Registration, error) {
	f, err := s.facts(ctx)
	if err != nil {
		return nil, err
	}
	act, err := f.decide()
	switch {
	case err != nil:
		return nil, err
	case act == actionCreate || f.row == nil:
		return nil, fmt.Errorf("claim stream: slot or registration of %q disappeared", s.cfg.Stream)
	}
	reg, err := s.registration(ctx, f)
	if err != nil {
		return nil, err
	}
	if act == actionAdopt {
		if err := s.Registry().begin(ctx, s, f.slot.ConfirmedFlush, reg.Publication); err != nil {
			return nil, err
		}
		reg.Created, reg.Confirmed = f.slot.ConfirmedFlush, f.slot.ConfirmedFlush
		reg.Warnings = append(reg.Warnings, fmt.Sprintf("slot %q was there before the stream: it goes on at %s",
			s.cfg.Slot, f.slot.ConfirmedFlush))
	} else if f.row.State == nil || !reg.Publication.Equal(*f.row.State) {
		if err := s.Registry().recordPublication(ctx, reg.Publication); err != nil {
			return nil, err
		}
	}
	if f.row.Routing == s.cfg.Routing && f.row.Delivery == s.cfg.Delivery {
		return reg, nil
	}
	if reg.Epoch, err = s.Registry().adoptRouting(ctx, s.cfg); err != nil {
		return nil, err
	}
	s.log.Info("epoch raised: routing or delivery mode changed",
		zap.String("stream", s.cfg.Stream), zap.Uint32("epoch", reg.Epoch))
	return reg, nil
}

// registration checks the publication against the recorded one and collects the answer.
func (s *Server) registration(ctx context.Context, f *facts) (*Registration, error) {
	state, err := s.CheckPublication(ctx)
	if err != nil {
		var fatal *FatalError
		if errors.As(err, &fatal) && f.row != nil && f.row.Created != 0 {
			fatal.Problem += "; " + gapBetween(f.row.Confirmed, f.now)
		}
		return nil, err
	}
	reg := &Registration{Epoch: 1, Slot: f.slot, Publication: state, Warnings: state.Warnings}
	if f.slot.Exists && s.cfg.Failover && !f.slot.Failover {
		reg.Warnings = append(reg.Warnings, fmt.Sprintf("slot %q is not copied to standbys: that needs PostgreSQL 17 and "+
			"ALTER_REPLICATION_SLOT %s (FAILOVER true)", s.cfg.Slot, s.cfg.Slot))
	}
	if f.row == nil {
		return reg, nil
	}
	reg.Epoch, reg.Created, reg.Confirmed, reg.Partitions = f.row.Epoch, f.row.Created, f.row.Confirmed, f.row.Partitions
	if f.slot.ConfirmedFlush > f.row.Confirmed && f.row.Created != 0 {
		reg.Warnings = append(reg.Warnings, fmt.Sprintf("slot %q stands at %s, beyond the recorded %s: the registry's last "+
			"word did not reach the promoted server", s.cfg.Slot, f.slot.ConfirmedFlush, f.row.Confirmed))
	}
	if f.row.State == nil {
		return reg, nil
	}
	if f.row.State.OID == state.OID && f.row.State.Row != state.Row {
		reg.Warnings = append(reg.Warnings, fmt.Sprintf("publication %q was altered since it was recorded: had it stopped "+
			"publishing inserts, rows after %s are missing", s.cfg.Publication, f.row.Confirmed))
	}
	return reg, state.Since(*f.row.State, f.row.Confirmed, s.cfg)
}

// facts reads what decide needs.
func (s *Server) facts(ctx context.Context) (*facts, error) {
	f := &facts{server: s, timelines: s.timelines}
	var err error
	// The slot first: a running instance records a position before it confirms it, so the row that is
	// read later is never behind.
	if f.slot, err = s.Slot(ctx); err != nil {
		return nil, err
	}
	if f.row, err = s.Registry().load(ctx); err != nil {
		return nil, err
	}
	err = s.SQL.QueryRow(ctx, "SELECT current_database()::text, pg_current_wal_lsn()::text").Scan(&f.database, &f.now)
	if err != nil {
		return nil, Diagnose(fmt.Errorf("read position: %w", err))
	}
	return f, nil
}
