package outbox_test

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/outbox"
	"github.com/walrelay/walrelay/migrations"
	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func database(t *testing.T, major int) *testenv.Database {
	t.Helper()
	db := testenv.Postgres(t, major).Database(t)
	config, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	handle := stdlib.OpenDB(*config)
	defer func() { _ = handle.Close() }()
	_, err = migrations.Up(t.Context(), handle)
	require.NoError(t, err)
	return db
}

func TestWrite(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		db := database(t, major)
		tx, err := db.Conn.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(t.Context()) }()
		ids, err := outbox.Write(t.Context(), tx,
			outbox.Event{
				AggregateType: "order", AggregateID: "4711", Type: "paid",
				Payload: json.RawMessage(`{"n": 9007199254740993}`), Headers: map[string]string{"tenant": "a"},
			},
			outbox.Event{AggregateType: "order", AggregateID: "4711", Type: "gone"})
		require.NoError(t, err)
		require.Len(t, ids, 2)
		for _, id := range ids {
			require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, id)
		}
		require.NotEqual(t, ids[0], ids[1])
		require.NoError(t, tx.Commit(t.Context()))

		var payload, headers, kind string
		var tombstone bool
		require.NoError(t, db.QueryRow(t, `SELECT payload::text, headers::text, type FROM outbox WHERE id = $1::text::uuid`,
			ids[0]).Scan(&payload, &headers, &kind))
		require.Equal(t, []string{`{"n": 9007199254740993}`, `{"tenant": "a"}`, "paid"}, []string{payload, headers, kind})
		require.NoError(t, db.QueryRow(t, `SELECT payload IS NULL AND headers IS NULL FROM outbox WHERE id = $1::text::uuid`,
			ids[1]).Scan(&tombstone))
		require.True(t, tombstone)
	})
}

// The event shares the fate of the transaction.
func TestWrite_RolledBack(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	tx, err := db.Conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = outbox.Write(t.Context(), tx, outbox.Event{AggregateType: "order", AggregateID: "1", Type: "paid"})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	var count int
	require.NoError(t, db.QueryRow(t, "SELECT count(*) FROM outbox").Scan(&count))
	require.Zero(t, count)
}

// An id of one's own makes a second write of the same event an error.
func TestWrite_SameIDTwice(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	event := outbox.Event{
		ID: "0190a000-0000-7000-8000-000000000001", AggregateType: "order", AggregateID: "1", Type: "paid",
	}
	_, err := outbox.Write(t.Context(), db.Conn, event)
	require.NoError(t, err)
	_, err = outbox.Write(t.Context(), db.Conn, event)
	require.ErrorContains(t, err, "outbox_pkey")
}

func TestWrite_Incomplete(t *testing.T) {
	t.Parallel()
	for _, event := range []outbox.Event{
		{AggregateID: "1", Type: "paid"}, {AggregateType: "order", Type: "paid"}, {AggregateType: "order", AggregateID: "1"},
	} {
		_, err := outbox.Write(t.Context(), nil, event)
		require.ErrorIs(t, err, outbox.ErrIncomplete)
	}
}
