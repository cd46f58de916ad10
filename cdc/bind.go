package cdc

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/walrelay/walrelay/decoder"
)

// turn lets work have the SQL connection.
type turn func(ctx context.Context, work func(context.Context) error) error

// bind decides about the relation that the decoder has just met: it is an outbox, or a part of one, or ignored. It
// asks the catalog, in turns of the SQL connection, as soon as others see what the relation's transaction did.
func (s *Server) bind(ctx context.Context, d *decoder.Decoder, in turn) error {
	rel := d.Relation()
	if rel.Mapping != nil && !s.cfg.Nullability {
		return nil
	}
	if err := s.awaitVisible(ctx, d.Begin().XID, in); err != nil {
		return err
	}
	return in(ctx, func(ctx context.Context) error {
		if rel.Mapping == nil {
			mapping, ok, err := s.ResolveRelation(ctx, rel.OID, rel.Schema, rel.Table, d.Begin().FinalLSN)
			switch {
			case err != nil:
				return err
			case !ok:
				s.log.Info("inserts into a table that is no outbox are ignored",
					zap.String("table", tableName(rel.Schema, rel.Table)))
				return d.Ignore(rel.OID)
			}
			if err := d.Bind(rel.OID, mapping); err != nil {
				return err
			}
		}
		return s.describe(ctx, rel)
	})
}

// alone is the turn of a connection that nobody else uses.
func alone(ctx context.Context, work func(context.Context) error) error { return work(ctx) }

// awaitVisible waits until others see what a committed transaction did. The server sends a transaction once its
// commit record is on disk, which is before it is visible: by a moment, or for as long as the session waits for a
// synchronous standby. The server is asked less and less often, since that looks at every lock that it has.
func (s *Server) awaitVisible(ctx context.Context, xid uint32, in turn) error {
	const first, longest = 5 * time.Millisecond, time.Second
	timer := time.NewTimer(first)
	defer timer.Stop()
	for pause := first; ; {
		var visible bool
		err := in(ctx, func(ctx context.Context) (err error) {
			visible, err = s.visible(ctx, xid)
			return err
		})
		if err != nil || visible {
			return err
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		if pause < longest && 2*pause >= longest {
			s.log.Warn("a transaction with a table that is not known yet is committed and not visible yet: its session may "+
				"wait for a synchronous standby", zap.Uint32("xid", xid))
		}
		pause = min(2*pause, longest)
	}
}

// visible looks whether a transaction has released the lock on its own id, which it does once others see what it
// did: CommitTransaction in src/backend/access/transam/xact.c.
func (s *Server) visible(ctx context.Context, xid uint32) (visible bool, err error) {
	err = s.SQL.QueryRow(ctx, `
		SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted
			AND transactionid = $1::text::xid)`, strconv.FormatUint(uint64(xid), 10)).Scan(&visible)
	if err != nil {
		return false, Diagnose(fmt.Errorf("look whether transaction %d is visible: %w", xid, err))
	}
	return visible, nil
}
