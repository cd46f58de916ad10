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
	// Origin is the epoch under which the line of states began: see checkpoint.Line.
	Origin uint32
	// Written is the server's write position when all this was read.
	Written pglogrepl.LSN
	// Warnings are worth a line each in the log, once.
	Warnings []string
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
		var begun *registryRow
		return nil, begun.dated(err, s.cfg.Stream)
	}
	if s.cfg.Backfill != nil {
		if err := s.cfg.Backfill.Plan(ctx); err != nil {
			return nil, fmt.Errorf("plan backfill: %w", err)
		}
	}
	created, err := s.CreateSlot(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Registry().begin(ctx, s, created, state, true); err != nil {
		return nil, err
	}
	what := "slot created: rows that were committed before are not streamed"
	if s.cfg.Backfill != nil {
		what = "slot created: rows that were committed before are published first"
	}
	s.log.Info(what, zap.Stringer("lsn", created),
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
		if err := s.Registry().begin(ctx, s, f.slot.ConfirmedFlush, reg.Publication, false); err != nil {
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
	if l := f.row.LeftOut; l != nil && !l.Named {
		reg.Warnings = append(reg.Warnings, fmt.Sprintf("%s; to publish them: `%s`", l, l.Replay()))
		if err := s.Registry().nameLeftOut(ctx); err != nil {
			return nil, err
		}
	}
	if f.row.Routing == s.cfg.Routing && f.row.Delivery == s.cfg.Delivery {
		return reg, nil
	}
	if reg.Epoch, err = s.Registry().adoptRouting(ctx, s.cfg); err != nil {
		return nil, err
	}
	if f.row.Delivery != s.cfg.Delivery {
		reg.Origin = 0
	}
	s.log.Info("epoch raised: routing or delivery mode changed", zap.Uint32("epoch", reg.Epoch))
	return reg, nil
}

// registration checks the publication against the recorded one and collects the answer.
func (s *Server) registration(ctx context.Context, f *facts) (*Registration, error) {
	state, err := s.CheckPublication(ctx)
	if err != nil {
		var fatal *FatalError
		if errors.As(err, &fatal) && f.row != nil && f.row.Created != 0 {
			fatal.Problem += "; " + gapBetween(f.row.Confirmed, f.now)
			return nil, f.row.dated(err, s.cfg.Stream)
		}
		return nil, err
	}
	if f.row != nil && f.row.State != nil {
		state.follow(*f.row.State)
	}
	s.viaRootSince = state.ViaRootSince
	reg := &Registration{Epoch: 1, Slot: f.slot, Publication: state, Written: f.now, Warnings: state.Warnings}
	if f.slot.Exists && s.cfg.Failover && !f.slot.Failover {
		reg.Warnings = append(reg.Warnings, fmt.Sprintf("slot %q is not copied to standbys: that needs PostgreSQL 17 and "+
			"ALTER_REPLICATION_SLOT %s (FAILOVER true)", s.cfg.Slot, s.cfg.Slot))
	}
	if f.row == nil {
		return reg, nil
	}
	reg.Epoch, reg.Created, reg.Confirmed, reg.Partitions = f.row.Epoch, f.row.Created, f.row.Confirmed, f.row.Partitions
	reg.Origin = f.row.Origin
	if f.slot.ConfirmedFlush > f.row.Confirmed && f.row.Created != 0 && !f.leftOut() {
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
	return reg, f.row.dated(state.Since(*f.row.State, f.row.Confirmed, s.cfg), s.cfg.Stream)
}
