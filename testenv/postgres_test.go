package testenv_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

func TestPostgres_EveryMajor(t *testing.T) {
	t.Parallel()
	for _, major := range []int{14, 15, 16, 17, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			db := testenv.Postgres(t, major).Database(t)

			var version, lsn string
			require.NoError(t, db.QueryRow(t, "SELECT version()").Scan(&version))
			require.Contains(t, version, fmt.Sprintf("PostgreSQL %d.", major))
			require.Equal(t, major, db.Server().Version/10000)

			db.Exec(t, "CREATE TABLE outbox (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE outbox")
			require.NoError(t, db.QueryRow(t,
				"SELECT lsn::text FROM pg_create_logical_replication_slot($1, 'pgoutput')", db.Slot(t)).Scan(&lsn))
			require.NotEmpty(t, lsn)
		})
	}
}
