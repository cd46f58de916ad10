package cdc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrNoSlot says that the server has no slot of that name.
var ErrNoSlot = errors.New("does not exist")

// LagReader asks the server how far the slot is behind, each time anew: a number that cannot be had is an error, never
// the last good one, and ErrNoSlot where there is no slot. It has a connection of its own, opened at the first use and
// when it was lost. Its methods may be called concurrently; queries take turns.
type LagReader struct {
	cfg  *Config
	turn chan struct{} // holds one token while the connection is in use

	conn    *pgx.Conn
	version int

	server atomic.Value // string, when the postmaster started that the stream has met last; empty: none, or no stream
	known  string       // the one to which conn was seen to lead
}

// NewLagReader returns a reader of the configured slot's lag. It does not connect yet.
func NewLagReader(cfg *Config) *LagReader {
	return &LagReader{cfg: cfg, turn: make(chan struct{}, 1)}
}

// follow has later answers come from this server and no other one: after a failover the former primary may go
// on answering. It does no I/O, and may be called concurrently with the other methods.
func (l *LagReader) follow(s *Server) { l.server.Store(s.started) }

// Lag asks the server. It takes no longer than ctx allows.
func (l *LagReader) Lag(ctx context.Context) (Lag, error) {
	if err := l.enter(ctx); err != nil {
		return Lag{}, err
	}
	defer l.leave()
	if err := l.connect(ctx); err != nil {
		return Lag{}, err
	}
	switch lag, err := l.query(ctx); {
	case errors.Is(err, pgx.ErrNoRows):
		return Lag{}, fmt.Errorf("read lag: slot %q %w", l.cfg.Slot, ErrNoSlot)
	case err != nil: // pgx has closed the connection if it is of no use any more
		return Lag{}, fmt.Errorf("read lag: %w", err)
	default:
		return lag, nil
	}
}

// Close closes the connection; a later Lag opens another one.
func (l *LagReader) Close(ctx context.Context) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	l.hangUp(ctx)
	return nil
}

func (l *LagReader) enter(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for another reader of the lag: %w", ctx.Err())
	}
}

func (l *LagReader) leave() { <-l.turn }

func (l *LagReader) connect(ctx context.Context) error {
	server, _ := l.server.Load().(string)
	isSame := func(ctx context.Context, conn *pgconn.PgConn) error { return startedAt(ctx, conn, server) }
	if l.conn != nil && !l.conn.IsClosed() {
		if l.known == server || isSame(ctx, l.conn.PgConn()) == nil {
			l.known = server
			return nil
		}
		l.hangUp(ctx)
	}
	var checks []pgconn.ValidateConnectFunc
	if server != "" {
		checks = append(checks, isSame)
	}
	conn, err := connectSQL(ctx, l.cfg, checks...)
	if err != nil {
		return err
	}
	l.conn, l.known = conn, server
	err = conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&l.version)
	if err != nil {
		l.hangUp(ctx)
		return fmt.Errorf("read version: %w", err)
	}
	return nil
}

func (l *LagReader) hangUp(ctx context.Context) {
	if l.conn != nil {
		_ = l.conn.Close(ctx) // it is of no use any more, however it ends
		l.conn = nil
	}
}

func (l *LagReader) query(ctx context.Context) (Lag, error) {
	var lag Lag
	var slot Slot
	targets := append([]any{&lag.Current, &lag.ServerTime}, slot.targets()...)
	err := l.conn.QueryRow(ctx, `
		SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END)::text,
			clock_timestamp(), `+slotColumns(l.version)+`
		FROM pg_replication_slots s WHERE s.slot_name = $1`, l.cfg.Slot).Scan(targets...)
	if err != nil {
		return Lag{}, err
	}
	lag.ConfirmedFlush, lag.Restart = slot.ConfirmedFlush, slot.Restart
	if slot.ConfirmedFlush != 0 {
		lag.ConfirmedBytes = int64(lag.Current) - int64(slot.ConfirmedFlush)
	}
	if slot.Restart != 0 { // a lost slot keeps nothing
		lag.RetainedBytes = int64(lag.Current) - int64(slot.Restart)
	}
	lag.Active, lag.ActivePID = slot.ActivePID != 0, slot.ActivePID
	lag.WALStatus, lag.InvalidationReason = slot.WALStatus, slot.InvalidationReason
	lag.SafeWALSize, lag.CatalogXminAge = slot.SafeWALSize, slot.CatalogXminAge
	lag.Instances, err = readInstances(ctx, l.conn, l.cfg.Slot, slot.ActivePID)
	return lag, err
}
