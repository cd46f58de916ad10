package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/kit/outbox"
	"github.com/walrelay/walrelay/testenv"
)

// withMessages makes events of logical messages.
func withMessages(s *setup) *setup {
	s.set("WALRELAY_MESSAGE_PREFIX", "app.outbox")
	return s
}

// emitSQL writes one event as a logical message; json keeps the payload's text.
const emitSQL = `SELECT pg_logical_emit_message(true, 'app.outbox', json_build_object('id', $1::text,
	'aggregatetype', 'orders', 'aggregateid', $2::text, 'type', 'created', 'payload', $3::json)::text)`

func (s *setup) emit(n int, key, payload string) {
	s.t.Helper()
	s.db.Exec(s.t, emitSQL, eventID(n), key, payload)
}

// emitRaw writes any content.
func (s *setup) emitRaw(content string) {
	s.t.Helper()
	s.db.Exec(s.t, "SELECT pg_logical_emit_message(true, 'app.outbox', $1::text)", content)
}

// Messages alone, with everything that an envelope may hold, and without what is no event.
func TestMessage(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := withMessages(newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1))
		relay := s.relay()
		consumer := s.consume(s.topic)
		raw := `{"b":1.10, "a" : 12345678901234567890,"a":[ ] , "é":"\u00e9"}`
		s.emit(1, "k", raw)
		s.db.Exec(t, "SELECT pg_logical_emit_message(true, 'app.outbox2', '{}')")
		s.db.Exec(t, "SELECT pg_logical_emit_message(true, 'App.outbox', 'x')")
		s.db.Exec(t, "SELECT pg_logical_emit_message(false, 'other', 'x')")
		for range 3 { // not transactional: whatever they hold
			s.db.Exec(t, "SELECT pg_logical_emit_message(false, 'app.outbox', $1::text)",
				`{"id":"stray","aggregatetype":"orders","aggregateid":"k","payload":{}}`)
		}
		s.db.Exec(t, "SELECT pg_logical_emit_message(false, 'app.outbox', 'malformed')")
		s.emitRaw(`{"payload":null, "id":"text id", "aggregatetype":"orders", "aggregateid":null, "further":[{"id":1}],
			"headers":{"traceparent":"00-1","n":1.0,"none":null}, "timestamp":"2026-01-02T13:04:05.5+01:00"}`)
		s.db.Exec(t, "SELECT pg_logical_emit_message(true, 'app.outbox', convert_to($1, 'UTF8'))", // bytea
			`{"id":"3","aggregatetype":"orders","aggregateid":"","type":null,"payload":"text"}`)

		records := consumer.WaitFor(t, 3, wait)
		require.Equal(t, []string{eventID(1), "text id", "3"}, delivered(records))
		require.Equal(t, raw, string(records[0].Value))
		require.Equal(t, "k", string(records[0].Key))
		require.Equal(t, "created", judge.Header(records[0], "eventType"))
		require.Nil(t, records[1].Value)
		require.Nil(t, records[1].Key)
		require.Equal(t, "00-1", judge.Header(records[1], "traceparent"))
		require.Equal(t, "1.0", judge.Header(records[1], "n"))
		require.True(t, records[1].Timestamp.Equal(time.Date(2026, 1, 2, 12, 4, 5, 500_000_000, time.UTC)))
		require.Equal(t, `"text"`, string(records[2].Value))
		require.Equal(t, []byte{}, records[2].Key)
		for _, r := range records {
			require.Equal(t, "-00000000", judge.Header(r, "walrelay-position")[checkpoint.PositionLen-9:])
		}

		s.caughtUp()
		require.Empty(t, consumer.Rest(t, 200*time.Millisecond))
		require.Equal(t, 4.0, s.metric("walrelay_ignored_changes_total", `kind="stray-message"`))
		require.GreaterOrEqual(t, s.metric("walrelay_ignored_changes_total", `kind="message"`), 3.0)
		require.Equal(t, 1, strings.Count(relay.Log(), "that are not transactional are not published"))
		s.stop(relay)
		relay = s.relay()
		s.emit(4, "k", `{}`)
		require.Equal(t, []string{eventID(4)}, delivered(consumer.WaitFor(t, 1, wait)), "nothing is repeated")
		s.stop(relay)
	})
}

// What kit/outbox emits is what the envelope wants.
func TestMessage_Kit(t *testing.T) {
	t.Parallel()
	s := withMessages(newSetup(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1))
	relay := s.relay()
	consumer := s.consume(s.topic)
	ids, err := outbox.Emit(t.Context(), s.db.Conn, "app.outbox",
		outbox.Event{
			AggregateType: "orders", AggregateID: "k<é>", Type: "created", Payload: []byte(`{"b":1.0, "a":"<"}`),
			Headers: map[string]string{"tenant": "t1"},
		},
		outbox.Event{AggregateType: "orders", AggregateID: "k<é>", Type: "gone"})
	require.NoError(t, err)
	records := consumer.WaitFor(t, 2, wait)
	require.Equal(t, ids, delivered(records))
	require.Equal(t, `{"b":1.0, "a":"<"}`, string(records[0].Value))
	require.Equal(t, "k<é>", string(records[0].Key))
	require.Equal(t, "t1", judge.Header(records[0], "tenant"))
	require.Nil(t, records[1].Value)
	require.Equal(t, "gone", judge.Header(records[1], "eventType"))
	s.stop(relay)
}

// Rows and messages of a transaction keep their order and count alike; what is undone never comes.
func TestMessage_Mixed(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := withMessages(newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1))
		relay := s.relay()
		consumer := s.consume(s.topic)
		write := func(tx pgx.Tx, sql string, n int) {
			t.Helper()
			_, err := tx.Exec(t.Context(), sql, eventID(n), "k", `{}`)
			require.NoError(t, err)
		}
		tx := s.begin()
		write(tx, emitSQL, 100)
		write(tx, insertSQL, 101)
		require.NoError(t, tx.Rollback(t.Context()))

		tx = s.begin()
		write(tx, emitSQL, 1)
		write(tx, insertSQL, 2)
		in(t, tx, "SAVEPOINT a")
		write(tx, emitSQL, 102)
		write(tx, insertSQL, 103)
		in(t, tx, "SAVEPOINT b")
		write(tx, emitSQL, 104)
		in(t, tx, "RELEASE b", "ROLLBACK TO a")
		write(tx, emitSQL, 3)
		in(t, tx, "SELECT pg_logical_emit_message(true, 'other', 'x')", "SAVEPOINT c")
		write(tx, emitSQL, 4)
		// The server sorts the levels of a transaction into each other by log position and gives a message that of
		// its end: where a row of another level begins right there, either may come first.
		in(t, tx, "RELEASE c", "SELECT pg_logical_emit_message(true, 'apart', '')")
		write(tx, insertSQL, 5)
		commit(t, tx)
		s.emit(6, "k", `{}`)

		records := consumer.WaitFor(t, 6, wait)
		for i, r := range records {
			require.Equal(t, eventID(i+1), judge.Header(r, "id"))
			require.Equal(t, fmt.Sprintf("-%08X", i%5), judge.Header(r, "walrelay-position")[checkpoint.PositionLen-9:])
		}
		s.caughtUp()
		require.Empty(t, consumer.Rest(t, 200*time.Millisecond))
		s.stop(relay)
	})
}

// malformed are messages that cannot be events, and the id that can be read of them.
var malformed = []struct{ content, id, reason string }{
	{`not JSON`, "", "the content of a message \"app.outbox\" is not JSON"},
	{`["x"]`, "", "is not a JSON object"},
	{`{"id":"no type","aggregateid":"k","payload":{"n":1}}`, "no type", "member aggregatetype of a message"},
	{`{"id":"typo","aggregatetype":"orders","aggregateid":"k","Payload":{}}`, "typo", "member payload of a message"},
	{`{"id":"topic","aggregatetype":"a b","aggregateid":"k","payload":{}}`, "topic", "the topic name has a character"},
	{`{"id":"head","aggregatetype":"orders","aggregateid":"k","payload":{},"headers":[]}`, "head", "headers are not"},
	{`{"id":"time","aggregatetype":"orders","aggregateid":"k","payload":{},"timestamp":"noon"}`, "time", "not a time"},
}

// stuckMessage waits until the relay is stuck at a message and returns where.
func (s *setup) stuckMessage(id, reason string) string {
	s.t.Helper()
	body := s.ready(503, "stuck", id, `messages "app.`, strings.ReplaceAll(reason, `"`, ``)[:10], "--verdict retry|skip")
	_, at, found := strings.Cut(body, "walrelay stream release ")
	require.True(s.t, found, body)
	return at[:checkpoint.PositionLen]
}

// A malformed message is poison like a row that cannot be mapped; nothing before or behind it is touched.
func TestMessage_Malformed(t *testing.T) {
	t.Parallel()
	action := map[string]string{"stop": "", "dead-letter": "dead-lettered", "skip": "skipped"}
	for policy := range action {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			s := withMessages(newPoisoned(t, testenv.Postgres(t, lastMajor()), policy))
			relay := s.relay()
			consumer, dead := s.consume(s.topic), s.cluster.Consume(t, s.dead())
			for i, m := range malformed {
				t.Log(m.content)
				want := action[policy]
				before, after := 2*i+1, 2*i+2
				tx := s.begin() // in the middle of others
				_, err := tx.Exec(t.Context(), emitSQL, eventID(before), "a", `{}`)
				require.NoError(t, err)
				_, err = tx.Exec(t.Context(), "SELECT pg_logical_emit_message(true, 'app.outbox', $1::text)", m.content)
				require.NoError(t, err)
				_, err = tx.Exec(t.Context(), insertSQL, eventID(after), "b", `{}`)
				require.NoError(t, err)
				commit(t, tx)
				if policy == "stop" {
					at := s.stuckMessage(m.id, m.reason)
					require.Equal(t, "-00000001", at[checkpoint.PositionLen-9:])
					if i == 0 { // to no avail
						s.run("stream", "release", at, "--verdict", "retry")
						require.Eventually(t, func() bool { return strings.Count(relay.Log(), "stream is stuck") == 2 }, wait, tick)
						s.stuckMessage(m.id, m.reason)
						relay.Kill(t)
						relay = s.relay()
						s.stuckMessage(m.id, m.reason)
					}
					verdict := "skip"
					want = "skipped"
					if i%2 == 0 {
						verdict, want = "dead-letter", "dead-lettered"
					}
					s.run("stream", "release", at, "--verdict", verdict)
				}
				var got []string // a verdict begins a new session, which repeats what was before it
				for len(got) == 0 || got[len(got)-1] != eventID(after) {
					got = append(got, delivered(consumer.WaitFor(t, 1, wait))...)
				}
				require.Subset(t, []string{eventID(before), eventID(after)}, got)
				require.Equal(t, eventID(before), got[0])
				if want == "dead-lettered" {
					s.isMessageLetter(dead.WaitFor(t, 1, wait)[0], i, policy == "stop")
				}
				var recorded, table, reason string
				require.Eventually(t, func() bool { // the last of as many as were sent
					return s.db.QueryRow(t, `SELECT action, table_name, reason FROM walrelay.dead_letters
						WHERE stream = $1 ORDER BY position OFFSET $2`, s.slot, i).Scan(&recorded, &table, &reason) == nil &&
						(strings.Contains(reason, m.reason) || policy == "stop" && reason == released)
				}, wait, tick)
				require.Equal(t, [2]string{want, `messages "app.outbox"`}, [2]string{recorded, table})
				s.caughtUp() // or the session that the next verdict begins repeats this transaction, too
			}
			require.Empty(t, dead.Rest(t, 200*time.Millisecond))
			s.ready(200)
			s.caughtUp()
			s.stop(relay)
		})
	}
}

// released is the reason where a verdict was carried out before the topic's name was looked at.
const released = "released by the operator"

// isMessageLetter checks the dead letter of malformed[i]: where the envelope is at fault it holds all of it.
func (s *setup) isMessageLetter(record *kgo.Record, i int, verdict bool) {
	s.t.Helper()
	m := malformed[i]
	require.Equal(s.t, m.id, judge.Header(record, "id"))
	value := m.content
	if strings.Contains(m.content, `"payload":{},`) || strings.Contains(m.content, `"a b"`) {
		value = `{}`
	}
	require.Equal(s.t, value, string(record.Value))
	if reason := judge.Header(record, "walrelay-dead-letter-reason"); !verdict || reason != released {
		require.Contains(s.t, reason, m.reason)
	}
	require.NotEmpty(s.t, judge.Header(record, "walrelay-source-position"))
}

// makesRoom raises the topic's limit for the message at which the stream is stuck: it arrives, and then the next.
func (s *setup) makesRoom(consumer *testenv.Consumer, stuck, next string) {
	s.t.Helper()
	at := s.stuckMessage(stuck, "the record takes")
	s.limit(s.topic, 100000)
	s.run("stream", "release", at, "--verdict", "retry")
	require.Equal(s.t, []string{stuck, next}, delivered(consumer.WaitFor(s.t, 2, wait)))
}

// A message that is larger than its topic takes is held back like a row.
func TestMessage_Oversize(t *testing.T) {
	t.Parallel()
	s := withMessages(newPoisoned(t, testenv.Postgres(t, lastMajor()), "stop"))
	relay := s.relay()
	consumer := s.consume(s.topic)
	s.emit(1, "k", text(30000))
	s.emit(2, "k", `{}`)
	s.makesRoom(consumer, eventID(1), eventID(2))
	s.stop(relay)
}

// Whatever moment walrelay is killed at, rows and messages arrive, in order, and once if that is asked for.
func TestMessage_Kill(t *testing.T) {
	t.Parallel()
	setups := map[string]func(*testing.T) *setup{
		"at-least-once": func(t *testing.T) *setup {
			return newSetup(t, testenv.Postgres(t, testenv.Majors()[0]), testenv.Kafka(t), 3)
		},
		"exactly-once": func(t *testing.T) *setup {
			return newExactly(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 3)
		},
	}
	for name, setup := range setups {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const kills = 4
			s := withMessages(setup(t))
			s.set("WALRELAY_BATCH_BYTES", "10000")
			s.set("WALRELAY_TRANSACTION_INTERVAL", "20ms")
			relay := s.relay()
			ledger := judge.NewLedger()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			failed := make(chan error, 1)
			go func() {
				for n := 0; ctx.Err() == nil; n++ {
					if err := s.mix(1+n*37%200, n%7 == 0, ledger); err != nil {
						failed <- err
						return
					}
				}
				failed <- nil
			}()
			for n := range kills {
				s.grows(500)
				s.during(time.Duration(n)*11*time.Millisecond, func() {})
				relay.Kill(t)
				relay = s.relay()
			}
			stop()
			require.NoError(t, <-failed)
			s.caughtUp()
			s.stop(relay)
			v := s.judge(ledger)
			require.Greater(t, v.Committed, 500*kills/2)
			if s.committed {
				require.Zero(t, v.Duplicates)
			}
			t.Logf("%d events, %d duplicates", v.Committed, v.Duplicates)
		})
	}
}

// mix writes a transaction of rows and messages by turns, and rolls it back if so wished.
func (s *setup) mix(size int, undo bool, ledger *judge.Ledger) error {
	first := ledger.Len()
	var batch pgx.Batch
	events := make([]judge.Event, size)
	for i := range events {
		id, key := eventID(first+i), fmt.Sprint(i%5)
		batch.Queue([]string{emitSQL, insertSQL}[i%2], id, key, `{}`)
		events[i] = s.event(id, key, `{}`)
	}
	tx, err := s.db.Conn.Begin(context.Background())
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if err := tx.SendBatch(context.Background(), &batch).Close(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if undo {
		return nil
	}
	if err := tx.Commit(context.Background()); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return ledger.Commit(events...)
}

// With another prefix messages count otherwise, so a new epoch begins, and only then.
func TestMessage_PrefixChanges(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
	f := follow(s)
	relay := s.relay()
	f.delivers()
	s.emit(1000, "k", `{}`)
	f.delivers()
	s.caughtUp()
	s.stop(relay)
	s.emit(1001, "k", `{}`) // not confirmed yet when the prefix is set: it is an event
	withMessages(s)
	relay = s.relay()
	f.sees(1001)
	require.Equal(t, "2", s.registered("epoch"))
	s.stop(relay)
	relay = s.relay()
	f.delivers()
	require.Equal(t, "2", s.registered("epoch"))
	s.stop(relay)
	s.set("WALRELAY_MESSAGE_PREFIX", "")
	relay = s.relay()
	s.emit(1002, "k", `{}`)
	f.delivers()
	require.Equal(t, "3", s.registered("epoch"))
	require.False(t, f.seen[eventID(1000)] || f.seen[eventID(1002)])
	s.stop(relay)
}
