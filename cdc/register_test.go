package cdc

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func TestRegister_CreatesRowPublicationSlotInOrder(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		db.Exec(t, `INSERT INTO events VALUES (1, 'a', 'k', 'p')`)

		reg := register(t, cfg)
		require.EqualValues(t, 1, reg.Epoch)
		require.True(t, reg.Slot.Exists)
		require.Equal(t, reg.Created, reg.Confirmed)
		require.Equal(t, reg.Slot.ConfirmedFlush, reg.Created)
		require.Len(t, reg.Publication.Tables, 1)
		require.Empty(t, reg.Warnings)

		again := register(t, cfg)
		require.Equal(t, reg.Created, again.Created)
		require.True(t, reg.Publication.Equal(again.Publication))
	})
}

func TestClaim_RaisesEpochForOtherRouting(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		_, cfg := newStream(t, major)
		register(t, cfg)

		cfg.Routing = "r2"
		require.EqualValues(t, 1, register(t, cfg).Epoch, "not before the slot is held")
		s := dial(t, cfg)
		require.NoError(t, s.StartReplication(t.Context(), 0))
		reg, err := s.Claim(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, reg.Epoch)
		require.NotZero(t, reg.Slot.ActivePID)
		reg, err = s.Claim(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, reg.Epoch)

		second := dial(t, cfg)
		var active *SlotActiveError
		require.ErrorAs(t, second.StartReplication(t.Context(), 0), &active)
		require.Equal(t, reg.Slot.ActivePID, active.PID)
	})
}

func TestRegister_AdoptsForeignSlot(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		db.Exec(t, createPublication(cfg.Publication, cfg.Mappings))
		db.QueryRow(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", cfg.Slot).Scan(new(string))

		require.Zero(t, register(t, cfg).Created)
		// Its owner goes on until the slot is held.
		db.Exec(t, `INSERT INTO events VALUES (1, 'a', 'k', 'p')`)
		advance(t, db, cfg.Slot)
		s := dial(t, cfg)
		_, err := s.Register(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.StartReplication(t.Context(), 0))
		reg, err := s.Claim(t.Context())
		require.NoError(t, err)
		require.Equal(t, reg.Slot.ConfirmedFlush, reg.Created)
		require.Contains(t, strings.Join(reg.Warnings, " "), "was there before the stream")
		reg, err = s.Claim(t.Context())
		require.NoError(t, err)
		require.Empty(t, reg.Warnings)

		// How long it had been behind nobody knows, so a replay from today would not close its gap.
		s.Close(context.Background())
		s = dial(t, cfg)
		require.Eventually(t, func() bool { return slotOf(t, s).ActivePID == 0 }, time.Minute, 10*time.Millisecond)
		db.Exec(t, "SELECT pg_drop_replication_slot('"+cfg.Slot+"')")
		_, err = s.Register(t.Context())
		fatal(t, err, "is gone", "walrelay replay --since TIME")
	})
}

func TestRegister_InterruptedCreationGoesOn(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		_, cfg := newStream(t, major)
		s := dial(t, cfg)
		require.NoError(t, s.Registry().insert(t.Context(), s))
		require.NotZero(t, register(t, cfg).Created)
	})
}

func TestRegister_SlotGone(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		reg := register(t, cfg)
		db.Exec(t, "SELECT pg_drop_replication_slot('"+cfg.Slot+"')")

		s := dial(t, cfg)
		_, err := s.Register(t.Context())
		fatal(t, err, cfg.Slot, "is gone", reg.Confirmed.String(), "walrelay stream new-epoch orders", "publish the rows")
		slot, err := s.Slot(t.Context())
		require.NoError(t, err)
		require.False(t, slot.Exists, "it must not be created again")
		err = s.StartReplication(t.Context(), 0)
		require.Error(t, err)
		require.False(t, Fatal(err), "the next attempt states the gap: %v", err)

		before := time.Now().Unix()
		done, err := s.Registry().NewEpoch(t.Context())
		require.NoError(t, err)
		require.Equal(t, EpochStart{Epoch: done.Epoch, Slot: cfg.Slot, Confirmed: reg.Confirmed}, done)
		require.GreaterOrEqual(t, int64(done.Epoch), before, "beyond what a restored registry does not know")
		fresh := register(t, cfg)
		require.Equal(t, done.Epoch, fresh.Epoch)
		require.Greater(t, fresh.Created, reg.Created)
	})
}

// Before the first start nothing is lost; later the message has the time from which rows are to be published again.
func TestRegister_TableNotPublished(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		db.Exec(t, "CREATE PUBLICATION "+cfg.Publication)
		s := dial(t, cfg)
		_, err := s.Register(t.Context())
		fatal(t, err, "is not in publication", "ADD TABLE")
		require.NotContains(t, err.Error(), "new-epoch")

		db.Exec(t, "ALTER PUBLICATION "+cfg.Publication+" ADD TABLE events")
		reg := register(t, cfg)
		settled := time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC)
		require.NoError(t, s.Registry().Confirm(t.Context(), reg.Confirmed, s.Timeline, settled))
		db.Exec(t, "ALTER PUBLICATION "+cfg.Publication+" DROP TABLE events")
		_, err = s.Register(t.Context())
		fatal(t, err, "is not in publication", "walrelay replay --since 2026-11-30T19:00:00Z")
		db.Exec(t, "ALTER PUBLICATION "+cfg.Publication+" ADD TABLE events")
		_, err = s.Register(t.Context())
		fatal(t, err, "taken out of it and added again", "walrelay replay --since 2026-11-30T19:00:00Z")
	})
}

func TestRegister_SlotRecreatedOrAdvanced(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		reg := register(t, cfg)
		db.Exec(t, `INSERT INTO events VALUES (1, 'a', 'k', 'p')`)
		advance(t, db, cfg.Slot)

		s := dial(t, cfg)
		_, err := s.Register(t.Context())
		fatal(t, err, cfg.Slot, "beyond the "+reg.Confirmed.String(), "created again or advanced", "new-epoch orders")
		require.NoError(t, s.Registry().Confirm(t.Context(), slotOf(t, s).ConfirmedFlush, s.Timeline, time.Time{}))
		_, err = s.Register(t.Context())
		require.NoError(t, err, "what we confirmed ourselves is ours")
	})
}

func TestRegister_UnfitSlots(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		db.Exec(t, createPublication(cfg.Publication, cfg.Mappings))
		other := testenv.Postgres(t, major).Database(t)
		for want, prepare := range map[string]func(slot string){
			"physical slot":       func(slot string) { db.Exec(t, "SELECT pg_create_physical_replication_slot('"+slot+"')") },
			`plugin "test_deco`:   func(slot string) { db.Exec(t, create(slot, "test_decoding", "false")) },
			"belongs to database": func(slot string) { other.Exec(t, create(slot, "pgoutput", "false")) },
			"two_phase":           func(slot string) { db.Exec(t, create(slot, "pgoutput", "true")) },
		} {
			cfg.Slot = db.Slot(t)
			prepare(cfg.Slot)
			_, err := dial(t, cfg).Register(t.Context())
			fatal(t, err, cfg.Slot, want, "another slot name")
			if want == "physical slot" {
				db.Exec(t, "SELECT pg_drop_replication_slot('"+cfg.Slot+"')")
			}
		}
	})
}

func create(slot, plugin, twoPhase string) string {
	return "SELECT pg_create_logical_replication_slot('" + slot + "', '" + plugin + "', false, " + twoPhase + ")"
}

func TestRegister_OtherStream(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		register(t, cfg)
		for column, value := range map[string]string{
			"system_identifier": "42", "slot": "another", "publication": "another",
		} {
			var before string
			require.NoError(t, db.QueryRow(t, "SELECT "+column+" FROM walrelay.streams").Scan(&before))
			db.Exec(t, "UPDATE walrelay.streams SET "+column+" = '"+value+"'")
			_, err := dial(t, cfg).Register(t.Context())
			fatal(t, err, `stream "orders"`, value, before, "new-epoch orders")
			db.Exec(t, "UPDATE walrelay.streams SET "+column+" = '"+before+"'")
		}
	})
}

func TestRegister_NoRoomForSlot(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, testenv.Majors()[0], testenv.Config{
		Settings: map[string]string{"max_replication_slots": "1"},
	})
	db, cfg := streamOn(t, server)
	db.Exec(t, "SELECT pg_create_physical_replication_slot('taken')")
	_, err := dial(t, cfg).Register(t.Context())
	fatal(t, err, cfg.Slot, "max_replication_slots = 1", "raise max_replication_slots")
}

func TestRegister_LostSlot(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		server := testenv.StartPostgres(t, major, testenv.Config{Settings: map[string]string{
			"max_slot_wal_keep_size": "16MB", "min_wal_size": "32MB", "max_wal_size": "48MB",
		}})
		db, cfg := streamOn(t, server)
		reg := register(t, cfg)
		for range 8 {
			db.Exec(t, "SELECT pg_logical_emit_message(true, 'x', 'y'); SELECT pg_switch_wal()")
		}
		db.Exec(t, "CHECKPOINT")

		s := dial(t, cfg)
		_, err := s.Register(t.Context())
		fatal(t, err, cfg.Slot, "wal_removed", "lost", reg.Confirmed.String(), "max_slot_wal_keep_size", "new-epoch orders",
			"pg_drop_replication_slot('"+cfg.Slot+"')")
		err = s.StartReplication(t.Context(), 0)
		require.Error(t, err)
		require.False(t, Fatal(err), "the next attempt states the gap: %v", err)

		_, err = s.Registry().NewEpoch(t.Context())
		fatal(t, err, "pg_drop_replication_slot('"+cfg.Slot+"')")
		db.Exec(t, "SELECT pg_drop_replication_slot('"+cfg.Slot+"')")
		done, err := s.Registry().NewEpoch(t.Context())
		require.NoError(t, err)
		require.Equal(t, done.Epoch, register(t, cfg).Epoch)
	})
}

func TestNewEpoch_RefusesRunningStream(t *testing.T) {
	t.Parallel()
	_, cfg := newStream(t, testenv.Majors()[0])
	registry, err := OpenRegistry(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, registry.Close(context.Background())) })
	_, err = registry.NewEpoch(t.Context())
	fatal(t, err, "is not registered")

	s := dial(t, cfg)
	_, err = s.Register(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.StartReplication(t.Context(), 0))
	_, err = registry.NewEpoch(t.Context())
	fatal(t, err, "is running", "stop every instance")
}

// TestRegister_WhileAnotherStreams: a standby looks at a slot that moves all the time.
func TestRegister_WhileAnotherStreams(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		_, cfg := newStream(t, major)
		register(t, cfg)
		active, standby := dial(t, cfg), dial(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			var err error
			for err == nil && ctx.Err() == nil {
				err = confirmNow(active)
			}
			ended <- err
		}()
		for range 100 {
			_, err := standby.Register(t.Context())
			require.NoError(t, err)
		}
		cancel()
		require.NoError(t, <-ended)
	})
}

// confirmNow does what a session does: record, then confirm.
func confirmNow(s *Server) error {
	ctx := context.Background()
	var lsn pglogrepl.LSN
	if err := s.SQL.QueryRow(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&lsn); err != nil {
		return err
	}
	if err := s.Registry().Confirm(ctx, lsn, s.Timeline, time.Time{}); err != nil {
		return err
	}
	_, err := s.SQL.Exec(ctx, "SELECT pg_replication_slot_advance($1, $2::text::pg_lsn)", s.cfg.Slot, lsn.String())
	return err
}

// TestFacts_Decide covers what takes a promotion or a crash at the right moment.
func TestFacts_Decide(t *testing.T) {
	t.Parallel()
	past := []timelineEnd{{timeline: 1, end: 0x500}}
	slot := func(confirmed pglogrepl.LSN) Slot {
		return Slot{Name: "s", Exists: true, Logical: true, Plugin: outputPlugin, Database: "d", ConfirmedFlush: confirmed}
	}
	row := func(timeline uint32) *registryRow {
		return &registryRow{SystemID: "1", Timeline: timeline, Slot: "s", Publication: "p", Created: 0x100, Confirmed: 0x400}
	}
	temporary := slot(0x200)
	temporary.Temporary = true
	fresh := &registryRow{SystemID: "2"} // as a new epoch leaves it
	for name, test := range map[string]struct {
		row  *registryRow
		slot Slot
		want action
		err  string
	}{
		"crash moved the slot back":         {row: row(2), slot: slot(0x200), want: actionResume},
		"promoted, slot ahead of the row":   {row: row(1), slot: slot(0x500), want: actionResume},
		"promoted, slot made after":         {row: row(1), slot: slot(0x501), err: "created again"},
		"same timeline, slot ahead":         {row: row(2), slot: slot(0x401), err: "created again"},
		"another instance creates the slot": {slot: slot(0), err: "in use"},
		"new epoch, slot kept":              {row: fresh, slot: slot(0x900), want: actionAdopt},
		"new epoch, slot missing":           {row: fresh, want: actionCreate},
		"new epoch, slot lost":              {row: fresh, slot: lost(slot(0x900)), err: "was invalidated"},
		"restored elsewhere, no slot":       {row: &registryRow{SystemID: "2", Created: 1}, err: "system identifier"},
		"temporary":                         {slot: temporary, err: "temporary"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts{row: test.row, slot: test.slot}
			f.database, f.timelines, f.now = "d", &Timelines{current: 2, past: past}, 0x1000
			f.server = &Server{SystemID: "1", Timeline: 2, cfg: &Config{Stream: "orders", Slot: "s", Publication: "p"}}
			got, err := f.decide()
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func lost(s Slot) Slot {
	s.WALStatus, s.InvalidationReason = "lost", "idle_timeout"
	return s
}

func slotOf(t *testing.T, s *Server) Slot {
	t.Helper()
	slot, err := s.Slot(t.Context())
	require.NoError(t, err)
	return slot
}

func advance(t *testing.T, db *testenv.Database, slot string) {
	t.Helper()
	db.Exec(t, "SELECT pg_replication_slot_advance('"+slot+"', pg_current_wal_lsn())")
}
