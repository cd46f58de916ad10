package cdc

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/walrelay/walrelay/decoder"
)

// visible reports whether others see what a committed transaction did. The server sends a transaction once its
// commit record is on disk, which is before it is visible: by a moment, or for as long as the session waits for a
// synchronous standby. Its lock on its own id is released after that: CommitTransaction in
// src/backend/access/transam/xact.c.
func (s *Server) visible(ctx context.Context, xid uint32) (visible bool, err error) {
	err = s.SQL.QueryRow(ctx, `
		SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted
			AND transactionid = $1::text::xid)`, strconv.FormatUint(uint64(xid), 10)).Scan(&visible)
	if err != nil {
		return false, Diagnose(fmt.Errorf("look whether transaction %d is visible: %w", xid, err))
	}
	return visible, nil
}

// untilVisible waits until look says so. hint is told once, when that takes long.
func untilVisible(ctx context.Context, look func() (bool, error), hint func()) error {
	const interval, long = 5 * time.Millisecond, time.Second
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	late := time.NewTimer(long)
	defer late.Stop()
	for {
		if visible, err := look(); err != nil || visible {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late.C:
			hint()
		case <-ticker.C:
		}
	}
}

// resolve finds the outbox that a relation belongs to. It may wait for a round to end.
func (g *guard) resolve(ctx context.Context, rel *decoder.Relation, xid uint32) (*decoder.Mapping, bool, error) {
	if err := g.awaitVisible(ctx, xid); err != nil {
		return nil, false, err
	}
	if err := g.acquire(ctx); err != nil {
		return nil, false, err
	}
	defer g.release()
	return g.server.ResolveRelation(ctx, rel.OID, rel.Schema, rel.Table)
}

// awaitVisible lets rounds go on while it waits.
func (g *guard) awaitVisible(ctx context.Context, xid uint32) error {
	return untilVisible(ctx, func() (bool, error) {
		if err := g.acquire(ctx); err != nil {
			return false, err
		}
		defer g.release()
		return g.server.visible(ctx, xid)
	}, func() {
		g.log.Warn("a transaction with a table that is not known yet is committed and not visible yet: its session may "+
			"wait for a synchronous standby", zap.Uint32("xid", xid))
	})
}
