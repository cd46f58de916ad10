package testenv_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

// What DEVELOPERS.md shows.
func TestOneLineEach(t *testing.T) {
	t.Parallel()
	db := testenv.Postgres(t, 18).Database(t)
	slot := db.Slot(t)
	topic := testenv.Kafka(t).Topic(t, 3, nil)
	db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
	require.Empty(t, testenv.Kafka(t).Consume(t, topic).Rest(t, 0))
}

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

// A database goes with whatever still hangs on it, so that tests cannot fill the shared server.
func TestDatabase_DropsWhatHangsOnIt(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		pg := testenv.Postgres(t, major)
		var (
			name string
			conn *pgconn.PgConn
		)
		t.Run("leave", func(t *testing.T) {
			db := pg.Database(t)
			name = db.Name
			slot := db.Slot(t)
			db.Exec(t, "CREATE TABLE outbox (id int); CREATE PUBLICATION p FOR TABLE outbox")
			db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
			db.Exec(t, "BEGIN; INSERT INTO outbox VALUES (1); PREPARE TRANSACTION 'it''s left'")

			var err error
			conn, err = pgconn.Connect(t.Context(), db.ReplicationDSN())
			require.NoError(t, err)
			require.NoError(t, pglogrepl.StartReplication(t.Context(), conn, slot, 0, pglogrepl.StartReplicationOptions{
				PluginArgs: []string{"proto_version '1'", "publication_names 'p'"},
			}))
			var active bool
			require.NoError(t, db.QueryRow(t,
				"SELECT active FROM pg_replication_slots WHERE slot_name = $1", slot).Scan(&active))
			require.True(t, active)
		})
		var left int
		pg.QueryRow(t, `SELECT (SELECT count(*) FROM pg_database WHERE datname = $1) +
			(SELECT count(*) FROM pg_replication_slots WHERE database = $1)`, []any{name}, &left)
		require.Zero(t, left)
		_ = conn.Close(t.Context())
	})
}
