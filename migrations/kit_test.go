package migrations_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/migrations"
	"github.com/walrelay/walrelay/testenv"
)

func allOfKit(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("kit/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".sql"))
	}
	return names
}

func printedKit(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, migrations.PrintKit(&b))
	return b.String()
}

func TestUpKit_Twice(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		t.Parallel()
		database := testenv.Postgres(t, major).Database(t)
		db := open(t, database.DSN)
		states, err := migrations.StatusKit(t.Context(), db)
		require.NoError(t, err)
		require.Len(t, states, len(allOfKit(t)))
		for _, s := range states {
			require.True(t, s.Pending(), s.Name)
		}

		applied, err := migrations.UpKit(t.Context(), db)
		require.NoError(t, err)
		require.Equal(t, allOfKit(t), applied)
		before := catalog(t, database)
		applied, err = migrations.UpKit(t.Context(), db)
		require.NoError(t, err)
		require.Empty(t, applied)

		states, err = migrations.StatusKit(t.Context(), db)
		require.NoError(t, err)
		for _, s := range states {
			require.False(t, s.Pending(), s.Name)
		}
		database.Exec(t, printedKit(t))
		require.Equal(t, before, catalog(t, database))
	})
}

// Either set is there without the other: a consumer's database has no outbox.
func TestUpKit_LeavesTheRelaysTablesAlone(t *testing.T) {
	t.Parallel()
	database := testenv.Postgres(t, 18).Database(t)
	db := open(t, database.DSN)
	_, err := migrations.UpKit(t.Context(), db)
	require.NoError(t, err)
	var relays int
	require.NoError(t, database.QueryRow(t, `SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
		WHERE nspname IN ('public', 'walrelay')`).Scan(&relays))
	require.Zero(t, relays)

	states, err := migrations.Status(t.Context(), db)
	require.NoError(t, err)
	for _, s := range states {
		require.True(t, s.Pending(), s.Name)
	}
	applied, err := migrations.Up(t.Context(), db)
	require.NoError(t, err)
	require.Equal(t, all(), applied)
}

func TestPrintKit_ThenUpIsNoOp(t *testing.T) {
	t.Parallel()
	database := testenv.Postgres(t, 18).Database(t)
	database.Exec(t, printedKit(t))
	applied, err := migrations.UpKit(t.Context(), open(t, database.DSN))
	require.NoError(t, err)
	require.Empty(t, applied)
}
