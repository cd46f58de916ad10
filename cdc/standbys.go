package cdc

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Waiting returns the sessions for replication that the stream's other instances have open at this moment.
// A standby tries about every second and is seen only while it does, so ask often. They are told by their
// application_name, which has to be this connection's, and seen only by the same role or one that may read
// all of pg_stat_activity.
func (k *SlotKeeper) Waiting(ctx context.Context) ([]Holder, error) {
	rows, err := k.server.SQL.Query(ctx, `
		SELECT pid, application_name, coalesce(host(client_addr), 'a local socket'), backend_start FROM pg_stat_activity
		WHERE backend_type = 'walsender' AND datname = current_database()
			AND application_name = current_setting('application_name')
			AND pid NOT IN (SELECT active_pid FROM pg_replication_slots WHERE active_pid IS NOT NULL)`)
	if err != nil {
		return nil, Diagnose(fmt.Errorf("look for standbys: %w", err))
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h Holder, err error) {
		return h, row.Scan(&h.PID, &h.Application, &h.Client, &h.Since)
	})
	if err != nil {
		return nil, Diagnose(fmt.Errorf("look for standbys: %w", err))
	}
	return found, nil
}

// FlushLag is how long ago the server wrote what the slot's reader confirmed last; ok is false when nobody
// reads, or nothing was confirmed lately.
func (k *SlotKeeper) FlushLag(ctx context.Context) (lag time.Duration, ok bool, err error) {
	var seconds *float64
	err = k.server.SQL.QueryRow(ctx, `
		SELECT (SELECT extract(epoch FROM a.flush_lag)::float8 FROM pg_stat_replication a
			JOIN pg_replication_slots s ON s.active_pid = a.pid WHERE s.slot_name = $1)`, k.server.cfg.Slot).Scan(&seconds)
	if err != nil {
		return 0, false, Diagnose(fmt.Errorf("read lag: %w", err))
	}
	if seconds == nil {
		return 0, false, nil
	}
	return time.Duration(*seconds * float64(time.Second)), true, nil
}
