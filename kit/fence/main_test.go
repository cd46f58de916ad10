package fence_test

import (
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

// prepare makes a database with the tables of this package.
func prepare(t *testing.T, server *testenv.Server) *testenv.Database {
	t.Helper()
	db := server.Database(t)
	migrate(t, db)
	migrate(t, db) // may run again
	return db
}

func migrate(t *testing.T, db *testenv.Database) {
	t.Helper()
	text, err := os.ReadFile("../../migrations/kit/00003_fence.sql")
	require.NoError(t, err)
	up, _, _ := strings.Cut(string(text), "-- +goose Down")
	_, err = db.Conn.Exec(t.Context(), up, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
}

// expire lets the time of a lease pass at once.
func expire(t *testing.T, db *testenv.Database, resource string) {
	t.Helper()
	db.Exec(t, "UPDATE walrelay_kit.fences SET expires_at = clock_timestamp() WHERE resource = $1", resource)
}
