package kit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/migrations"
	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

// database has the tables of the relay and of kit.
func database(t testing.TB, server *testenv.Server) *testenv.Database {
	t.Helper()
	db := server.Database(t)
	handle := db.Standard(t)
	_, err := migrations.Up(t.Context(), handle)
	require.NoError(t, err)
	_, err = migrations.UpKit(t.Context(), handle)
	require.NoError(t, err)
	return db
}
