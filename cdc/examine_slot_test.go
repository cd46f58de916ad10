package cdc

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func TestExamine_UnfitSlot(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		for name, create := range map[string]string{
			"physical":     "pg_create_physical_replication_slot($1)",
			"other plugin": "pg_create_logical_replication_slot($1, 'test_decoding')",
			"two-phase":    "pg_create_logical_replication_slot($1, 'pgoutput', false, true)",
			"adopted":      "pg_create_logical_replication_slot($1, 'pgoutput')",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db, cfg := newStream(t, major)
				db.Exec(t, "SELECT "+create, cfg.Slot)
				f := found(t, examine(t, cfg), "slot")
				require.Equal(t, name == "adopted", f.Level == LevelWarning, "%+v", f)
				drop := "SELECT pg_drop_replication_slot('" + cfg.Slot + "')"
				require.Contains(t, f.Fix, drop)
				db.Exec(t, drop)
				absent(t, examine(t, cfg), "slot")
			})
		}
	})
}

func TestExamine_MovedSlot(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		register(t, cfg)
		db.Exec(t, "INSERT INTO events VALUES (1, 'k')")
		db.Exec(t, "SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())", cfg.Slot)
		f := found(t, examine(t, cfg), "slot")
		require.Equal(t, LevelFault, f.Level)
		require.Contains(t, f.Found, "may be missing")

		db.Exec(t, "SELECT pg_drop_replication_slot($1)", cfg.Slot)
		f = found(t, examine(t, cfg), "slot")
		require.Contains(t, f.Found, "is gone")
		require.Contains(t, f.Fix, "walrelay stream new-epoch orders")
	})
}

func TestExamine_StartCheck(t *testing.T) {
	t.Parallel()
	_, cfg := newStream(t, 18)
	cfg.Check = func(context.Context, *pgx.Conn) error {
		return &FatalError{Object: "table events", Problem: "has no column", Remedy: "add it"}
	}
	f := found(t, examine(t, cfg), "start-check")
	require.Equal(t, LevelFault, f.Level)
	require.Equal(t, "table events: has no column, add it", f.Object+": "+f.Found+", "+f.Fix)
}

func TestExamine_StreamDiffers(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		register(t, cfg)
		cfg.Delivery, cfg.Routing = ExactlyOnce, "r2"
		findings := examine(t, cfg)
		require.Equal(t, LevelWarning, found(t, findings, "stream-delivery").Level)
		require.Contains(t, found(t, findings, "stream-routing").Found, "recorded r1, configured r2")

		db.Exec(t, `INSERT INTO walrelay.dead_letters (stream, position, event_id, table_name, topic, size, reason, action)
			VALUES ('orders', 'p', '1', 'events', 't', 1, 'too large', 'dead-lettered')`)
		db.Exec(t, "INSERT INTO walrelay.releases (stream, position, verdict) VALUES ('orders', $1, 'skip')",
			"00000001-00000001-0000000000000001-00000000")
		findings = examine(t, cfg)
		require.Contains(t, found(t, findings, "dead-letters").Found, "1 events")
		require.Contains(t, found(t, findings, "verdicts").Found, "1 verdicts")

		require.NoError(t, dial(t, cfg).Registry().Pause(t.Context(), "ops", "upgrade"))
		findings = examine(t, cfg)
		require.Equal(t, "walrelay stream resume orders", found(t, findings, "stream-pause").Fix)
		absent(t, findings, "slot")

		cfg.Slot = "another_slot"
		require.Contains(t, found(t, examine(t, cfg), "slot").Found, "was registered with slot")
	})
}

// A slot that comes near its limit, passes it, and is lost.
func TestExamine_SlotRetention(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, 18, testenv.Config{Settings: map[string]string{
		"max_slot_wal_keep_size": "64MB", "min_wal_size": "32MB",
	}})
	db, cfg := streamOn(t, server)
	register(t, cfg)
	absent(t, examine(t, cfg), "slot-retention")
	write := func(segments int) {
		for range segments {
			db.Exec(t, "SELECT pg_logical_emit_message(true, 'x', 'y'), pg_switch_wal()")
		}
	}
	var f Finding
	for range 8 { // each segment has 16 MB
		write(1)
		if findings := examine(t, cfg); strings.Contains(strings.Join(notOK(findings), ","), "slot-retention") {
			f = found(t, findings, "slot-retention")
			break
		}
	}
	require.Contains(t, f.Fix, "ALTER SYSTEM SET max_slot_wal_keep_size")
	carryOut(t, db, f.Fix)
	absent(t, examine(t, cfg), "slot-wal-limit")

	db.Exec(t, "ALTER SYSTEM SET max_slot_wal_keep_size = '16MB'")
	db.Exec(t, "SELECT pg_reload_conf()")
	write(4)
	require.Eventually(t, func() bool { // the checkpointer learns of the setting when it is told to look
		db.Exec(t, "CHECKPOINT")
		return slotOf(t, dial(t, cfg)).Lost()
	}, time.Minute, 10*time.Millisecond)
	f = found(t, examine(t, cfg), "slot")
	require.Contains(t, f.Found, "was invalidated by the server")
	require.Contains(t, f.Fix, "pg_drop_replication_slot")
}

func TestJudgeRetention(t *testing.T) {
	t.Parallel()
	left := func(n int64) *int64 { return &n }
	for name, test := range map[string]struct {
		slot  Slot
		level Level
	}{
		"no limit":     {Slot{WALStatus: "reserved"}, LevelOK},
		"far":          {Slot{WALStatus: "reserved", SafeWALSize: left(1 << 30)}, LevelOK},
		"near":         {Slot{WALStatus: "extended", SafeWALSize: left(20)}, LevelWarning},
		"much":         {Slot{WALStatus: "extended"}, LevelWarning},
		"about to go":  {Slot{WALStatus: "unreserved", SafeWALSize: left(-1)}, LevelFault},
		"limit passed": {Slot{WALStatus: "extended", SafeWALSize: left(0)}, LevelFault},
	} {
		f := judgeRetention(test.slot, 100, "1GB", "")
		require.Equal(t, test.level, f.Level, name)
	}
	require.Equal(t, LevelOK, judgeCatalogXmin(Slot{CatalogXminAge: 100}, 200).Level)
	require.Equal(t, LevelWarning, judgeCatalogXmin(Slot{CatalogXminAge: 101}, 200).Level)
}
