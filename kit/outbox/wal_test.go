package outbox_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/outbox"
	"github.com/walrelay/walrelay/kit/tx"
	"github.com/walrelay/walrelay/migrations"
	"github.com/walrelay/walrelay/testenv"
)

// What an event adds to the write-ahead log of a transaction that changes a row of its own, as docs/patterns/outbox.md
// states it: run it with -v. Rows that are deleted later, as by age, are deleted behind a checkpoint, so the log has
// each of their pages whole, and they are vacuumed.
func TestWALOfAnEvent(t *testing.T) {
	if testing.Short() {
		t.Skip("writes thousands of events")
	}
	t.Parallel()
	const events = 3000
	server := testenv.StartPostgres(t, 18, testenv.Config{Settings: map[string]string{
		"fsync": "off", "full_page_writes": "on", "autovacuum": "off", "checkpoint_timeout": "1h", "max_wal_size": "4GB",
	}})
	db := server.Database(t)
	_, err := migrations.Up(t.Context(), db.Standard(t))
	require.NoError(t, err)
	db.Exec(t, "CREATE TABLE business (n int)")
	end := func() (bytes float64) {
		require.NoError(t, db.QueryRow(t, "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&bytes))
		return bytes
	}
	perEvent := func(write func(ctx context.Context, q tx.Tx) error, after ...string) float64 {
		before := end()
		for range events {
			require.NoError(t, pgx.BeginFunc(t.Context(), db.Conn, func(q pgx.Tx) error {
				if _, err := q.Exec(t.Context(), "INSERT INTO business VALUES (1)"); err != nil {
					return err
				}
				return write(t.Context(), q)
			}))
		}
		for _, statement := range after {
			db.Exec(t, statement)
		}
		return (end() - before) / events
	}
	bare := perEvent(func(context.Context, tx.Tx) error { return nil })
	for _, size := range []int{100, 1000} {
		event := outbox.Event{
			AggregateType: "order", AggregateID: "4711", Type: "order_paid",
			Payload: json.RawMessage(`{"note":"` + strings.Repeat("x", size-11) + `"}`),
		}
		row := func(ctx context.Context, q tx.Tx) error { _, err := outbox.Write(ctx, q, event); return err }
		emit := func(binary bool) func(context.Context, tx.Tx) error {
			return func(ctx context.Context, q tx.Tx) error {
				_, err := outbox.Outbox{Binary: binary}.Emit(ctx, q, "shop", event)
				return err
			}
		}
		insert := perEvent(row) - bare
		db.Exec(t, "TRUNCATE outbox")
		atOnce := perEvent(row, "DELETE FROM outbox") - bare
		db.Exec(t, "TRUNCATE outbox")
		later := perEvent(row, "CHECKPOINT", "DELETE FROM outbox", "VACUUM (TRUNCATE false) outbox") - bare
		db.Exec(t, "TRUNCATE outbox")
		text, binary := perEvent(emit(false))-bare, perEvent(emit(true))-bare
		t.Logf("payload of %d bytes: insert %.0f, deleted at once %.0f, deleted later %.0f, message JSON %.0f, binary %.0f",
			size, insert, atOnce, later, text, binary)
		t.Logf("binary through deleted at once %.2f, later %.2f", binary/atOnce, binary/later)
		require.Less(t, binary, text)
		require.Less(t, text, insert)
		require.Less(t, insert, atOnce)
		require.Less(t, atOnce, later)
	}
}
