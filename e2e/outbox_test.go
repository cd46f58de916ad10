package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// everyMajor runs a subtest on each major that walrelay supports. It is for the scenarios in which
// their servers have been seen to differ; others take testenv.ForMajors.
func everyMajor(t *testing.T, test func(t *testing.T, server *testenv.Server)) {
	t.Helper()
	for major := 14; major <= 18; major++ {
		t.Run(fmt.Sprintf("postgres-%d", major), func(t *testing.T) {
			t.Parallel()
			test(t, testenv.Postgres(t, major))
		})
	}
}

// ownOutbox is a table as an application may have had before walrelay, with a publication of its own.
const (
	ownOutbox = `CREATE TABLE outbox (id bigint PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text,
		event_type text, payload jsonb)`
	ownPublication = `CREATE PUBLICATION outbox_pub FOR TABLE outbox WITH (publish = 'insert')`
)

// newOwn is newSetup for an outbox that ddl creates, with the columns of ownOutbox and in the
// publication outbox_pub.
func newOwn(t *testing.T, server *testenv.Server, cluster *testenv.Cluster, partitions int, ddl ...string) *setup {
	t.Helper()
	s := newBare(t, server, cluster, partitions)
	s.db.Exec(t, strings.Join(ddl, ";\n"))
	s.run("migrate", "up")
	s.set("WALRELAY_PUBLICATION", "outbox_pub")
	s.set("WALRELAY_COLUMN_KEY", "aggregate_id")
	s.set("WALRELAY_COLUMN_TYPE", "event_type")
	s.set("WALRELAY_TOPIC", s.prefix+"{aggregate_type}")
	return s
}

const insertOwnSQL = `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload)
	VALUES ($1, 'orders', $2, 'created', $3)`

// insertOwn writes one event into an outbox of newOwn. A payload of nil is NULL.
func (s *setup) insertOwn(n int, key string, payload any) {
	s.t.Helper()
	s.db.Exec(s.t, insertOwnSQL, n, key, payload)
}

// begin opens a transaction, which is rolled back at the end of the test unless that ended it.
func (s *setup) begin() pgx.Tx {
	s.t.Helper()
	tx, err := s.db.Conn.Begin(s.t.Context())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// in runs statements in a transaction, which it leaves open.
func in(t *testing.T, tx pgx.Tx, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		_, err := tx.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	require.NoError(t, tx.Commit(t.Context()))
}

// delivered are the ids of records.
func delivered(records []*kgo.Record) []string {
	var ids []string
	for _, r := range records {
		ids = append(ids, judge.Header(r, "id"))
	}
	return ids
}

// caughtUp waits until everything committed so far is confirmed. Behind the last event the relay
// takes small steps rarely, so it gets a large one to take: 300 kB of log that nobody subscribes to.
func (s *setup) caughtUp() {
	s.t.Helper()
	end := s.lsn("pg_current_wal_insert_lsn()")
	s.db.Exec(s.t, "SELECT pg_logical_emit_message(true, 'e2e', repeat('x', 300000))")
	require.Eventually(s.t, func() bool { return s.confirmed() >= end }, wait, tick)
}
