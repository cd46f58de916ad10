package main

import (
	"context"
	"fmt"
	"time"
)

// lossFaults are those after which walrelay must not go on by itself.
func lossFaults() []*fault {
	const group = "postgres"
	nothing := func(context.Context, *world) error { return nil }
	drop := func(ctx context.Context, w *world) error { return w.dropSlot(ctx) }
	return []*fault{
		{
			group: group, name: "slot-dropped", about: "the slot is dropped, and the operator accepts the gap",
			most: 4 * time.Second, strike: loss{harm: drop, mend: nothing}.strike,
		},
		{
			group: group, name: "slot-recreated", about: "the slot is dropped and created again by hand",
			most: 4 * time.Second, strike: loss{harm: drop, mend: createSlot, keeps: true}.strike,
		},
		{
			group: group, name: "slot-invalidated", about: "the slot retains too much, or is idle for too long (18)",
			most: 4 * time.Second, strike: invalidate,
		},
		{
			group: group, name: "publication-recreated", about: "the publication is dropped and created again",
			most: 4 * time.Second, strike: loss{
				harm: func(ctx context.Context, w *world) error { return w.sql(ctx, "DROP PUBLICATION walrelay") },
				mend: func(ctx context.Context, w *world) error { return w.sql(ctx, w.options.shape.publicationSQL()) },
				// It stands before rows that were written without a publication, and cannot be read past them.
				unslot: true,
			}.strike,
		},
	}
}

// dropSlot ends whoever streams from the slot, and is faster than walrelay's next attempt.
func (w *world) dropSlot(ctx context.Context) error {
	return w.sql(ctx, fmt.Sprintf(`
		SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = '%[1]s' AND active;
		SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '%[1]s'`, slot))
}

// createSlot creates it as walrelay would.
func createSlot(ctx context.Context, w *world) error {
	more := ""
	if w.server.Major >= failoverMajor {
		more = ", failover => true"
	}
	_, err := w.db.Conn.Exec(ctx, "SELECT pg_create_logical_replication_slot('"+slot+"', 'pgoutput'"+more+")")
	return err
}

// invalidate makes the server give the slot up for one of two reasons.
func invalidate(ctx context.Context, w *world, hold func()) error {
	setting, value, sign := "max_slot_wal_keep_size", "16MB", "wal_status = 'lost'" // a segment
	if w.server.Major >= 18 && w.random.IntN(2) == 0 {
		setting, value, sign = "idle_replication_slot_timeout", "1s", "coalesce(invalidation_reason = 'idle_timeout', false)"
	}
	w.t.Logf("        %s = %s", setting, value)
	return loss{
		away: true, unslot: true,
		harm: func(ctx context.Context, w *world) error { return w.set(ctx, setting, value) },
		mend: func(ctx context.Context, w *world) error {
			if err := w.loseSlot(ctx, sign); err != nil {
				return err
			}
			return w.reset(ctx, setting)
		},
	}.strike(ctx, w, hold)
}

// loseSlot writes log and makes the server look at its slots, which it does in checkpoints, until the
// sign is there.
func (w *world) loseSlot(ctx context.Context, sign string) error {
	var err error
	if !await(ctx, stepLimit, func(ctx context.Context) bool {
		for _, sql := range []string{
			"SELECT pg_logical_emit_message(true, 'campaign', repeat('x', 1000000))", "SELECT pg_switch_wal()", "CHECKPOINT",
		} {
			if _, err = w.db.Conn.Exec(ctx, sql); err != nil {
				return false
			}
		}
		var lost bool
		err = w.db.Conn.QueryRow(ctx, "SELECT "+sign+" FROM pg_replication_slots WHERE slot_name = $1", slot).Scan(&lost)
		return err == nil && lost
	}) {
		return fmt.Errorf("the slot is not invalidated: %w", err)
	}
	return nil
}

// set changes a setting of the server, and waits until the postmaster has told all processes of it: new
// ones have it from then on, and so has a checkpoint that begins after that.
func (w *world) set(ctx context.Context, name, value string) error {
	return w.alter(ctx, fmt.Sprintf("SET %s = '%s'", name, value),
		fmt.Sprintf("current_setting('%s') = '%s'", name, value))
}

// reset undoes set.
func (w *world) reset(ctx context.Context, name string) error {
	return w.alter(ctx, "RESET "+name, "NOT EXISTS (SELECT FROM pg_settings WHERE name = '"+name+
		"' AND sourcefile LIKE '%auto.conf')")
}

func (w *world) alter(ctx context.Context, change, is string) error {
	for _, sql := range []string{"ALTER SYSTEM " + change, "SELECT pg_reload_conf()"} {
		if _, err := w.db.Conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	if !await(ctx, stepLimit, func(ctx context.Context) bool {
		conn, err := w.connect(ctx)
		if err != nil {
			return false
		}
		defer conn.Close(ctx) //nolint:errcheck // only read
		var done bool
		err = conn.QueryRow(ctx, "SELECT "+is).Scan(&done)
		return err == nil && done
	}) {
		return fmt.Errorf("%s has no effect", change)
	}
	return nil
}
