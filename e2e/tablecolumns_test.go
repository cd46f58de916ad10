package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// Outboxes whose columns have nothing in common are one stream, in one order.
func TestTableColumns(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newBare(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		s.db.Exec(t, `
			CREATE TABLE outbox (id bigint PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb);
			CREATE SCHEMA audit;
			CREATE TABLE audit."Log" (no bigint PRIMARY KEY, "Area" text, subject text, what text, body bytea, meta json,
				headers text);
			CREATE PUBLICATION walrelay FOR TABLE outbox, audit."Log" WITH (publish = 'insert')`)
		s.run("migrate", "up")
		s.set("WALRELAY_TABLES", `outbox, audit."Log"`)
		s.set("WALRELAY_TABLE_COLUMNS",
			`audit."Log": id=no, key=subject, type=what, payload=body, headers=meta, {aggregatetype}=Area`)
		relay := s.relay()
		s.db.Exec(t, `BEGIN; INSERT INTO outbox VALUES (1, 'orders', 'a', 'created', '{}');
			INSERT INTO audit."Log" VALUES (2, 'orders', 'b', 'seen', '\x00ff', '{"who": "me"}', 'not JSON'); COMMIT`)
		records := s.consume(s.topic).WaitFor(t, 2, wait)
		require.Equal(t, []string{"1", "2"}, delivered(records))
		require.Equal(t, []string{"a", "b"}, []string{string(records[0].Key), string(records[1].Key)})
		require.Equal(t, []byte{0, 0xff}, records[1].Value)
		require.Equal(t, "seen", judge.Header(records[1], "eventType"))
		require.Equal(t, "me", judge.Header(records[1], "who"))

		// A row is found by its table's own columns again.
		s.caughtUp()
		s.run("replay", "--id", "2", "--table", `audit."Log"`, "--time-column", "")
		require.EqualValues(t, 3, s.ends(s.topic).Sum())

		// What is NULL or no object stops the stream; a column that goes away does so too.
		s.db.Exec(t, `INSERT INTO audit."Log" VALUES (3, NULL, 'b', 'seen', NULL, NULL)`)
		s.ready(503, "stuck", `column "Area" of audit."Log" is NULL`)
		s.stop(relay)
		s.set("WALRELAY_ON_POISON", "skip")
		relay = s.relay()
		s.db.Exec(t, `INSERT INTO audit."Log" VALUES (4, 'orders', 'b', 'seen', NULL, '[1]')`)
		s.caughtUp()
		var reasons []string
		require.NoError(t, s.db.QueryRow(t, `SELECT array_agg(reason ORDER BY position) FROM walrelay.dead_letters`).
			Scan(&reasons))
		require.Len(t, reasons, 2)
		require.Contains(t, reasons[1], "headers are not a JSON object")
		s.stop(relay)

		s.set("WALRELAY_TABLE_COLUMNS", `audit."Log": id=no, key=subject, payload=content, {aggregatetype}=Area`)
		relay = s.start()
		require.Equal(t, 1, relay.Wait(t, wait))
		require.Contains(t, relay.Log(), `has no column \"content\", which is mapped`)
	})
}
