package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/walrelay/walrelay/testenv"
)

// failoverMajor is the first that copies slots to standbys.
const failoverMajor = 17

// serverConfig is that of every PostgreSQL server of a campaign.
func serverConfig(more map[string]string) testenv.Config {
	settings := map[string]string{
		"wal_sender_timeout": "6s",
		"max_wal_size":       "256MB", // several checkpoints in a campaign
	}
	maps.Copy(settings, more)
	return testenv.Config{Settings: settings, HBA: accessRules()}
}

// failover kills the primary and promotes a standby, which has all that was acknowledged and all that
// walrelay was sent.
func failover(ctx context.Context, w *world, hold func()) error {
	standby, err := w.standBy(ctx)
	if err != nil {
		return err
	}
	before, err := w.registered(ctx)
	if err != nil {
		return err
	}
	hold()
	old := w.server
	old.Kill(w.t)
	early := w.random.IntN(2) == 0 // walrelay meets the standby before it is promoted
	upstream := fmt.Sprintf("127.0.0.1:%d", standby.Port)
	if early {
		if err := w.postgres.redirect(upstream); err != nil {
			return err
		}
		pause(ctx, between(w.random, 0, 2*time.Second))
	}
	standby.Promote(w.t)
	w.moveTo(standby)
	if !early {
		if err := w.postgres.redirect(upstream); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(old.Dir); err != nil {
		return fmt.Errorf("remove the old primary: %w", err)
	}
	if _, err := w.pulse.flows(ctx, recoveryLimit); err != nil {
		return err
	}
	w.failovers++
	return w.sameEpoch(ctx, before)
}

// standBy builds a standby to which the slot is copied. When it returns, no commit is acknowledged and
// nothing sent to walrelay that the standby does not have.
func (w *world) standBy(ctx context.Context) (*testenv.Server, error) {
	standby := w.server.Standby(w.t, serverConfig(map[string]string{"sync_replication_slots": "on"}))
	var name string // of its slot, and of its connection
	err := w.db.Conn.QueryRow(ctx, "SELECT slot_name FROM pg_replication_slots WHERE slot_type = 'physical'").Scan(&name)
	if err != nil {
		return nil, fmt.Errorf("find the standby's slot: %w", err)
	}
	for _, setting := range []string{"synchronized_standby_slots", "synchronous_standby_names"} {
		if err := w.set(ctx, setting, name); err != nil {
			return nil, err
		}
	}
	// The checkpointer makes backends wait for standbys (SyncRepUpdateSyncStandbysDefined) before it begins
	// with a checkpoint. A walsender reads its settings before it waits for more log (WalSndWaitForWal), so
	// it knows of the standby once it has sent what is written now.
	if _, err := w.db.Conn.Exec(ctx, "CHECKPOINT"); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if err := w.settled(ctx, recoveryLimit); err != nil {
		return nil, err
	}
	// A copied slot is of use once the primary's has passed the place where the copy began, for which it
	// needs snapshots; the standby compares them more and more rarely, but also when it is told to reload.
	if !await(ctx, recoveryLimit, func(ctx context.Context) bool {
		_, _ = w.db.Conn.Exec(ctx, "SELECT pg_log_standby_snapshot()") // again in a moment
		standby.Exec(w.t, "SELECT pg_reload_conf()")
		var synced bool
		standby.QueryRow(w.t, `SELECT EXISTS (SELECT FROM pg_replication_slots
			WHERE slot_name = $1 AND synced AND NOT temporary AND invalidation_reason IS NULL)`, []any{slot}, &synced)
		return synced
	}) {
		return nil, errors.New("the slot is not copied to the standby")
	}
	return standby, nil
}

// moveTo makes a server the one that everybody writes to.
func (w *world) moveTo(s *testenv.Server) {
	w.server, w.db = s, w.db.On(w.t, s)
	dsn := s.SocketDSN(w.db.Name)
	w.dsn.Store(&dsn)
}

// registration is a part of the stream's row in the registry.
type registration struct {
	epoch, timeline int
	partitions      string
}

func (w *world) registered(ctx context.Context) (r registration, err error) {
	err = w.db.Conn.QueryRow(ctx, "SELECT epoch, timeline, partitions::text FROM walrelay.streams WHERE name = $1", slot).
		Scan(&r.epoch, &r.timeline, &r.partitions)
	return r, err
}

// sameEpoch expects that only the timeline has changed, or partitions beside it, which may have been
// added before and are noticed late.
func (w *world) sameEpoch(ctx context.Context, before registration) error {
	var after registration
	if !await(ctx, stepLimit, func(ctx context.Context) bool {
		var err error
		after, err = w.registered(ctx)
		return err == nil && after.timeline == before.timeline+1
	}) {
		return fmt.Errorf("timeline %d is not registered after timeline %d", after.timeline, before.timeline)
	}
	if after.epoch != before.epoch && after.partitions == before.partitions {
		return fmt.Errorf("the failover raised the epoch from %d to %d", before.epoch, after.epoch)
	}
	return nil
}
