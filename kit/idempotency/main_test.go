package idempotency_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/idempotency"
	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(childDSN); dsn != "" {
		os.Exit(beChild(dsn))
	}
	testenv.VerifyMain(m)
}

// newDatabase has the package's table and one for effects, which nothing but the package keeps unique.
func newDatabase(t *testing.T, major int) *testenv.Database {
	t.Helper()
	db := testenv.Postgres(t, major).Database(t)
	migration, err := os.ReadFile("../../migrations/kit/00002_idempotency.sql")
	require.NoError(t, err)
	db.Exec(t, string(migration))
	db.Exec(t, string(migration)) // it can be run again
	db.Exec(t, `CREATE TABLE effects (key text NOT NULL, worker text NOT NULL)`)
	return db
}

func request(key string) idempotency.Request {
	return idempotency.Request{Scope: "shop", Key: key, Hash: idempotency.HashRequest("text/plain", []byte(key))}
}

// effect is work that leaves one row and answers with what only this run can know.
func effect(key, worker string) idempotency.Work {
	return func(ctx context.Context, tx pgx.Tx) (idempotency.Response, error) {
		var xid string
		err := tx.QueryRow(ctx, `INSERT INTO effects VALUES ($1, $2) RETURNING pg_current_xact_id()::text`, key, worker).
			Scan(&xid)
		return idempotency.Response{
			Status: 201, Header: map[string][]string{"X-Worker": {worker}}, Body: []byte(xid),
		}, err
	}
}

func effects(t *testing.T, pool *pgxpool.Pool, key string) (count int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM effects WHERE key = $1`, key).Scan(&count))
	return count
}

// age moves a key's times into the past.
func age(t *testing.T, db *testenv.Database, key string, by time.Duration) {
	t.Helper()
	db.Exec(t, `UPDATE walrelay_kit.idempotency_keys SET created_at = created_at - $2::interval,
		completed_at = completed_at - $2::interval, lease_expires_at = lease_expires_at - $2::interval WHERE key = $1`,
		key, by)
}
