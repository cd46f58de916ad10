package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

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
		ids = append(ids, headerOf(r, "id"))
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

// get asks the running instance's admin server.
func (s *setup) get(path string) (status int, body string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.env["WALRELAY_ADMIN_ADDR"]+path, nil)
	require.NoError(s.t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return response.StatusCode, string(text)
}

// metric is the value of the one metric that has the name and all the labels, given as in name="value".
func (s *setup) metric(name string, labels ...string) float64 {
	s.t.Helper()
	_, body := s.get("/metrics")
	var found []string
	for lines := bufio.NewScanner(strings.NewReader(body)); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		got, rest, _ := strings.Cut(series, "{")
		missing := slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(rest, label) })
		if got == name && !missing {
			found = append(found, value)
		}
	}
	require.Len(s.t, found, 1, "%s%q in\n%s", name, labels, body)
	value, err := strconv.ParseFloat(found[0], 64)
	require.NoError(s.t, err)
	return value
}
