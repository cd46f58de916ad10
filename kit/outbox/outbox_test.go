package outbox_test

import (
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/outbox"
	"github.com/walrelay/walrelay/kit/tx"
	"github.com/walrelay/walrelay/migrations"
	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

func database(t *testing.T, major int) *testenv.Database {
	t.Helper()
	db := testenv.Postgres(t, major).Database(t)
	_, err := migrations.Up(t.Context(), db.Standard(t))
	require.NoError(t, err)
	return db
}

func count(t *testing.T, db *testenv.Database) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(t, "SELECT count(*) FROM outbox").Scan(&n))
	return n
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
	require.Zero(t, count(t, db))
}

// Neither when the session dies before its commit.
func TestWrite_Killed(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	q, err := db.Conn.Begin(t.Context())
	require.NoError(t, err)
	event := outbox.Event{ID: outbox.NewID(), AggregateType: "order", AggregateID: "1", Type: "paid"}
	_, err = outbox.Write(t.Context(), q, event)
	require.NoError(t, err)
	var pid int
	require.NoError(t, q.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
	db.Exec(t, `SELECT pg_terminate_backend(`+strconv.Itoa(pid)+`)`)
	require.Error(t, q.Commit(t.Context()))
	require.Zero(t, count(t, db))

	_, err = outbox.Write(t.Context(), db.Conn, event) // so that the step can be repeated under its id
	require.NoError(t, err)
	require.Equal(t, 1, count(t, db))
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
	require.ErrorIs(t, err, outbox.ErrDuplicate)
	require.ErrorContains(t, err, "outbox_pkey")
	var fault *pgconn.PgError
	require.ErrorAs(t, err, &fault)

	event.ID = ""
	_, err = outbox.Write(t.Context(), db.Conn, event, outbox.Event{
		ID: "no uuid", AggregateType: "order", AggregateID: "1", Type: "paid",
	})
	require.Error(t, err)
	require.NotErrorIs(t, err, outbox.ErrDuplicate)
	require.Equal(t, 1, count(t, db), "all or none")
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

func TestWrite_WhatTheRelayCouldNotDeliver(t *testing.T) {
	t.Parallel()
	good := outbox.Event{AggregateType: "order", AggregateID: "1", Type: "paid"}
	for _, name := range []string{"id", "eventType", "walrelay-position"} {
		event := good
		event.Headers = map[string]string{name: "x"}
		_, err := outbox.Write(t.Context(), nil, event)
		require.ErrorIs(t, err, outbox.ErrReservedHeader)
		_, err = outbox.Emit(t.Context(), nil, "p", event)
		require.ErrorIs(t, err, outbox.ErrReservedHeader)
	}
	for _, spoil := range []func(*outbox.Event){
		func(e *outbox.Event) { e.ID = "\xff" },
		func(e *outbox.Event) { e.AggregateID = "\xff" },
		func(e *outbox.Event) { e.Payload = json.RawMessage("\"\xff\"") },
		func(e *outbox.Event) { e.Headers = map[string]string{"a": "\xff"} },
	} {
		event := good
		spoil(&event)
		_, err := outbox.Write(t.Context(), nil, event)
		require.ErrorIs(t, err, outbox.ErrEncoding)
	}
	good.Payload = json.RawMessage(`{}{}`)
	_, err := outbox.Emit(t.Context(), nil, "p", good)
	require.ErrorIs(t, err, outbox.ErrEncoding)
}

// Rows are written in the order given, whatever their ids, and in one statement.
func TestWrite_BatchKeepsOrder(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	const ns outbox.Namespace = "test"
	var events []outbox.Event
	var want []string
	for i := range 2000 {
		e := outbox.Event{
			ID: ns.Key(strconv.Itoa(i)), AggregateType: "a", AggregateID: strconv.Itoa(i % 3), Type: "t",
			Payload: json.RawMessage(strconv.Itoa(i)),
		}
		events, want = append(events, e), append(want, e.ID)
	}
	ids, err := outbox.Write(t.Context(), db.Conn, events...)
	require.NoError(t, err)
	require.Equal(t, want, ids)
	var written []string
	require.NoError(t, db.QueryRow(t, `SELECT array_agg(id::text ORDER BY ctid) FROM outbox`).Scan(&written))
	require.Equal(t, want, written)
	var transactions int
	require.NoError(t, db.QueryRow(t, `SELECT count(DISTINCT xmin::text || cmin::text) FROM outbox`).Scan(&transactions))
	require.Equal(t, 1, transactions)

	ids, err = outbox.Write(t.Context(), db.Conn)
	require.NoError(t, err)
	require.Empty(t, ids)
}

func TestWrite_IgnoreDuplicates(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		db := database(t, major)
		const ns outbox.Namespace = "test"
		event := func(key string) outbox.Event {
			return outbox.Event{ID: ns.Key(key), AggregateType: "a", AggregateID: "1", Type: "t"}
		}
		o := outbox.Outbox{IgnoreDuplicates: true}
		ids, err := o.Write(t.Context(), db.Conn, event("a"), event("b"), event("a"))
		require.NoError(t, err)
		require.Equal(t, []string{ns.Key("a"), ns.Key("b")}, ids)
		ids, err = o.Write(t.Context(), db.Conn, event("b"), event("c"))
		require.NoError(t, err)
		require.Equal(t, []string{ns.Key("c")}, ids)
		require.Equal(t, 3, count(t, db))
	})
}

// Of many at once one writes; the others learn it when that one has committed.
func TestWrite_DuplicatesAtOnce(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	event := outbox.Event{ID: outbox.Namespace("test").Key("x"), AggregateType: "a", AggregateID: "1", Type: "t"}
	var (
		wg               sync.WaitGroup
		written, refused atomic.Int32
	)
	for range 10 {
		wg.Go(func() {
			err := pgx.BeginFunc(t.Context(), db.Conn, func(q pgx.Tx) error {
				_, err := outbox.Write(t.Context(), q, event)
				return err
			})
			switch {
			case err == nil:
				written.Add(1)
			case errors.Is(err, outbox.ErrDuplicate):
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	require.Equal(t, []int32{1, 9}, []int32{written.Load(), refused.Load()})
	require.Equal(t, 1, count(t, db))
}

// Any name, partitions, and types next to those of the migration.
func TestWrite_AnyTable(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	for name, table := range map[string]string{
		"partitioned": `(id uuid, aggregatetype text, aggregateid text, type text, payload jsonb, headers jsonb,
			day int DEFAULT 1, PRIMARY KEY (id, day)) PARTITION BY LIST (day)`,
		`tex"t`: `(id text PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text, headers json)`,
	} {
		identifier := pgx.Identifier{"public", name}
		db.Exec(t, `CREATE TABLE `+identifier.Sanitize()+table)
		if name == "partitioned" {
			db.Exec(t, `CREATE TABLE one PARTITION OF partitioned FOR VALUES IN (1)`)
		}
		event := outbox.Event{
			ID: outbox.Namespace("test").Key("x"), AggregateType: "a", AggregateID: "1", Type: "t",
			Payload: json.RawMessage(`{"a":1}`), Headers: map[string]string{"h": "v"},
		}
		o := outbox.Outbox{Table: identifier}
		_, err := o.Write(t.Context(), db.Conn, event)
		require.NoError(t, err)
		_, err = o.Write(t.Context(), db.Conn, event)
		require.ErrorIs(t, err, outbox.ErrDuplicate)
		o.IgnoreDuplicates = true
		ids, err := o.Write(t.Context(), db.Conn, event)
		require.NoError(t, err)
		require.Empty(t, ids)
		var row string
		require.NoError(t, db.QueryRow(t, `SELECT concat_ws(' ', aggregatetype, payload, headers) FROM `+
			identifier.Sanitize()).Scan(&row))
		require.Equal(t, `a {"a": 1} {"h": "v"}`, row)
	}
}

// In each of pgx's modes, as poolers allow some alone.
func TestWrite_DatabaseSQL(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			db := database(t, 18)
			handle := db.Standard(t, func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = mode })
			event := outbox.Event{
				ID: outbox.Namespace("test").Key("x"), AggregateType: "a", AggregateID: "1", Type: "t",
				Payload: json.RawMessage(`{}`), Headers: map[string]string{"h": "v"},
			}

			q, err := handle.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			other := event
			other.ID = ""
			ids, err := outbox.Write(t.Context(), tx.Std(q), event, other)
			require.NoError(t, err)
			require.Len(t, ids, 2)
			require.Equal(t, event.ID, ids[0])
			_, err = outbox.Emit(t.Context(), tx.Std(q), "p", event)
			require.NoError(t, err)
			require.Zero(t, count(t, db))
			require.NoError(t, q.Commit())
			require.Equal(t, 2, count(t, db))

			q, err = handle.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = outbox.Write(t.Context(), tx.Std(q), event)
			require.ErrorIs(t, err, outbox.ErrDuplicate)
			require.NoError(t, q.Rollback())
			deleted, err := outbox.Outbox{}.Purge(t.Context(), tx.Std(handle), 0, 10)
			require.NoError(t, err)
			require.Equal(t, int64(2), deleted)
		})
	}
}

func TestPurge(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	event := outbox.Event{AggregateType: "a", AggregateID: "1", Type: "t"}
	_, err := outbox.Write(t.Context(), db.Conn, event, event, event, event)
	require.NoError(t, err)
	db.Exec(t, `UPDATE outbox SET created_at = now() - interval '25 h' WHERE id IN (SELECT id FROM outbox LIMIT 3)`)
	for _, want := range []int64{2, 1, 0} {
		deleted, err := outbox.Outbox{}.Purge(t.Context(), db.Conn, 24*time.Hour, 2)
		require.NoError(t, err)
		require.Equal(t, want, deleted)
	}
	require.Equal(t, 1, count(t, db))
	_, err = outbox.Outbox{}.Purge(t.Context(), db.Conn, -1, 2)
	require.Error(t, err)
	_, err = outbox.Outbox{}.Purge(t.Context(), db.Conn, 1, 0)
	require.Error(t, err)
}

// What a trigger of the table violates elsewhere does not say that the event was recorded.
func TestWrite_DuplicateOfATrigger(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	db.Exec(t, `CREATE TABLE audit (kind text UNIQUE);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN INSERT INTO audit VALUES (NEW.type); RETURN NEW; END $$;
		CREATE TRIGGER note BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION note()`)
	event := outbox.Event{AggregateType: "order", AggregateID: "1", Type: "paid"}
	_, err := outbox.Write(t.Context(), db.Conn, event)
	require.NoError(t, err)
	_, err = outbox.Write(t.Context(), db.Conn, event)
	require.ErrorContains(t, err, "audit_kind_key")
	require.NotErrorIs(t, err, outbox.ErrDuplicate)
}
