package replay

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/migrations"
	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

// Of instances that start together, one that comes late does not plan again what another is through with. A slot
// that is created anew has its own backfill.
func TestLedger_Plan(t *testing.T) {
	t.Parallel()
	db := testenv.Postgres(t, 18).Database(t)
	standard, err := sql.Open("pgx", db.DSN)
	require.NoError(t, err)
	_, err = migrations.Up(t.Context(), standard)
	require.NoError(t, err)
	require.NoError(t, standard.Close())

	ledger, err := OpenLedger(t.Context(), &cdc.Config{
		ConnString: cdc.Secret(db.DSN), Stream: "orders", ConnectTimeout: 10 * time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ledger.Close(context.Background())) })
	slot := db.Slot(t)
	plan := func() *Record {
		require.NoError(t, ledger.Plan(t.Context(), &Record{Name: "backfill", Selection: Selection{All: true}}, slot))
		found, err := ledger.Find(t.Context(), "backfill")
		require.NoError(t, err)
		return found
	}
	record := plan()
	require.Equal(t, Planned, record.State)
	db.Exec(t, "SELECT pg_create_logical_replication_slot('"+slot+"', 'pgoutput')")
	record.State, record.AtTable, record.AtValue, record.Published = Done, "events", "7", 7
	require.NoError(t, ledger.Reach(t.Context(), record))
	done, err := ledger.Find(t.Context(), "backfill")
	require.NoError(t, err)
	require.Equal(t, done, plan())

	db.Exec(t, "SELECT pg_drop_replication_slot('"+slot+"')")
	again := plan()
	require.Equal(t, Planned, again.State)
	require.Empty(t, again.AtValue)
	require.Zero(t, again.Published)
	require.True(t, again.Started.After(done.Started))

	err = ledger.Begin(t.Context(), &Record{Name: "backfill"})
	require.ErrorContains(t, err, "was begun before")
}
