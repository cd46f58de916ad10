package docs_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// needs is what a section finds, and what must be so in its end.
type needs struct {
	// fresh leaves the database and the broker empty. Otherwise `walrelay migrate up` was run, the stream walrelay has
	// delivered one event and is stopped; see world.streamed.
	fresh bool
	// given comes before the first command.
	given func(t *testing.T, w *world)
	// replace has what stands here for the words that the page uses as an example: "POSITION". $NAME in it is a
	// variable of the section's shell (world.env), which given may set.
	replace map[string]string
	// args are for the $1 … of the section's SQL, statement after statement.
	args []any
	// then looks at what has become of it all.
	then func(t *testing.T, w *world)
}

var positionText = regexp.MustCompile(`[0-9A-F]{8}-[0-9A-F]{8}-[0-9A-F]{16}-[0-9A-F]{8}`)

// stuck has the stream meet an event that no topic can take.
func stuck(t *testing.T, w *world) {
	w.sh(t, "walrelay run")
	w.sql(t, `INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('no topic', '1', 'created')`)
	require.True(t, waitFor(func() bool {
		w.env["AT"] = positionText.FindString(w.get(t, "/readyz"))
		return w.env["AT"] != ""
	}))
}

// running has the stream run.
func running(t *testing.T, w *world) { w.sh(t, "walrelay run") }

// sessions has a session to end, and a prepared transaction.
func sessions(t *testing.T, w *world) {
	conn, err := pgx.Connect(t.Context(), w.db.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	w.env["PID"] = fmt.Sprint(conn.PgConn().PID())
	w.sql(t, "BEGIN; CREATE TABLE forgotten (); PREPARE TRANSACTION 'GID'")
}

// partitioned has an outbox without a partition.
func partitioned(t *testing.T, w *world) {
	w.sql(t, `DROP TABLE outbox; CREATE TABLE outbox (id uuid DEFAULT gen_random_uuid(), aggregatetype text,
		aggregateid text, type text, payload jsonb, created_at timestamptz DEFAULT now(), PRIMARY KEY (id, created_at))
		PARTITION BY RANGE (created_at)`)
}

// partitionsToCome expects them.
func partitionsToCome(t *testing.T, w *world) {
	w.sql(t, `INSERT INTO outbox (created_at) VALUES (now()), (now() + interval '167 hours')`)
}

// roles has those of walrelay and of its application.
func roles(t *testing.T, w *world) { w.sql(t, "CREATE ROLE walrelay LOGIN; CREATE ROLE shop LOGIN") }

// lettered has an event that was too large for its topic.
func lettered(t *testing.T, w *world) {
	w.env["WALRELAY_ON_POISON"] = "dead-letter"
	w.cluster.CreateTopic(t, "outbox.event.parcel", 1, map[string]string{"max.message.bytes": "1000"})
	w.sh(t, "walrelay run")
	w.sql(t, `INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
		VALUES ('parcel', '1', 'created', to_jsonb(repeat('x', 2000)))`)
	require.True(t, waitFor(func() bool {
		return w.conn.QueryRow(t.Context(), "SELECT position FROM walrelay.dead_letters").Scan(new(string)) == nil
	}))
	var position string
	require.NoError(t, w.conn.QueryRow(t.Context(), "SELECT position FROM walrelay.dead_letters").Scan(&position))
	w.env["AT"] = position
}

// redriven expects that it reached its topic.
func redriven(t *testing.T, w *world) {
	require.Contains(t, w.output, `"redriven_by"`)
	require.Len(t, w.cluster.Consume(t, "outbox.event.parcel").WaitFor(t, 1, wait)[0].Value, 2002)
}

// delivers starts the stream, unless it runs, and has it deliver one more event.
func delivers(t *testing.T, w *world) {
	if len(w.runs(t)) == 0 {
		w.sh(t, "walrelay run")
	}
	w.sql(t, `INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('order', '2', 'created')`)
	w.cluster.Consume(t, "outbox.event.order").WaitFor(t, 2, wait)
}

// exactlyOnce changes the delivery mode, and delivers.
func exactlyOnce(t *testing.T, w *world) {
	w.env["WALRELAY_DELIVERY"] = "exactly-once"
	delivers(t, w)
	w.stop(t)
}

// collected has a collector at $COLLECTOR.
func collected(t *testing.T, w *world) {
	w.posted = make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case w.posted <- r.URL.Path:
		default:
		}
	}))
	t.Cleanup(server.Close)
	w.env["COLLECTOR"] = server.Listener.Addr().String()
}

// traced expects that it gets spans.
func traced(t *testing.T, w *world) {
	delivers(t, w)
	select {
	case path := <-w.posted:
		require.Equal(t, "/v1/traces", path)
	case <-time.After(wait):
		require.Fail(t, "no span came")
	}
}

// needed is by page and anchor.
var needed = map[string]needs{
	"docs/guarantees.md#nothing-is-skipped-silently": {
		given:   stuck,
		replace: map[string]string{"POSITION": "$AT"},
	},
	"docs/operations.md#before-the-first-start": {
		given: func(t *testing.T, w *world) { w.sql(t, "CREATE ROLE shop LOGIN") },
	},
	"docs/operations.md#pausing-a-stream": {given: running, then: delivers},
	"docs/operations.md#who-may-look": {
		given: func(t *testing.T, w *world) {
			w.env["WALRELAY_ADMIN_TOKEN"] = "open-sesame-open-sesame"
			running(t, w)
		},
		then: func(t *testing.T, w *world) { require.Contains(t, w.output, `"state": "streaming"`) },
	},
	"docs/operations.md#tracing": {
		given: collected, replace: map[string]string{"collector.example.com:4318": "$COLLECTOR"}, then: traced,
	},
	"docs/operations.md#alerts":               {given: running},
	"docs/operations.md#walrelaynotstreaming": {given: sessions, replace: map[string]string{"PID": "$PID"}},
	"docs/operations.md#walrelayretainedwal":  {given: sessions, replace: map[string]string{"PID": "$PID"}},
	"docs/operations.md#walrelaylaggrowing":   {given: roles},
	"docs/operations.md#walrelayignored": {given: func(t *testing.T, w *world) {
		w.sql(t, "CREATE TABLE name (); ALTER PUBLICATION walrelay ADD TABLE name")
	}},
	"docs/operations.md#dead-letters": {
		given:   lettered,
		replace: map[string]string{"POSITION": "$AT"},
		then:    redriven,
	},
	"docs/operations.md#exactly-once-refuses-to-start":                 {given: exactlyOnce, then: delivers},
	"docs/operations.md#the-slot-is-lost-or-something-else-left-a-gap": {then: delivers},
	"docs/operations.md#a-budget-for-the-write-ahead-log":              {replace: map[string]string{"NAME": "walrelay"}},
	"docs/managed-services.md#amazon-rds-for-postgresql": {given: func(t *testing.T, w *world) {
		roles(t, w)
		w.sql(t, "CREATE ROLE rds_replication")
	}},
	"docs/managed-services.md#google-cloud-sql-for-postgresql":               {given: roles},
	"docs/managed-services.md#azure-database-for-postgresql-flexible-server": {given: roles},
	"docs/upgrades.md#drain":                       {given: running, replace: map[string]string{"LSN": "0/0"}},
	"docs/upgrades.md#by-a-copy":                   {then: delivers},
	"docs/upgrades.md#by-pg_upgrade":               {then: delivers},
	"docs/upgrades.md#blue-and-green":              {then: delivers},
	"docs/operations.md#cleaning-the-outbox-table": {given: roles},
	"docs/operations.md#partitions-to-come":        {given: partitioned, then: partitionsToCome},
	"docs/operations.md#publishing-rows-again": {
		given: func(t *testing.T, w *world) {
			w.sql(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type)
				VALUES ('0b4f7f9e-6c1c-4f57-9a37-d3f1c9a0b6f2', 'order', '2', 'created')`)
		},
		replace: map[string]string{"NAME": "gap"},
	},
	"docs/operations.md#the-status-page":   {given: roles},
	"docs/operations.md#a-restored-backup": {then: delivers},
	"docs/operations.md#the-stream-is-stuck-at-an-event": {
		given:   stuck,
		replace: map[string]string{"POSITION": "$AT"},
	},
	"docs/wire-format.md#logical-messages": {
		replace: map[string]string{"content": `'{"id": "1", "aggregatetype": "order", "aggregateid": "1", "payload": 1}'`},
	},
	"docs/wire-format.md#dropping-duplicates": {
		given: func(t *testing.T, w *world) {
			w.sql(t, `CREATE TABLE seen (stream text, topic text, partition int, position text COLLATE "C",
				PRIMARY KEY (stream, topic, partition))`)
		},
		args: []any{"walrelay", "outbox.event.order", 0, "00000001-00000001-0000000000000001-00000000"},
	},
	"README.md#use-it": {
		fresh: true,
		given: func(t *testing.T, w *world) {
			w.sql(t, `CREATE TABLE orders (id int, state text); INSERT INTO orders VALUES (4711, 'new')`)
		},
		then: func(t *testing.T, w *world) {
			record := w.cluster.Consume(t, "outbox.event.order").WaitFor(t, 1, wait)[0]
			require.Equal(t, "4711", string(record.Key))
		},
	},
}
