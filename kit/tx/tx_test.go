package tx_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/tx"
	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

// both runs a test in a transaction of pgx and in one of database/sql.
func both(t *testing.T, test func(t *testing.T, q tx.Tx)) {
	t.Helper()
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		q, err := testenv.Postgres(t, 18).Database(t).Conn.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = q.Rollback(context.Background()) }()
		test(t, q)
	})
	t.Run("database/sql", func(t *testing.T) {
		t.Parallel()
		test(t, tx.Std(begin(t, t.Context())))
	})
}

func begin(t *testing.T, ctx context.Context) *sql.Tx {
	t.Helper()
	q, err := testenv.Postgres(t, 18).Database(t).Standard(t).BeginTx(ctx, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = q.Rollback() })
	return q
}

const every = `SELECT 1::int2 AS a, -9007199254740993::int8 AS b, 0.1::float4 AS c, true AS d, 'x'::text AS e,
	'\x00ff'::bytea AS f, '{"n": 9007199254740993}'::jsonb AS g, '0190a000-0000-7000-8000-000000000001'::uuid AS h,
	'{1,NULL,3}'::int4[] AS i, '2026-01-31 09:30:00.123456+02'::timestamptz AS j, '2026-01-31'::date AS k,
	12345678901234567890.5::numeric AS l, '0/16B3748'::pg_lsn AS m, NULL::text AS n, 'infinity'::timestamptz AS o,
	'1 day'::interval AS p, 4000000000::oid AS q, '{a,"b c"}'::text[] AS r, '12:30'::time AS s, 'r'::"char" AS t`

// What one transaction gives, gives the other.
func TestStd_ValuesAreThoseOfPgx(t *testing.T) {
	t.Parallel()
	plain, err := testenv.Postgres(t, 18).Database(t).Conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = plain.Rollback(context.Background()) }()
	var want, got []map[string]any
	for q, into := range map[tx.Tx]*[]map[string]any{plain: &want, tx.Std(begin(t, t.Context())): &got} {
		rows, err := q.Query(t.Context(), every+` UNION ALL SELECT NULL`+
			strings.Repeat(`, NULL`, 19))
		require.NoError(t, err)
		*into, err = pgx.CollectRows(rows, pgx.RowToMap)
		require.NoError(t, err)
	}
	require.Len(t, want, 2)
	require.Len(t, want[0], 20)
	require.Equal(t, want, got)
}

func TestTx_Scan(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, q tx.Tx) {
		var (
			numbers []*int32
			texts   []string
			object  map[string]json.Number
			raw     json.RawMessage
			id      [16]byte
			at      time.Time
			none    *string
			short   int16
			bytes   []byte
		)
		require.NoError(t, q.QueryRow(t.Context(),
			`SELECT $1::int4[], $2::text[], $3::jsonb, $3::jsonb, $4::uuid, $5::timestamptz, NULL::text, $6::int2, $7::bytea`,
			[]any{1, nil, 3}, []string{"a", `b "c"`}, map[string]any{"n": 12}, "0190a000-0000-7000-8000-000000000001",
			time.UnixMicro(1_700_000_000_123_456), 7, []byte{0, 255}).
			Scan(&numbers, &texts, &object, &raw, &id, &at, &none, &short, &bytes))
		require.Len(t, numbers, 3)
		require.Nil(t, numbers[1])
		require.Equal(t, []string{"a", `b "c"`}, texts)
		require.Equal(t, json.Number("12"), object["n"])
		require.JSONEq(t, `{"n":12}`, string(raw))
		require.Equal(t, byte(0x90), id[1])
		require.Equal(t, int64(1_700_000_000_123_456), at.UnixMicro())
		require.Nil(t, none)
		require.Equal(t, int16(7), short)
		require.Equal(t, []byte{0, 255}, bytes)
	})
}

func TestTx_NamedArgumentsAndStructs(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, q tx.Tx) {
		rows, err := q.Query(t.Context(), `SELECT @id::bigint AS id, @name AS name`, pgx.NamedArgs{"id": 5, "name": "x"})
		require.NoError(t, err)
		type row struct {
			ID   int64
			Name string
		}
		got, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[row])
		require.NoError(t, err)
		require.Equal(t, row{5, "x"}, got)
	})
}

func TestTx_CountsRows(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, q tx.Tx) {
		_, err := q.Exec(t.Context(), `CREATE TABLE thing (id int PRIMARY KEY)`)
		require.NoError(t, err)
		tag, err := q.Exec(t.Context(), `INSERT INTO thing SELECT generate_series(1, $1::int)`, 12)
		require.NoError(t, err)
		require.Equal(t, int64(12), tag.RowsAffected())
		rows, err := q.Query(t.Context(), `DELETE FROM thing WHERE id > 9 RETURNING id`)
		require.NoError(t, err)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int])
		require.NoError(t, err)
		require.Equal(t, []int{10, 11, 12}, ids)
		require.Equal(t, int64(3), rows.CommandTag().RowsAffected())
	})
}

func TestTx_Errors(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, q tx.Tx) {
		err := q.QueryRow(t.Context(), `SELECT 1 WHERE false`).Scan(new(int))
		require.ErrorIs(t, err, pgx.ErrNoRows)
		err = q.QueryRow(t.Context(), `SELECT 1, 2`).Scan(new(int))
		require.Error(t, err)
		err = q.QueryRow(t.Context(), `SELECT 'x'::text AS word`).Scan(new(int))
		require.Error(t, err)

		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = q.Query(canceled, `SELECT 1`)
		require.ErrorIs(t, err, context.Canceled)
	})
	both(t, func(t *testing.T, q tx.Tx) {
		rows, _ := q.Query(t.Context(), `SELECT 1 / (2 - n) FROM generate_series(1, 9) n`)
		_, err := pgx.CollectRows(rows, pgx.RowTo[int])
		var fault *pgconn.PgError
		require.ErrorAs(t, err, &fault)
		require.Equal(t, "22012", fault.Code)
		_, err = q.Exec(t.Context(), `SELECT 1`)
		require.ErrorAs(t, err, &fault)
		require.Equal(t, "25P02", fault.Code, "the transaction is lost, as in any other")
	})
}

// A transaction that ended is closed: no statement reaches the connection, which is somebody else's now.
func TestStd_Ended(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := begin(t, ctx)
	q := tx.Std(ended)
	require.NoError(t, ended.Commit())
	_, err := q.Exec(t.Context(), `SELECT 1`)
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	_, err = q.Query(t.Context(), `SELECT 1`)
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	require.ErrorIs(t, q.QueryRow(t.Context(), `SELECT 1`).Scan(new(int)), pgx.ErrTxClosed)
}

// Rows that are given up leave the transaction usable.
func TestTx_RowsClosedEarly(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, q tx.Tx) {
		rows, err := q.Query(t.Context(), `SELECT generate_series(1, 100)`)
		require.NoError(t, err)
		require.True(t, rows.Next())
		rows.Close()
		require.False(t, rows.Next())
		require.NoError(t, rows.Err())
		var one int
		require.NoError(t, q.QueryRow(t.Context(), `SELECT 1`).Scan(&one))
	})
}

// A pool is a handle too; its one connection comes back after each statement, whatever became of it.
func TestStd_Pool(t *testing.T) {
	t.Parallel()
	db := testenv.Postgres(t, 18).Database(t).Standard(t)
	db.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	q := tx.Std(db)
	for range 3 {
		require.NoError(t, q.QueryRow(ctx, `SELECT generate_series(1, 9)`).Scan(new(int)))
		require.Error(t, q.QueryRow(ctx, `SELECT 'x'`).Scan(new(int)))
		require.Error(t, q.QueryRow(ctx, `SELECT 1 / 0`).Scan(new(int)))
		require.ErrorIs(t, q.QueryRow(ctx, `SELECT 1 WHERE false`).Scan(new(int)), pgx.ErrNoRows)
		rows, err := q.Query(ctx, `SELECT 'x'`)
		require.NoError(t, err)
		_, err = pgx.CollectRows(rows, pgx.RowTo[int])
		require.Error(t, err)
	}
}

// A value beyond database/sql's types keeps its own in another mode of pgx too.
func TestStd_SimpleProtocol(t *testing.T) {
	t.Parallel()
	db := testenv.Postgres(t, 18).Database(t).Standard(t, func(c *pgx.ConnConfig) {
		c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	})
	var (
		numbers []int64
		at      time.Time
		bytes   []byte
	)
	require.NoError(t, tx.Std(db).QueryRow(t.Context(), `SELECT $1::bigint[], $2::timestamptz, $3::bytea`,
		[]int64{1, 2}, time.UnixMicro(1_700_000_000_123_456), []byte{0, 255}).Scan(&numbers, &at, &bytes))
	require.Equal(t, []int64{1, 2}, numbers)
	require.Equal(t, int64(1_700_000_000_123_456), at.UnixMicro())
	require.Equal(t, []byte{0, 255}, bytes)
}
