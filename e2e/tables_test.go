package e2e

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// threeTables have a column of the topic, a key of two columns, and nothing in common.
const threeTables = `
	CREATE TABLE outbox (id bigint PRIMARY KEY, topic text NOT NULL, aggregate_id text, event_type text, payload text);
	CREATE TABLE payments (payment bigint PRIMARY KEY, bank text, account int, "Body" bytea, kind text);
	CREATE TABLE "Mails" (id bigint PRIMARY KEY, topic text, recipient text, payload json, event_type text);
	CREATE PUBLICATION outbox_pub FOR TABLE outbox, payments, "Mails" WITH (publish = 'insert')`

func newThreeTables(t *testing.T, server *testenv.Server) *setup {
	t.Helper()
	s := newOwn(t, server, testenv.Kafka(t), 1, threeTables)
	s.set("WALRELAY_TOPIC", "{topic}")
	s.set("WALRELAY_TABLES", `outbox, payments, "Mails"`)
	s.set("WALRELAY_TABLE_COLUMNS", `payments: id=payment, key_template={bank}/{account}, payload=Body, type=kind, topic=`+
		s.prefix+`pay.{kind}; "Mails": key=recipient, topic=`+s.prefix+`mails`)
	return s
}

// Tables of one stream have columns, keys and topics of their own. The stream, the doctor and a replay know them.
func TestTables_OfTheirOwn(t *testing.T) {
	t.Parallel()
	everyMajor(t, func(t *testing.T, server *testenv.Server) {
		s := newThreeTables(t, server)
		chosen, paid, mails := s.prefix+"chosen", s.prefix+"pay.in", s.prefix+"mails"
		for _, topic := range []string{chosen, paid, mails} {
			s.cluster.CreateTopic(t, topic, 1, nil)
		}
		s.relay()
		tx := s.begin()
		_, err := tx.Exec(t.Context(), `INSERT INTO outbox VALUES (1, $1, 'k', 'e', 'text')`, chosen)
		require.NoError(t, err)
		in(t, tx, `INSERT INTO payments VALUES (2, 'DE', 42, '\x00ff', 'in')`,
			`INSERT INTO "Mails" VALUES (3, NULL, 'a@b', '{ }', 'sent')`)
		commit(t, tx)

		type made struct{ key, value, id, kind, index string }
		for topic, want := range map[string]made{
			chosen: {"k", "text", "1", "e", "0"},
			paid:   {"DE/42", "\x00\xff", "2", "in", "1"},
			mails:  {"a@b", "{ }", "3", "sent", "2"},
		} {
			r := s.cluster.Consume(t, topic).WaitFor(t, 1, wait)[0]
			position := judge.Header(r, "walrelay-position")
			require.Equal(t, want, made{
				string(r.Key), string(r.Value), judge.Header(r, "id"), judge.Header(r, "eventType"), position[len(position)-1:],
			})
		}
		s.caughtUp()

		for _, f := range s.doctor().Findings {
			require.NotEqual(t, "fault", f.Level, f)
		}
		s.run("replay", "start", "--all", "--table=payments")
		again := s.cluster.Consume(t, paid).WaitFor(t, 2, wait)[1]
		require.Equal(t, "DE/42", string(again.Key))
		require.Equal(t, "\x00\xff", string(again.Value))
		require.NotEmpty(t, judge.Header(again, "walrelay-replay"))
	})
}

// What cannot be an event of its table is subject to the poison policy, which tells the column and nothing of the
// row; then the stream goes on.
func TestTables_BadRows(t *testing.T) {
	t.Parallel()
	everyMajor(t, func(t *testing.T, server *testenv.Server) {
		s := newThreeTables(t, server)
		mails := s.prefix + "mails"
		s.cluster.CreateTopic(t, mails, 1, nil)
		s.set("WALRELAY_ON_POISON", "skip")
		relay := s.relay()
		s.db.Exec(t, `INSERT INTO outbox VALUES (1, 'no topic!', 'k', 'e', 'secret')`)
		s.db.Exec(t, `INSERT INTO payments VALUES (2, NULL, 42, 'secret', 'in'), (3, 'DE', 42, 'secret', NULL)`)

		// A row that was put right is redriven to the topic that is named, and not by its table's template.
		s.caughtUp()
		s.db.Exec(t, `UPDATE payments SET kind = 'in' WHERE payment = 3`)
		var position string
		require.NoError(t, s.db.QueryRow(t, `SELECT position FROM walrelay.dead_letters WHERE event_id = '3'`).
			Scan(&position))
		require.Contains(t, s.run("deadletters", "redrive", position, "--to", mails), "1 events were redriven")
		require.Equal(t, []string{"3"}, delivered(s.cluster.Consume(t, mails).WaitFor(t, 1, wait)))

		s.db.Exec(t, `ALTER TABLE payments ALTER bank TYPE bytea USING 'DE';
			INSERT INTO payments VALUES (4, 'DE', 42, '', 'in')`)
		s.db.Exec(t, `INSERT INTO "Mails" VALUES (6, NULL, 'a@b', NULL, NULL)`)
		require.Equal(t, []string{"3", "6"}, delivered(s.cluster.Consume(t, mails).WaitFor(t, 2, wait)))
		s.caughtUp()

		rows, err := s.db.Conn.Query(t.Context(), `SELECT table_name || ' ' || event_id || ' ' || action || ': ' || reason
			FROM walrelay.dead_letters ORDER BY position`)
		require.NoError(t, err)
		reasons, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Equal(t, []string{
			"public.outbox 1 skipped: the topic name has a character other than a-z, A-Z, 0-9, '.', '_' and '-'",
			"public.payments 2 skipped: column bank of public.payments is NULL",
			"public.payments 3 skipped: column kind of public.payments is NULL",
			"public.payments 4 skipped: column bank of public.payments is of type bytea, and a part of a key must be text",
		}, reasons)

		// A column that is gone ends the stream, since it would come to that for every row; whatever came meanwhile
		// is subject to the policy.
		s.db.Exec(t, `ALTER TABLE payments DROP bank; INSERT INTO payments VALUES (5, 42, 'secret', 'in')`)
		require.Equal(t, 1, relay.Wait(t, wait))
		require.Contains(t, relay.Log(), `has no column \"bank\", which is mapped`)
		require.Contains(t, relay.Log(), "to go on: add the column or correct the mapping of columns")
		require.NotContains(t, relay.Log(), "secret")
	})
}
