package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// lettered inserts an event that becomes a letter, and waits until that is recorded.
func (s *setup) lettered(n int, r row) (letter, string) {
	s.t.Helper()
	s.insertRow(n, r)
	l := s.letter(n)
	return l, l.position
}

// redriven requires that a record is the event n's, as the stream would have published it but for the mark.
func (s *setup) redriven(record *kgo.Record, n int, r row) {
	t := s.t
	t.Helper()
	require.Equal(t, eventID(n), judge.Header(record, "id"))
	require.Equal(t, r.key, string(record.Key))
	require.Equal(t, r.payload, string(record.Value))
	var names []string
	for _, h := range record.Headers {
		names = append(names, h.Key)
	}
	want := []string{"id", "walrelay-stream", "walrelay-replay", "walrelay-commit-time", "eventType"}
	if r.headers != "" {
		want = append(want, "n", "tenant") // as jsonb sorts them
		require.Equal(t, "t1", judge.Header(record, "tenant"))
		require.Equal(t, "12345678901234567890", judge.Header(record, "n"))
	}
	require.Equal(t, want, names)
	require.Equal(t, s.slot, judge.Header(record, "walrelay-stream"))
	require.Equal(t, "dead-letters", judge.Header(record, "walrelay-replay"))
}

// An oversize event is a dead letter, the limit is raised, and the consumer gets it as it was.
func TestDeadLetters_Redrive(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{"at-least-once", "exactly-once"} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			testenv.ForMajors(t, func(t *testing.T, major int) {
				s := newPoisoned(t, testenv.Postgres(t, major), "dead-letter")
				consume := s.cluster.Consume
				if delivery == "exactly-once" {
					s.set("WALRELAY_DELIVERY", delivery)
					s.set("WALRELAY_STATE_TOPIC", s.prefix+"state")
					s.cluster.CreateTopic(t, s.prefix+"state", 1, map[string]string{"cleanup.policy": "compact"})
					consume = s.cluster.ConsumeCommitted
				}
				s.relay()
				events := consume(t, s.topic)
				dead := consume(t, s.dead())
				large := row{key: "large", payload: text(30000), headers: `{"tenant": "t1", "n": 12345678901234567890}`}
				_, position := s.lettered(1, large)
				s.lettered(2, row{key: "b", headers: "[1]"})
				s.lettered(3, row{key: "c", aggregate: "no topic"})
				dead.WaitFor(t, 3, wait)

				listed := s.run("deadletters", "list")
				require.Equal(t, 3, strings.Count(listed, "dead-lettered"))
				require.Contains(t, listed, position)
				require.NotContains(t, listed, "xxx")
				var letters []map[string]any
				require.NoError(t, json.Unmarshal([]byte(s.run("deadletters", "list", "--json")), &letters))
				require.Len(t, letters, 3)
				require.Equal(t, position, letters[0]["position"])
				require.Equal(t, s.topic, letters[0]["topic"])
				require.Nil(t, letters[0]["redriven_at"])

				t.Log("while the cause persists")
				require.Contains(t, s.run("deadletters", "redrive", position, "--dry-run"),
					"to "+s.topic+", from "+s.dead()+"-0 at offset 0")
				require.Contains(t, s.fails(1, "deadletters", "redrive", position), "max.message.bytes of the topic is 20000")
				require.Len(t, s.lettersLeft(), 3)

				t.Log("once it is mended")
				s.limit(s.topic, 100_000)
				require.Contains(t, s.run("deadletters", "redrive", "--reason", "max.message.bytes"), "1 events were redriven")
				s.redriven(events.WaitFor(t, 1, wait)[0], 1, large)
				require.Len(t, s.lettersLeft(), 2)
				require.Contains(t, s.run("deadletters", "list", "--all"), "redriven 20")
				require.Contains(t, s.fails(1, "deadletters", "redrive", position), "was redriven at")
				require.Contains(t, s.run("deadletters", "redrive", "--meant-for", s.topic+"x"), "0 events")

				t.Log("those that cannot be, and to another topic")
				require.Contains(t, s.fails(1, "deadletters", "redrive", "--all"), "--to")
				require.Contains(t, s.fails(1, "deadletters", "redrive", "--all", "--to", s.topic),
					"1 events were redriven, 1 stay")
				record := events.WaitFor(t, 1, wait)[0]
				require.Equal(t, eventID(3), judge.Header(record, "id"))
				require.Equal(t, `{"n": 1}`, string(record.Value))
				require.Empty(t, events.Rest(t, 200*time.Millisecond))

				t.Log("the stream goes on beside it")
				s.insert(4, "k", `{}`)
				require.Equal(t, eventID(4), judge.Header(events.WaitFor(t, 1, wait)[0], "id"))

				require.Contains(t, s.fails(2, "deadletters", "redrive"), "say which letters")
				require.Contains(t, s.fails(2, "deadletters", "redrive", position, "--all"), "exclude")
				require.Contains(t, s.fails(2, "deadletters", "redrive", "1/2"), "not a position")
				require.Contains(t, s.fails(1, "deadletters", "redrive", strings.Replace(position, "00000001", "00000009", 1)),
					"there is no letter at")
			})
		})
	}
}

func (s *setup) lettersLeft() (ids []string) {
	s.t.Helper()
	var letters []struct {
		ID string `json:"event_id"`
	}
	require.NoError(s.t, json.Unmarshal([]byte(s.run("deadletters", "list", "--json")), &letters))
	for _, l := range letters {
		ids = append(ids, l.ID)
	}
	return ids
}

// Letters of a key are redriven in their order, none before one that stays, and then the key is free again.
func TestDeadLetters_FollowKey(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newPoisoned(t, testenv.Postgres(t, major), "dead-letter")
		s.set("WALRELAY_DEAD_LETTER_FOLLOW_KEY", "true")
		relay := s.relay()
		events := s.cluster.Consume(t, s.topic)
		s.lettered(1, row{key: "bad", payload: text(30000)})
		s.lettered(2, row{key: "bad"})
		s.lettered(3, row{key: "other", payload: text(30000)})
		s.lettered(4, row{key: "bad"})
		s.stop(relay)

		out := s.fails(1, "deadletters", "redrive", "--all", "--release-keys")
		require.Equal(t, 2, strings.Count(out, "an earlier one of its key stays"), out)
		require.Contains(t, out, "0 keys are released")
		require.Empty(t, events.Rest(t, 200*time.Millisecond))

		s.limit(s.topic, 100_000)
		out = s.run("deadletters", "redrive", "--all", "--release-keys")
		require.Contains(t, out, "4 events were redriven")
		require.Contains(t, out, "2 keys are released")
		order := map[string][]string{}
		for _, r := range events.WaitFor(t, 4, wait) {
			order[string(r.Key)] = append(order[string(r.Key)], judge.Header(r, "id"))
		}
		require.Equal(t, map[string][]string{"bad": {eventID(1), eventID(2), eventID(4)}, "other": {eventID(3)}}, order)
		s.relay()
		s.insertRow(5, row{key: "bad"})
		record := events.WaitFor(t, 1, wait)[0]
		require.Equal(t, eventID(5), judge.Header(record, "id"))
		require.NotEmpty(t, judge.Header(record, "walrelay-position"))
	})
}

// Killed between the brokers' acknowledgement and the mark, it repeats the event, with the same id.
func TestDeadLetters_Killed(t *testing.T) {
	t.Parallel()
	s := newPoisoned(t, testenv.Postgres(t, lastMajor()), "dead-letter")
	s.relay()
	events := s.cluster.Consume(t, s.topic)
	large := row{key: "k", payload: text(30000)}
	_, position := s.lettered(1, large)
	s.limit(s.topic, 100_000)

	held := s.begin()
	in(t, held, "SELECT FROM walrelay.dead_letters FOR UPDATE") // so that the mark waits
	p := testenv.StartProcess(t, testenv.Command{
		Path: testenv.Binary(t), Args: []string{"deadletters", "redrive", position}, Env: s.env,
	})
	s.redriven(events.WaitFor(t, 1, wait)[0], 1, large)
	second := s.fails(1, "deadletters", "redrive", position)
	require.Contains(t, second, "by another process")
	p.Kill(t)
	require.Eventually(t, func() bool {
		s.db.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) // which would write the mark all the same
		var left int
		require.NoError(t, held.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks
			WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).
			Scan(&left))
		return left == 0
	}, wait, tick)
	commit(t, held)
	require.Equal(t, []string{eventID(1)}, s.lettersLeft())
	require.Contains(t, s.run("deadletters", "redrive", position), "1 events were redriven")
	s.redriven(events.WaitFor(t, 1, wait)[0], 1, large)
	require.Empty(t, s.lettersLeft())
}

// What is not in the dead-letter topic is read from the outbox table, while that has it as it was.
func TestDeadLetters_FromTheTable(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newPoisoned(t, testenv.Postgres(t, major), "skip")
		relay := s.relay()
		events := s.cluster.Consume(t, s.topic)
		_, skipped := s.lettered(1, row{key: "k1", payload: text(30000)})
		s.lettered(2, row{key: "k2", payload: text(30000)})
		_, changed := s.lettered(3, row{key: "k3", payload: text(30000)})
		s.stop(relay)
		s.set("WALRELAY_ON_POISON", "dead-letter")
		s.limit(s.dead(), 40000)
		s.relay()
		s.lettered(4, row{key: "k4", payload: text(50000)}) // unfit
		_, gone := s.lettered(5, row{key: "k5", payload: text(30000)})
		_, lost := s.lettered(6, row{key: "k6", payload: text(30000)})
		s.limit(s.topic, 100_000)

		require.Contains(t, s.run("deadletters", "redrive", skipped, "--dry-run"), "from its row in public.outbox")
		s.run("deadletters", "redrive", skipped)
		record := events.WaitFor(t, 1, wait)[0]
		require.Equal(t, eventID(1), judge.Header(record, "id"))
		require.Equal(t, text(30000), string(record.Value))
		require.Equal(t, "dead-letters", judge.Header(record, "walrelay-replay"))

		// Everything that the dead-letter topic had is removed, as by its retention.
		offsets := kadm.Offsets{}
		offsets.AddOffset(s.dead(), 0, -1, -1)
		answers, err := s.cluster.Admin.DeleteRecords(t.Context(), offsets)
		require.NoError(t, err)
		require.NoError(t, answers.Error())
		s.db.Exec(t, "DELETE FROM outbox WHERE id = $1", eventID(6))
		s.db.Exec(t, `UPDATE outbox SET payload = '{"n": 2}' WHERE id = $1`, eventID(3))
		require.Contains(t, s.fails(1, "deadletters", "redrive", lost), "does not have it any more")
		require.Contains(t, s.fails(1, "deadletters", "redrive", changed), "another key or payload")
		require.Contains(t, s.run("deadletters", "redrive", gone), "1 events were redriven")
		require.Contains(t, s.fails(1, "deadletters", "redrive", "--all"), "1 events were redriven, 1 stay")
		ids := fmt.Sprint(delivered(events.WaitFor(t, 2, wait)))
		require.Equal(t, fmt.Sprint([]string{eventID(5), eventID(4)}), ids)
		require.Equal(t, []string{eventID(2), eventID(3), eventID(6)}, s.lettersLeft(), "skipped ones only when asked for")
	})
}

// A skipped event whose record has a format is made of its row again: the record is the stream's, its partition too.
func TestDeadLetters_ShapedFromTheTable(t *testing.T) {
	t.Parallel()
	s := newPoisoned(t, testenv.Postgres(t, lastMajor()), "skip")
	s.db.Exec(t, "ALTER TABLE public.outbox ADD shard int DEFAULT 2")
	shards := s.prefix + "shards"
	s.cluster.CreateTopic(t, shards, 3, nil)
	s.limit(shards, topicLimit)
	for name, value := range map[string]string{
		"KEY_FORMAT": "json", "VALUE_FORMAT": "json-schema", "ADDITIONAL_COLUMNS": "type:envelope:kind,shard:partition",
	} {
		s.set("WALRELAY_"+name, value)
	}
	s.relay()
	events := s.cluster.Consume(t, shards)
	large := row{aggregate: "shards", key: "k", payload: text(30000)}
	_, position := s.lettered(1, large)
	s.limit(shards, 100_000)
	require.Contains(t, s.run("deadletters", "redrive", position, "--dry-run"),
		"to "+shards+", from its row in public.outbox")
	s.run("deadletters", "redrive", position)
	redriven := events.WaitFor(t, 1, wait)[0]
	require.Equal(t, "dead-letters", judge.Header(redriven, "walrelay-replay"))
	s.insertRow(2, large)
	streamed := events.WaitFor(t, 1, wait)[0]
	require.Equal(t, eventID(1)+eventID(2), judge.Header(redriven, "id")+judge.Header(streamed, "id"))
	require.Equal(t, `"k"`, string(redriven.Key))
	require.Contains(t, string(redriven.Value), `.public.outbox.shards.Value"`)
	require.Equal(t, string(streamed.Value), string(redriven.Value))
	require.Equal(t, []int32{2, 2}, []int32{streamed.Partition, redriven.Partition})
}
