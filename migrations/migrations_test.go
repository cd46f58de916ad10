package migrations_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/migrations"
	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func printed(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, migrations.Print(&b))
	return b.String()
}

func all() []string {
	return []string{
		"00001_outbox", "00002_streams", "00003_state_epoch", "00004_pause", "00005_replays", "00006_redriven",
		"00007_retention", "00008_given_up", "00009_settled_at",
		"00010_refused", "00011_left_out",
	}
}

func requireApplied(t *testing.T, db *sql.DB) {
	t.Helper()
	states, err := migrations.Status(t.Context(), db)
	require.NoError(t, err)
	require.Len(t, states, len(all()))
	for i, s := range states {
		require.Equal(t, all()[i], s.Name)
		require.True(t, strings.HasPrefix(s.Name, fmt.Sprintf("%05d_", s.Version)), s.Name)
		require.False(t, s.Pending(), s.Name)
		require.WithinDuration(t, time.Now(), s.AppliedAt, 10*time.Minute)
	}
}

// catalog describes all tables, columns, constraints and publications that are not PostgreSQL's own.
func catalog(t *testing.T, db *testenv.Database) string {
	t.Helper()
	var text *string
	require.NoError(t, db.QueryRow(t, `
		WITH class AS (
			SELECT c.oid, c.oid::regclass::text AS rel, c.relkind, obj_description(c.oid, 'pg_class') AS note
			FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
			WHERE nspname IN ('public', 'walrelay', 'walrelay_kit') AND relkind IN ('r', 'p', 'v')
		), line AS (
			SELECT concat_ws(' ', rel, relkind, note) AS l FROM class
			UNION ALL
			SELECT concat_ws(' ', rel, attnum, attname, format_type(atttypid, atttypmod), attnotnull,
				pg_get_expr(adbin, adrelid), col_description(class.oid, attnum))
			FROM class JOIN pg_attribute a ON attrelid = class.oid AND attnum > 0 AND NOT attisdropped
			LEFT JOIN pg_attrdef ON adrelid = class.oid AND adnum = attnum
			UNION ALL
			SELECT concat_ws(' ', rel, conname, pg_get_constraintdef(k.oid))
			FROM class JOIN pg_constraint k ON conrelid = class.oid
			UNION ALL
			SELECT concat_ws(' ', pubname, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot, puballtables,
				(SELECT string_agg(prrelid::regclass::text, ',') FROM pg_publication_rel WHERE prpubid = p.oid))
			FROM pg_publication p
		)
		SELECT string_agg(l, E'\n' ORDER BY l) FROM line`).Scan(&text))
	if text == nil {
		return ""
	}
	return *text
}

func TestUp_Twice(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		t.Parallel()
		database := testenv.Postgres(t, major).Database(t)
		db := open(t, database.DSN)

		states, err := migrations.Status(t.Context(), db)
		require.NoError(t, err)
		require.Len(t, states, len(all()))
		for _, s := range states {
			require.True(t, s.Pending())
		}
		require.Empty(t, catalog(t, database), "status changes nothing")

		applied, err := migrations.Up(t.Context(), db)
		require.NoError(t, err)
		require.Equal(t, all(), applied)
		requireApplied(t, db)

		before := catalog(t, database)
		applied, err = migrations.Up(t.Context(), db)
		require.NoError(t, err)
		require.Empty(t, applied)
		require.Equal(t, before, catalog(t, database))
	})
}

func TestUp_EveryColumnIsCommented(t *testing.T) {
	t.Parallel()
	database := testenv.Postgres(t, 18).Database(t)
	db := open(t, database.DSN)
	_, err := migrations.Up(t.Context(), db)
	require.NoError(t, err)
	_, err = migrations.UpKit(t.Context(), db)
	require.NoError(t, err)
	var bare []string
	require.NoError(t, database.QueryRow(t, `
		SELECT coalesce(array_agg(c.oid::regclass || '.' || attname), '{}')
		FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace JOIN pg_attribute ON attrelid = c.oid
		WHERE nspname IN ('public', 'walrelay', 'walrelay_kit') AND relkind IN ('r', 'p') AND attnum > 0
		AND (col_description(c.oid, attnum) IS NULL OR obj_description(c.oid, 'pg_class') IS NULL)`).Scan(&bare))
	require.Empty(t, bare)
}

// Defaults and limits as the session relies on them.
func TestUp_Tables(t *testing.T) {
	t.Parallel()
	database := testenv.Postgres(t, 18).Database(t)
	_, err := migrations.Up(t.Context(), open(t, database.DSN))
	require.NoError(t, err)

	database.Exec(t, `INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('order', '1', 'placed')`)
	database.Exec(t, `INSERT INTO walrelay.streams
		(name, system_identifier, timeline, slot, publication, delivery, routing) VALUES ('a', '1', 1, 's', 'p', 'd', 'r')`)
	var row string
	require.NoError(t, database.QueryRow(t, `
		SELECT concat_ws(' ', epoch, created_lsn, confirmed_lsn, partitions, state_epoch)
		FROM walrelay.streams`).Scan(&row))
	require.Equal(t, "1 {}", row)
	database.Exec(t, `INSERT INTO walrelay.releases (stream, position, verdict) VALUES ('a', 'p', 'skip')`)
	require.NoError(t, database.QueryRow(t, `SELECT requested_by FROM walrelay.releases`).Scan(&row))
	require.Equal(t, "postgres", row)

	for _, refused := range []string{
		`UPDATE walrelay.streams SET epoch = 0`,
		`UPDATE walrelay.streams SET epoch = 4294967296`,
		`UPDATE walrelay.streams SET state_epoch = 0`,
		`UPDATE walrelay.streams SET state_epoch = 4294967296`,
		`UPDATE walrelay.releases SET verdict = 'drop'`,
		`INSERT INTO walrelay.releases (stream, position, verdict) VALUES ('a', 'p', 'retry')`,
		`INSERT INTO walrelay.dead_letters (stream, position, event_id, table_name, topic, size, reason, action)
			VALUES ('a', 'p', '', 't', '', 0, 'r', 'stopped')`,
	} {
		_, err := database.Conn.Exec(t.Context(), refused)
		require.Error(t, err, refused)
	}
	database.Exec(t, `UPDATE walrelay.streams SET epoch = 4294967295`)
}

func TestUp_TenAtOnce(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		t.Parallel()
		database := testenv.Postgres(t, major).Database(t)
		var (
			wg      sync.WaitGroup
			mu      sync.Mutex
			applied []string
			errs    []error
		)
		start := make(chan struct{})
		for range 10 {
			db := open(t, database.DSN)
			require.NoError(t, db.PingContext(t.Context()))
			wg.Go(func() {
				<-start
				names, err := migrations.Up(t.Context(), db)
				mu.Lock()
				defer mu.Unlock()
				applied = append(applied, names...)
				if err != nil {
					errs = append(errs, err)
				}
			})
		}
		close(start)
		wg.Wait()
		require.Empty(t, errs)
		require.Equal(t, all(), applied, "each by exactly one")
		requireApplied(t, open(t, database.DSN))
	})
}

func TestUp_WaitsForTheLock(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]string{
		"empty database": ``,
		"one is missing yet": printed(t) + `
			DELETE FROM walrelay.schema_version WHERE version_id = (SELECT max(version_id) FROM walrelay.schema_version)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testenv.Postgres(t, 18).Database(t)
			database.Exec(t, prepare)
			before := catalog(t, database)
			holder, err := database.Conn.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = holder.Rollback(t.Context()) }() // a no-op unless the test fails
			_, err = holder.Exec(t.Context(), `SELECT pg_advisory_xact_lock(x'77616c72656c6179'::bigint)`)
			require.NoError(t, err)

			db := open(t, database.DSN)
			impatient, cancel := context.WithCancel(t.Context())
			defer cancel()
			var applied []string
			ended := make(chan error, 1)
			go func() {
				var err error
				applied, err = migrations.Up(impatient, db)
				ended <- err
			}()
			require.Eventually(t, func() bool {
				var waits bool
				require.NoError(t, database.QueryRow(t, `SELECT EXISTS (SELECT FROM pg_stat_activity
					WHERE datname = current_database() AND
					(wait_event = 'advisory' OR query ~* '^select pg_try_advisory_lock'))`).Scan(&waits))
				return waits
			}, time.Minute, 20*time.Millisecond)
			cancel()
			require.ErrorIs(t, <-ended, context.Canceled)
			require.Empty(t, applied)
			require.Equal(t, before, catalog(t, database))

			done := make(chan error, 1)
			go func() {
				_, err := migrations.Up(t.Context(), db)
				done <- err
			}()
			require.NoError(t, holder.Rollback(t.Context()))
			require.NoError(t, <-done)
			requireApplied(t, db)
		})
	}
}

// A role that may only read can ask whether anything is left to do.
func TestUp_NothingPendingNeedsNoRights(t *testing.T) {
	t.Parallel()
	database := testenv.Postgres(t, 18).Database(t)
	_, err := migrations.Up(t.Context(), open(t, database.DSN))
	require.NoError(t, err)
	role := "reader_" + database.Name
	database.Exec(t, fmt.Sprintf(`CREATE ROLE %[1]s LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA walrelay TO %[1]s;
		GRANT SELECT ON walrelay.schema_version TO %[1]s`, role))
	t.Cleanup(func() { database.Exec(t, `DROP OWNED BY `+role+`; DROP ROLE `+role) })

	applied, err := migrations.Up(t.Context(), open(t, strings.Replace(database.DSN, "postgres:postgres@", role+":x@", 1)))
	require.NoError(t, err)
	require.Empty(t, applied)
}

func TestUp_SaysWhatWasAppliedBeforeAnError(t *testing.T) {
	t.Parallel()
	database := testenv.Postgres(t, 18).Database(t)
	database.Exec(t, `CREATE SCHEMA walrelay; CREATE VIEW walrelay.releases AS SELECT 1`) // no table can be there
	db := open(t, database.DSN)
	applied, err := migrations.Up(t.Context(), db)
	require.ErrorContains(t, err, "releases")
	require.Equal(t, all()[:1], applied)

	states, err := migrations.Status(t.Context(), db)
	require.NoError(t, err)
	require.False(t, states[0].Pending())
	require.True(t, states[1].Pending())
	require.NotContains(t, catalog(t, database), "walrelay.streams", "half a migration")

	database.Exec(t, `DROP VIEW walrelay.releases`)
	applied, err = migrations.Up(t.Context(), db)
	require.NoError(t, err)
	require.Equal(t, all()[1:], applied)
}

func TestUp_LeavesExistingOutboxAlone(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		t.Parallel()
		database := testenv.Postgres(t, major).Database(t)
		database.Exec(t, `
			CREATE TABLE outbox (id bigint PRIMARY KEY, aggregatetype text, payload text);
			COMMENT ON TABLE outbox IS 'ours'; COMMENT ON COLUMN outbox.id IS 'ours too';
			INSERT INTO outbox VALUES (1, 'order', 'kept');
			CREATE TABLE other (id int PRIMARY KEY);
			CREATE PUBLICATION walrelay FOR TABLE other WITH (publish = 'insert, update')`)
		before := catalog(t, database)
		_, err := migrations.Up(t.Context(), open(t, database.DSN))
		require.NoError(t, err)

		database.Exec(t, `DROP SCHEMA walrelay CASCADE`)
		require.Equal(t, before, catalog(t, database))
		var payload string
		require.NoError(t, database.QueryRow(t, `SELECT payload FROM outbox`).Scan(&payload))
		require.Equal(t, "kept", payload)

		database.Exec(t, printed(t)) // neither does the printed form
		database.Exec(t, `DROP SCHEMA walrelay CASCADE`)
		require.Equal(t, before, catalog(t, database))
	})
}

// changes decodes through the publication and returns the kinds of pgoutput's messages, with the
// tables of the inserts: their OID follows the kind.
func changes(t *testing.T, database *testenv.Database, slot string) (kinds string, inserted []uint32) {
	t.Helper()
	rows, err := database.Conn.Query(t.Context(), `SELECT data FROM pg_logical_slot_get_binary_changes($1, NULL, NULL,
		'proto_version', '1', 'publication_names', 'walrelay')`, slot)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var data []byte
		require.NoError(t, rows.Scan(&data))
		if data[0] == 'I' {
			inserted = append(inserted, binary.BigEndian.Uint32(data[1:]))
		}
		kinds += string(data[:1])
	}
	require.NoError(t, rows.Err())
	return kinds, inserted
}

func TestPublication_InsertsOnly(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		t.Parallel()
		database := testenv.Postgres(t, major).Database(t)
		_, err := migrations.Up(t.Context(), open(t, database.DSN))
		require.NoError(t, err)
		slot := database.Slot(t)
		database.Exec(t, `SELECT pg_create_logical_replication_slot('`+slot+`', 'pgoutput')`)

		database.Exec(t, `BEGIN;
			INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('order', '1', 'placed');
			UPDATE outbox SET type = 'changed';
			DELETE FROM outbox;
			TRUNCATE outbox;
			COMMIT`)
		kinds, _ := changes(t, database, slot)
		require.Equal(t, "BRIC", kinds)
	})
}

func TestPublication_PartitionedOutboxKeepsItsName(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		t.Parallel()
		database := testenv.Postgres(t, major).Database(t)
		database.Exec(t, `CREATE TABLE outbox (id int, day int) PARTITION BY LIST (day);
			CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN (1)`)
		_, err := migrations.Up(t.Context(), open(t, database.DSN))
		require.NoError(t, err)
		slot := database.Slot(t)
		database.Exec(t, `SELECT pg_create_logical_replication_slot('`+slot+`', 'pgoutput')`)

		database.Exec(t, `INSERT INTO outbox VALUES (1, 1)`)
		var root uint32
		require.NoError(t, database.QueryRow(t, `SELECT 'outbox'::regclass::oid`).Scan(&root))
		_, inserted := changes(t, database, slot)
		require.Equal(t, []uint32{root}, inserted)
	})
}

func TestPrint_ThenUpIsNoOp(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		t.Parallel()
		server := testenv.Postgres(t, major)
		byPrint, byUp := server.Database(t), server.Database(t)
		_, err := migrations.Up(t.Context(), open(t, byUp.DSN))
		require.NoError(t, err)

		byPrint.Exec(t, printed(t))
		db := open(t, byPrint.DSN)
		requireApplied(t, db)
		require.Equal(t, catalog(t, byUp), catalog(t, byPrint))
		applied, err := migrations.Up(t.Context(), db)
		require.NoError(t, err)
		require.Empty(t, applied)

		byPrint.Exec(t, printed(t)) // again, and over what Up has made
		byUp.Exec(t, printed(t))
		for _, database := range []*testenv.Database{byPrint, byUp} {
			var versions []int64
			require.NoError(t, database.QueryRow(t,
				`SELECT array_agg(version_id ORDER BY id) FROM walrelay.schema_version`).Scan(&versions))
			require.Len(t, versions, len(all())+1)
			require.Zero(t, versions[0])
			require.IsIncreasing(t, versions)
		}
	})
}

func TestPrint_AppliesWhatIsMissing(t *testing.T) {
	t.Parallel()
	database := testenv.Postgres(t, 18).Database(t)
	db := open(t, database.DSN)
	_, err := migrations.Up(t.Context(), db)
	require.NoError(t, err)
	before := catalog(t, database)
	database.Exec(t, `DROP TABLE walrelay.streams, walrelay.releases, walrelay.dead_letters;
		DELETE FROM walrelay.schema_version WHERE version_id > 1`) // as an older walrelay left it
	database.Exec(t, printed(t))
	require.Equal(t, before, catalog(t, database))
	requireApplied(t, db)
}

// Print runs the files inside one transaction and drops goose's marks, so a file may only use these.
func TestPrint_IsPlainSQL(t *testing.T) {
	t.Parallel()
	text := printed(t)
	require.NotContains(t, text, "+goose")
	require.NotContains(t, text, "%!", "a format gone wrong")
	require.Equal(t, 1, strings.Count(text, "\nBEGIN;\n"))
	require.True(t, strings.HasSuffix(text, "\nCOMMIT;\n"))
	at := -1
	for _, name := range all() {
		next := strings.Index(text, "-- "+name+"\n")
		require.Greater(t, next, at, "in their order")
		at = next
	}
}

func TestFiles_GooseMarks(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("sql/*")
	require.NoError(t, err)
	require.Len(t, files, len(all()))
	ofKit, err := filepath.Glob("kit/*")
	require.NoError(t, err)
	files = append(files, ofKit...)
	allowed := []string{"-- +goose Up", "-- +goose StatementBegin", "-- +goose StatementEnd"}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); strings.Contains(line, "+goose") {
				require.True(t, slices.Contains(allowed, line), "%s: %s", file, line)
			}
		}
	}
}
