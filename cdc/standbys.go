package cdc

import (
	"context"
	"fmt"
	"time"
)

// Standbys returns the stream's instances that wait for the slot. Those of another role's sessions are seen only
// with pg_monitor.
func (k *SlotKeeper) Standbys(ctx context.Context) ([]Instance, error) {
	instances, err := readInstances(ctx, k.server.SQL, k.server.cfg.Slot, 0)
	if err != nil {
		return nil, Diagnose(fmt.Errorf("look for standbys: %w", err))
	}
	return instances, nil
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
