package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/kit/outbox"
	"github.com/walrelay/walrelay/testenv"
)

// withBinary makes events of logical messages with either envelope, and installs the helper that writes them.
func withBinary(s *setup) *setup {
	withMessages(s)
	s.set("WALRELAY_MESSAGE_BINARY_PREFIX", "app.binary")
	s.run("migrate", "up", "--kit")
	return s
}

const emitBinarySQL = `SELECT walrelay_kit.emit('app.binary', '{"aggregatetype": "orders"}', $2, 'created', $3::bytea,
	id => $1)`

// Any bytes, NULL against empty, headers and time, by the SQL helper and by the kit, beside JSON and rows.
func TestMessageBinary(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		for mode, setup := range deliveries() {
			t.Run(mode, func(t *testing.T) {
				s := withBinary(setup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1))
				relay := s.relay()
				consumer := s.consume(s.topic)
				all := make([]byte, 256)
				for i := range all {
					all[i] = byte(i)
				}
				tx := s.begin()
				for n, payload := range [][]byte{all, nil, {}} {
					_, err := tx.Exec(t.Context(), emitBinarySQL, eventID(n+1), "ké", payload)
					require.NoError(t, err)
				}
				in(t, tx, `SELECT walrelay_kit.emit('app.binary', '{"further": null, "aggregatetype": "orders"}', NULL, NULL,
					'\x00', '{"b": "é\"\n", "a": null, "n": 1.0}', 'own id', '2026-01-02 13:04:05.5+01')`)
				_, err := tx.Exec(t.Context(), emitSQL, eventID(5), "k", `{}`)
				require.NoError(t, err)
				_, err = tx.Exec(t.Context(), insertSQL, eventID(6), "k", `{}`)
				require.NoError(t, err)
				kit := outbox.Outbox{Binary: true}
				ids, err := kit.Emit(t.Context(), tx, "app.binary",
					outbox.Event{
						AggregateType: "orders", AggregateID: "k", Type: "paid", Payload: json.RawMessage("\xff\x00"),
						Headers: map[string]string{"tenant": "t1"},
					},
					outbox.Event{AggregateType: "orders", AggregateID: "k", Type: "gone"})
				require.NoError(t, err)
				commit(t, tx)
				gone := s.begin()
				_, err = gone.Exec(t.Context(), emitBinarySQL, eventID(100), "k", []byte{})
				require.NoError(t, err)
				require.NoError(t, gone.Rollback(t.Context()))

				records := consumer.WaitFor(t, 8, wait)
				require.Equal(t, append([]string{eventID(1), eventID(2), eventID(3), "own id", eventID(5), eventID(6)}, ids...),
					delivered(records))
				for i, want := range [][]byte{all, nil, {}, {0}, []byte(`{}`), []byte(`{}`), {0xff, 0}, nil} {
					require.Equal(t, want, records[i].Value)
					require.Equal(t, fmt.Sprintf("-%08X", i), judge.Header(records[i], "walrelay-position")[checkpoint.PositionLen-9:])
				}
				require.Equal(t, "ké", string(records[0].Key))
				require.Equal(t, "created", judge.Header(records[0], "eventType"))
				own := records[3]
				require.Nil(t, own.Key)
				require.True(t, own.Timestamp.Equal(time.Date(2026, 1, 2, 12, 4, 5, 500_000_000, time.UTC)))
				headers := map[string][]byte{}
				for _, h := range own.Headers {
					headers[h.Key] = h.Value
				}
				require.Equal(t, "é\"\n", string(headers["b"]))
				require.Equal(t, "1.0", string(headers["n"]))
				value, there := headers["a"]
				require.True(t, there)
				require.Nil(t, value)
				require.NotContains(t, headers, "eventType")
				require.Equal(t, "t1", judge.Header(records[6], "tenant"))
				s.caughtUp()
				require.Empty(t, consumer.Rest(t, 200*time.Millisecond))
				s.stop(relay)
			})
		}
	})
}

// A message that is malformed, of an unknown version, or too large is poison; its whole content is kept.
func TestMessageBinary_Malformed(t *testing.T) {
	t.Parallel()
	s := withBinary(newPoisoned(t, testenv.Postgres(t, lastMajor()), "dead-letter"))
	relay := s.relay()
	consumer, dead := s.consume(s.topic), s.cluster.Consume(t, s.dead())
	for i, m := range []struct{ content, id, reason string }{
		{"", "", "member version of a message \"app.binary\" is not 1"},
		{`{"id": "json"}`, "", "member version of a message"},
		{"\x01\x00\x00\x00\x01i\x00\x00", "i", "member aggregateid of a message \"app.binary\" is cut off"},
		{
			"\x01\x00\x00\x00\x01i\x00\x00" + strings.Repeat("\xff\xff\xff\xff", 3) + "\x00\x00\xff\xff\xff\xff", "i",
			"member aggregatetype of a message \"app.binary\" is missing",
		},
	} {
		tx := s.begin()
		_, err := tx.Exec(t.Context(), "SELECT pg_logical_emit_message(true, 'app.binary', $1::bytea)", []byte(m.content))
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), emitBinarySQL, eventID(i), "k", []byte{0})
		require.NoError(t, err)
		commit(t, tx)
		letter := dead.WaitFor(t, 1, wait)[0]
		require.Equal(t, m.content, string(letter.Value))
		require.Equal(t, m.id, judge.Header(letter, "id"))
		require.Contains(t, judge.Header(letter, "walrelay-dead-letter-reason"), m.reason)
		require.Equal(t, []string{eventID(i)}, delivered(consumer.WaitFor(t, 1, wait)))
	}
	s.set("WALRELAY_ON_POISON", "stop")
	s.stop(relay)
	relay = s.relay()
	s.db.Exec(t, emitBinarySQL, eventID(10), "k", []byte(text(30000)))
	s.db.Exec(t, emitBinarySQL, eventID(11), "k", []byte{0})
	s.makesRoom(consumer, eventID(10), eventID(11))
	s.stop(relay)
}

// Refused or ignored, a message outside of a transaction is never an event, halts nothing and confirms nothing.
func TestMessage_NotTransactional(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"ignore", "refuse"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			testenv.ForMajors(t, func(t *testing.T, major int) {
				s := withBinary(newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1))
				s.set("WALRELAY_MESSAGE_NONTRANSACTIONAL", policy)
				relay := s.relay()
				consumer := s.consume(s.topic)
				undone := s.begin()
				_, err := undone.Exec(t.Context(), "SELECT pg_logical_emit_message(false, 'app.binary', 'secret'::bytea)")
				require.NoError(t, err)
				require.NoError(t, undone.Rollback(t.Context()))
				s.db.Exec(t, "SELECT pg_logical_emit_message(false, 'app.outbox', 'secret')")
				s.db.Exec(t, "SELECT pg_logical_emit_message(false, 'other', 'x')")
				s.db.Exec(t, emitBinarySQL, eventID(1), "k", []byte{0})
				require.Equal(t, []string{eventID(1)}, delivered(consumer.WaitFor(t, 1, wait)))
				s.caughtUp()
				s.ready(200)
				require.Equal(t, 2.0, s.metric("walrelay_ignored_changes_total", `kind="stray-message"`))
				rows, err := s.db.Conn.Query(t.Context(), `SELECT table_name || ' ' || action || ' ' || size || ' ' || reason
					FROM walrelay.dead_letters WHERE stream = $1 ORDER BY position`, s.slot)
				require.NoError(t, err)
				recorded, err := pgx.CollectRows(rows, pgx.RowTo[string])
				require.NoError(t, err)
				if policy == "ignore" {
					require.Empty(t, recorded)
				} else {
					require.Len(t, recorded, 2)
					require.Contains(t, recorded[0], `messages "app.binary" skipped 6 the message at 0/`)
					require.Contains(t, recorded[1], `messages "app.outbox" skipped 6 the message at 0/`)
					require.Equal(t, 2, strings.Count(relay.Log(), "message is refused"))
					require.Contains(t, s.run("deadletters", "list"), "not transactional")
				}
				require.NotContains(t, relay.Log(), "secret")
				s.stop(relay)
				relay = s.relay()
				s.db.Exec(t, emitBinarySQL, eventID(2), "k", []byte{0})
				require.Equal(t, []string{eventID(2)}, delivered(consumer.WaitFor(t, 1, wait)), "nothing is repeated")
				s.stop(relay)
			})
		})
	}
}
