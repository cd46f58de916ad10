package kit_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/migrations"
	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

// database has the tables of the relay and of kit.
func database(t testing.TB, server *testenv.Server) *testenv.Database {
	t.Helper()
	db := server.Database(t)
	config, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	handle := stdlib.OpenDB(*config)
	defer func() { _ = handle.Close() }()
	_, err = migrations.Up(t.Context(), handle)
	require.NoError(t, err)
	_, err = migrations.UpKit(t.Context(), handle)
	require.NoError(t, err)
	return db
}
