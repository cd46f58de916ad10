package e2e

import (
	"fmt"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// The plain path: what is committed arrives, whole and in order, and is confirmed. After a stop in
// good order nothing comes twice.
func TestDelivery_Plain(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 3)
		relay := s.relay()
		consumer := s.cluster.Consume(t, s.topic)
		ledger := judge.NewLedger()
		insert := func(n int) {
			key, payload := fmt.Sprint(n%7), fmt.Sprintf(`{"n": %d}`, n)
			s.insert(n, key, payload)
			require.NoError(t, ledger.Commit(s.event(eventID(n), key, payload)))
		}
		for n := range 100 {
			insert(n)
		}
		consumer.WaitFor(t, 100, wait)
		relay.Signal(t, terminate)
		require.Equal(t, 0, relay.Wait(t, wait), relay.Log())
		insert(100)
		s.relay()
		s.caughtUp()

		v := s.judge(ledger)
		require.Equal(t, 101, v.Records)
	})
}

// Events come in the order of commits, not of their ids, nor of when they were written.
func TestDelivery_CommitOrder(t *testing.T) {
	t.Parallel()
	everyMajor(t, func(t *testing.T, server *testenv.Server) {
		s := newOwn(t, server, testenv.Kafka(t), 1, ownOutbox, ownPublication)
		s.relay()
		consumer := s.cluster.Consume(t, s.topic)
		first := s.begin()
		in(t, first, `INSERT INTO outbox VALUES (1, 'orders', 'k', 'created', '{"n": 1}')`)
		s.insertOwn(2, "k", `{"n": 2}`)
		before := s.lsn("pg_current_wal_insert_lsn()")
		commit(t, first)
		after := s.lsn("pg_current_wal_insert_lsn()")

		records := consumer.WaitFor(t, 2, wait)
		require.Equal(t, []string{"2", "1"}, delivered(records))
		for i, payload := range []string{`{"n": 2}`, `{"n": 1}`} {
			require.Equal(t, "k", string(records[i].Key))
			require.JSONEq(t, payload, string(records[i].Value))
		}
		require.Less(t, judge.Header(records[0], "walrelay-position"), judge.Header(records[1], "walrelay-position"))
		// The position is where the commit was written, on timeline 1 of a new server.
		lsn := positionLSN(t, records[1])
		require.GreaterOrEqual(t, lsn, before)
		require.Less(t, lsn, after)
		require.Less(t, positionLSN(t, records[0]), before)
	})
}

// positionLSN is the log position in a record's header.
func positionLSN(t *testing.T, r *kgo.Record) pglogrepl.LSN {
	t.Helper()
	var epoch, timeline, index uint32
	var lsn uint64
	_, err := fmt.Sscanf(judge.Header(r, "walrelay-position"), "%08X-%08X-%016X-%08X", &epoch, &timeline, &lsn, &index)
	require.NoError(t, err)
	return pglogrepl.LSN(lsn)
}

// A crash right after the last acknowledgement repeats a tail of what was delivered, and loses nothing.
func TestDelivery_CrashAfterAcknowledgement(t *testing.T) {
	t.Parallel()
	everyMajor(t, func(t *testing.T, server *testenv.Server) {
		s := newOwn(t, server, testenv.Kafka(t), 1, ownOutbox, ownPublication)
		relay := s.relay()
		consumer := s.cluster.Consume(t, s.topic)
		ledger := judge.NewLedger()
		insert := func(n int) {
			payload := fmt.Sprintf(`{"n": %d}`, n)
			s.insertOwn(n, "k", payload)
			require.NoError(t, ledger.Commit(s.event(fmt.Sprint(n), "k", payload)))
		}
		for n := range 100 {
			insert(n)
		}
		consumer.WaitFor(t, 100, wait)
		relay.Kill(t)
		s.relay()
		insert(100)
		s.caughtUp()

		v := s.judge(ledger)
		require.LessOrEqual(t, v.Duplicates, 100)
		rest := consumer.WaitFor(t, v.Duplicates+1, wait)
		require.Equal(t, "100", judge.Header(rest[v.Duplicates], "id"), "comes last")
		t.Logf("%d duplicates", v.Duplicates)
	})
}

// What is confirmed is exactly what was delivered: neither is it repeated, nor is a transaction lost
// whose commit was written right behind it.
func TestDelivery_ConfirmedExactly(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		// A server of its own, so that nobody writes in between.
		server := testenv.StartPostgres(t, major, testenv.Config{})
		s := newOwn(t, server, testenv.Kafka(t), 1, ownOutbox, ownPublication)
		relay := s.relay()
		consumer := s.cluster.Consume(t, s.topic)
		first, second := s.begin(), s.begin()
		in(t, first, `INSERT INTO outbox VALUES (1, 'orders', 'k', 'e', '{}')`)
		in(t, second, `INSERT INTO outbox VALUES (2, 'later', 'k', 'e', '{}')`) // which has no topic yet
		commit(t, first)
		commit(t, second)
		record := consumer.WaitFor(t, 1, wait)[0]
		require.Eventually(t, func() bool { return s.confirmed() > positionLSN(t, record) }, wait, tick)
		heldUp(t, relay, "topic "+s.prefix+"later")
		relay.Kill(t)
		confirmed := s.confirmed()

		later := s.prefix + "later"
		s.cluster.CreateTopic(t, later, 1, nil)
		s.relay()
		last := s.cluster.Consume(t, later).WaitFor(t, 1, wait)[0]
		require.Equal(t, "2", judge.Header(last, "id"))
		require.LessOrEqual(t, confirmed, positionLSN(t, last))
		t.Logf("%d bytes between both", positionLSN(t, last)-confirmed)
		s.caughtUp()
		require.EqualValues(t, 1, s.ends(s.topic).Sum())
		require.EqualValues(t, 1, s.ends(later).Sum())
	})
}

// Only inserts are events, each of them one, whatever becomes of the row and whatever is published.
func TestDelivery_OnlyInserts(t *testing.T) {
	t.Parallel()
	everyMajor(t, func(t *testing.T, server *testenv.Server) {
		s := newOwn(t, server, testenv.Kafka(t), 1, ownOutbox, `CREATE PUBLICATION outbox_pub FOR TABLE outbox`)
		relay := s.relay()
		require.Contains(t, relay.Log(), "publishes more than inserts")
		consumer := s.cluster.Consume(t, s.topic)
		tx := s.begin()
		in(t, tx, `INSERT INTO outbox VALUES (1, 'orders', 'k', 'created', '{}')`, `DELETE FROM outbox WHERE id = 1`)
		commit(t, tx)
		s.insertOwn(2, "k", nil)
		s.db.Exec(t, `UPDATE outbox SET event_type = 'x' WHERE id = 2`)
		s.db.Exec(t, `TRUNCATE outbox`)
		s.insertOwn(3, "k", `{}`)

		records := consumer.WaitFor(t, 3, wait)
		require.Equal(t, []string{"1", "2", "3"}, delivered(records))
		require.Nil(t, records[1].Value, "NULL is a tombstone")
		require.Equal(t, "k", string(records[1].Key))
		s.caughtUp()
		require.EqualValues(t, 3, s.ends(s.topic).Sum())
		for _, kind := range []string{"update", "delete", "truncate"} {
			require.InDelta(t, 1, s.metric("walrelay_ignored_changes_total", `kind="`+kind+`"`), 0, kind)
		}
		require.InDelta(t, 3, s.metric("walrelay_events_total", ""), 0)
	})
}

// An empty text is a value, not a tombstone.
func TestDelivery_EmptyIsNotNull(t *testing.T) {
	t.Parallel()
	everyMajor(t, func(t *testing.T, server *testenv.Server) {
		s := newOwn(t, server, testenv.Kafka(t), 1, `CREATE TABLE outbox (id bigint PRIMARY KEY,
			aggregate_type text NOT NULL, aggregate_id text, event_type text, payload text)`, ownPublication)
		s.relay()
		consumer := s.cluster.Consume(t, s.topic)
		s.insertOwn(1, "k", "")
		s.insertOwn(2, "", nil)
		s.db.Exec(t, `INSERT INTO outbox VALUES (3, 'orders', NULL, NULL, ' ')`)

		records := consumer.WaitFor(t, 3, wait)
		require.NotNil(t, records[0].Value)
		require.Empty(t, records[0].Value)
		require.Nil(t, records[1].Value)
		require.NotNil(t, records[1].Key)
		require.Empty(t, records[1].Key)
		require.Nil(t, records[2].Key)
		require.Equal(t, " ", string(records[2].Value))
	})
}

// Columns are found by name in each description that the server sends, also amid a transaction.
func TestDelivery_SchemaChangeInTransaction(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newOwn(t, testenv.Postgres(t, major), testenv.Kafka(t), 1, ownOutbox, ownPublication)
		s.relay()
		consumer := s.cluster.Consume(t, s.topic)
		tx := s.begin()
		in(t, tx,
			`INSERT INTO outbox VALUES (1, 'orders', 'k', 'e', '{}')`,
			`ALTER TABLE outbox ADD COLUMN tenant text`,
			`INSERT INTO outbox VALUES (2, 'orders', 'k', 'e', '{}', 't')`,
			`ALTER TABLE outbox DROP COLUMN event_type`,
			`INSERT INTO outbox VALUES (3, 'orders', 'k', '{"x":3}', 't')`)
		commit(t, tx)
		s.db.Exec(t, `INSERT INTO outbox VALUES (4, 'orders', 'k', '{"x":4}', 't')`)

		records := consumer.WaitFor(t, 4, wait)
		require.Equal(t, []string{"1", "2", "3", "4"}, delivered(records))
		for i, want := range []string{`{}`, `{}`, `{"x": 3}`, `{"x": 4}`} {
			require.Equal(t, want, string(records[i].Value))
			require.Equal(t, "k", string(records[i].Key))
		}
		require.Equal(t, "e", judge.Header(records[1], "eventType"))
		require.Empty(t, judge.Header(records[2], "eventType"))
	})
}

// A prepared transaction is delivered when it is committed, and in that place.
func TestDelivery_TwoPhase(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newOwn(t, testenv.Postgres(t, major), testenv.Kafka(t), 1, ownOutbox, ownPublication)
		s.relay()
		consumer := s.cluster.Consume(t, s.topic)
		// A global name belongs to the server, which other tests use too.
		prepare := func(n int) (name string) {
			name = fmt.Sprintf("'%s-%d'", s.slot, n)
			in(t, s.begin(), fmt.Sprintf(`INSERT INTO outbox VALUES (%d, 'orders', 'k', 'e', '{"n": %[1]d}')`, n),
				`PREPARE TRANSACTION `+name)
			return name
		}
		committed, rolledBack := prepare(1), prepare(3)
		s.insertOwn(2, "k", `{"n": 2}`)
		require.Equal(t, []string{"2"}, delivered(consumer.WaitFor(t, 1, wait)))
		s.caughtUp() // a prepared transaction must not hold up confirmation
		require.EqualValues(t, 1, s.ends(s.topic).Sum())

		s.db.Exec(t, `ROLLBACK PREPARED `+rolledBack)
		s.db.Exec(t, `COMMIT PREPARED `+committed)
		s.insertOwn(4, "k", `{"n": 4}`)
		require.Equal(t, []string{"1", "4"}, delivered(consumer.WaitFor(t, 2, wait)))
	})
}
