package cdc

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/testenv"
)

// refusing returns a stream that records messages outside of transactions.
func refusing(t *testing.T) (*testenv.Database, *Config) {
	t.Helper()
	t.Parallel()
	db, cfg := newStream(t, 18)
	cfg.Messages = []*decoder.Mapping{decoder.MessageMapping("orders", nil)}
	cfg.RefuseStray = true
	return db, cfg
}

// A message ends where the commit record behind it begins: what is recorded of the one must not hide what is
// recorded of that transaction's event.
func TestStray_BesideAnEventThatIsRecorded(t *testing.T) {
	db, cfg := refusing(t)
	sink := &scripted{publish: func(run checkpoint.Run, seq uint64, ev *decoder.Event) {
		run.Mailbox.PutPoison(checkpoint.Poison{
			Seq: seq, Position: ev.Position, EventID: string(ev.ID), Table: ev.Mapping.Name(), Reason: "test",
			Action: checkpoint.Skipped,
		})
	}}
	r := start(t, db, cfg, sink)
	r.state(StateStreaming)
	db.Exec(t, `BEGIN; INSERT INTO events VALUES (1, 'a', 'k', 'p'); SELECT pg_logical_emit_message(false, 'orders', '{}');
		COMMIT`)
	end := r.end("1")
	r.until(func() bool { slot, _ := r.confirmed(); return slot >= end })
	letters, err := dial(t, cfg).Registry().Letters(t.Context(), true)
	require.NoError(t, err)
	require.Len(t, letters, 2)
	require.Equal(t, letters[0].Position.LSN, letters[1].Position.LSN)
	require.Equal(t, []string{"1", ""}, []string{letters[0].EventID, letters[1].EventID})
	require.Contains(t, letters[1].Reason, "is not transactional")
	r.stopped()
}

// The server is kept informed while the registry is locked, or it would end the session.
func TestStray_RegistryIsLocked(t *testing.T) {
	db, cfg := refusing(t)
	r := start(t, db, cfg, &scripted{})
	r.state(StateStreaming)
	unlock := lock(t, db, "walrelay.dead_letters")
	db.Exec(t, "SELECT pg_logical_emit_message(false, 'orders', '{}'), pg_logical_emit_message(true, 'other', 'flushes')")
	awaitLock(t, db)
	r.rounds()
	unlock()
	insert(t, db, 1)
	r.published("1")
	require.Zero(t, r.stream.Status().Reconnects)
	r.stopped()
}

// lock takes a table from everybody until unlock is called.
func lock(t *testing.T, db *testenv.Database, table string) (unlock func()) {
	t.Helper()
	tx, err := db.Conn.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "LOCK TABLE "+table)
	require.NoError(t, err)
	return func() {
		t.Helper()
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

// awaitLock waits until a session of the database waits for a lock.
func awaitLock(t *testing.T, db *testenv.Database) {
	t.Helper()
	require.Eventually(t, func() bool {
		var waits bool
		require.NoError(t, db.QueryRow(t, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock')`).Scan(&waits))
		return waits
	}, time.Minute, 5*time.Millisecond)
}
