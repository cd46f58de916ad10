package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// row is an outbox row with everything that can be wrong about it. Empty fields have defaults.
type row struct {
	aggregate string // "NULL" for that
	key       string
	payload   string
	headers   string
	ahead     string // of now, for the timestamp column
}

func (s *setup) insertRow(n int, r row) {
	s.t.Helper()
	s.db.Exec(s.t, `INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload, headers, created_at)
		VALUES ($1, CASE $2 WHEN '' THEN 'orders' WHEN 'NULL' THEN NULL ELSE $2 END, coalesce(nullif($3, ''), 'k'), 'created',
			coalesce(nullif($4, ''), '{"n": 1}')::jsonb, nullif($5, '')::jsonb, now() + $6::text::interval)`,
		eventID(n), r.aggregate, r.key, r.payload, r.headers, "0 "+r.ahead)
}

// topicLimit is max.message.bytes of the topics of these tests.
const topicLimit = 20000

func text(bytes int) string { return `"` + strings.Repeat("x", bytes) + `"` }

// poisons are the ways in which an event cannot be delivered, on real servers.
var poisons = []struct {
	name, reason string
	row          row
	topic        string // behind the prefix; empty: none could be derived
}{
	{name: "oversize", reason: "max.message.bytes of the topic is 20000", row: row{payload: text(30000)}, topic: "orders"},
	{name: "topic name", reason: "the topic name has a character other than", row: row{aggregate: "no topic"}},
	{name: "no aggregate type", reason: "aggregatetype", row: row{aggregate: "NULL"}},
	{name: "headers", reason: "headers are not a JSON object", row: row{headers: `[1, "a"]`}, topic: "orders"},
	{
		name: "header name", reason: "a name is one that walrelay sets",
		row: row{headers: `{"walrelay-position": "x"}`}, topic: "orders",
	},
	{
		name: "timestamp", reason: "the record timestamp is outside what the topic accepts",
		row: row{ahead: "3 hours"}, topic: "orders",
	},
}

func newPoisoned(t *testing.T, server *testenv.Server, policy string) *setup {
	t.Helper()
	return newPoisonedOn(t, server, testenv.Kafka(t), policy)
}

func newPoisonedOn(t *testing.T, server *testenv.Server, cluster *testenv.Cluster, policy string) *setup {
	t.Helper()
	s := newSetup(t, server, cluster, 1)
	s.db.Exec(t, "ALTER TABLE public.outbox ALTER aggregatetype DROP NOT NULL")
	s.limit(s.topic, topicLimit)
	s.cluster.CreateTopic(t, s.dead(), 1, nil)
	s.set("WALRELAY_DEAD_LETTER_TOPIC", s.dead())
	s.set("WALRELAY_ON_POISON", policy)
	s.set("WALRELAY_COLUMN_TIMESTAMP", "created_at")
	return s
}

func (s *setup) dead() string { return s.prefix + "dead" }

// limit sets max.message.bytes of a topic.
func (s *setup) limit(topic string, bytes int) {
	s.t.Helper()
	s.alter(topic, "max.message.bytes", fmt.Sprint(bytes))
}

// alter sets a configuration of a topic, and waits until a broker has it: the controller answers before.
func (s *setup) alter(topic, name, value string) {
	s.t.Helper()
	answers, err := s.cluster.Admin.AlterTopicConfigs(context.Background(),
		[]kadm.AlterConfig{{Name: name, Value: &value}}, topic)
	require.NoError(s.t, err)
	require.NoError(s.t, answers[0].Err)
	require.Eventually(s.t, func() bool {
		topics, err := s.cluster.Admin.DescribeTopicConfigs(context.Background(), topic)
		return err == nil && slices.ContainsFunc(topics[0].Configs, func(c kadm.Config) bool {
			return c.Key == name && c.MaybeValue() == value
		})
	}, wait, tick)
}

// stuck waits until the relay is stuck at the event and says why, and returns where.
func (s *setup) stuck(n int, reason string) checkpoint.Position {
	s.t.Helper()
	body := s.ready(503, "stuck", eventID(n), "outbox", reason, "--verdict retry|skip|dead-letter")
	at := regexp.MustCompile(`release: walrelay stream release (\S+) `).FindStringSubmatch(body)
	require.NotNil(s.t, at, body)
	require.Contains(s.t, body, "position: "+at[1]+"\n")
	position, err := checkpoint.ParsePosition(at[1])
	require.NoError(s.t, err)
	return position
}

// holds expects that a stuck relay keeps slot and connection, and confirms nothing of the event.
func (s *setup) holds(at checkpoint.Position) {
	s.t.Helper()
	var replied, later time.Time // nothing was replied for the first moments, and the state is catchup in them
	const query = `SELECT coalesce(r.reply_time, r.backend_start)
		FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid
		WHERE s.slot_name = $1 AND s.active AND r.state = 'streaming'`
	require.Eventually(s.t, func() bool { return s.db.QueryRow(s.t, query, s.slot).Scan(&replied) == nil }, wait, tick)
	s.db.Exec(s.t, "SELECT pg_logical_emit_message(false, 'noise', repeat('x', 1000))")
	require.Eventually(s.t, func() bool {
		require.NoError(s.t, s.db.QueryRow(s.t, query, s.slot).Scan(&later))
		return later.Sub(replied) > time.Second/2 // a few status reports
	}, wait, tick)
	require.LessOrEqual(s.t, s.confirmed(), at.LSN)
}

// letter is the row of walrelay.dead_letters about an event.
type letter struct {
	position, table, topic, reason, action string
	key, payload                           []byte
	size                                   int
	follow                                 bool
}

// letter waits for it, since it is written after the dead-letter topic has the record.
func (s *setup) letter(n int) (l letter) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		err := s.db.QueryRow(s.t, `SELECT position, table_name, topic, reason, action, key_digest, payload_digest,
			size, follow FROM walrelay.dead_letters WHERE stream = $1 AND event_id = $2`, s.slot, eventID(n)).
			Scan(&l.position, &l.table, &l.topic, &l.reason, &l.action, &l.key, &l.payload, &l.size, &l.follow)
		return err == nil
	}, wait, tick)
	return l
}

// With the default policy a poison event stops the stream where it is, and the operator's word lets
// it go on.
func TestPoison_Stop(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newPoisoned(t, testenv.Postgres(t, major), "stop")
		f := follow(s)
		dead := s.cluster.Consume(t, s.dead())
		relay := s.relay()
		f.delivers()
		for i, p := range poisons {
			t.Log(p.name)
			n, after := f.number(), f.number()
			s.insertRow(n, p.row)
			s.insert(after, "k", `{}`)
			at := s.stuck(n, p.reason)
			relay.WaitForLog(t, `"to_go_on":"walrelay stream release `+at.String()+` --verdict`, wait)
			s.holds(at)
			require.Empty(t, f.consumer.Rest(t, 200*time.Millisecond))
			require.Equal(t, float64(i+1), s.metric("walrelay_poison_events_total", `action="stopped"`))

			verdict, action := "skip", "skipped"
			if i%2 == 0 {
				verdict, action = "dead-letter", "dead-lettered"
			}
			s.run("stream", "release", at.String(), "--verdict", verdict)
			f.sees(after)
			s.ready(200)
			l := s.letter(n)
			require.Equal(t, [2]string{at.String(), action}, [2]string{l.position, l.action})
			require.Equal(t, p.topic != "", l.topic != "")
			if verdict == "dead-letter" {
				record := dead.WaitFor(t, 1, wait)[0]
				require.Equal(t, eventID(n), judge.Header(record, "id"))
			}
		}
		require.Empty(t, dead.Rest(t, 200*time.Millisecond))
		s.stop(relay)
		s.relay()
		f.delivers()
		s.ready(200)
	})
}

// A verdict holds whenever it is given and whatever happens to the process.
func TestPoison_Release(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newPoisoned(t, testenv.Postgres(t, major), "stop")
		f := follow(s)
		relay := s.relay()
		stuck := func() (checkpoint.Position, int) {
			t.Helper()
			n, after := f.number(), f.number()
			s.insertRow(n, row{payload: text(30000)})
			s.insert(after, "k", `{}`)
			return s.stuck(n, "max.message.bytes"), after
		}

		t.Log("retry, before and after the cause is mended")
		at, after := stuck()
		s.run("stream", "release", at.String(), "--verdict", "retry")
		require.Eventually(t, func() bool { return strings.Count(relay.Log(), "stream is stuck") == 2 }, wait, tick)
		require.Equal(t, at, s.stuck(after-1, "max.message.bytes"))
		s.limit(s.topic, 40000)
		s.run("stream", "release", at.String(), "--verdict", "retry")
		require.Equal(t, text(30000), string(f.sees(after-1).Value))
		f.sees(after)
		s.limit(s.topic, topicLimit)

		t.Log("given while down")
		// The relay learns the new limit at the latest when the topic has refused an event.
		at, after = stuck()
		s.stop(relay)
		require.LessOrEqual(t, s.confirmed(), at.LSN)
		require.Contains(t, s.run("stream", "release", at.String(), "--verdict", "skip"), at.String())
		require.Contains(t, s.run("stream", "show"), at.String()+" skip")
		relay = s.relay()
		f.sees(after)

		t.Log("a kill between carrying it out and confirming")
		s.stop(relay)
		s.confirms(seldom)
		relay = s.relay()
		at, after = stuck()
		s.run("stream", "release", at.String(), "--verdict", "skip")
		relay.Kill(t)
		relay = s.relay()
		f.sees(after)
		relay.WaitForLog(t, "event is not delivered", wait)
		require.LessOrEqual(t, s.confirmed(), at.LSN)
		relay.Kill(t)
		s.confirms(often)
		relay = s.relay()
		f.delivers()
		s.ready(200)
		require.Equal(t, "skipped", s.letter(after-1).action)
		require.Eventually(t, func() bool { return !strings.Contains(s.run("stream", "show"), "verdict") }, wait, 10*tick)

		require.Contains(t, s.fails(2, "stream", "release", "1/2", "--verdict", "skip"), "not a position")
		require.Contains(t, s.fails(2, "stream", "release", at.String(), "--verdict", "drop"), "verdict")
	})
}

// Dead letters keep what the event was; skipped events leave their trace in the ledger.
func TestPoison_Policies(t *testing.T) {
	t.Parallel()
	for policy, action := range map[string]string{"dead-letter": "dead-lettered", "skip": "skipped"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			testenv.ForMajors(t, func(t *testing.T, major int) {
				s := newPoisoned(t, testenv.Postgres(t, major), policy)
				f := follow(s)
				dead := s.cluster.Consume(t, s.dead())
				relay := s.relay()
				letters := map[string]int{}
				var first int
				for i, p := range poisons {
					f.delivers()
					n := f.number()
					if i == 0 {
						first = n
					}
					p.row.key = fmt.Sprint("key-", i)
					if p.row.headers == "" {
						p.row.headers = `{"tenant": "t1", "n": 12345678901234567890}`
					}
					s.insertRow(n, p.row)
					letters[eventID(n)] = i
				}
				f.delivers()
				if policy == "dead-letter" {
					for _, record := range dead.WaitFor(t, len(poisons), wait) {
						i := letters[judge.Header(record, "id")]
						s.isLetter(record, i, first+2*i)
					}
				}
				require.Empty(t, dead.Rest(t, 200*time.Millisecond))
				require.Eventually(t, func() bool {
					return s.metric("walrelay_poison_events_total", `action="`+action+`"`) == float64(len(poisons)) &&
						strings.Count(relay.Log(), "event is not delivered") == len(poisons)
				}, wait, tick)
				s.ready(200)
				for i, p := range poisons {
					l := s.letter(first + 2*i)
					require.Equal(t, action, l.action)
					require.Equal(t, "public.outbox", l.table)
					require.Contains(t, l.reason, p.reason)
					key := sha256.Sum256([]byte(fmt.Sprint("key-", i)))
					require.Equal(t, key[:], l.key)
					topic := ""
					if p.topic != "" {
						topic = s.prefix + p.topic
					}
					require.Equal(t, topic, l.topic)
					require.Greater(t, l.size, 100)
				}
				end := s.lsn("pg_current_wal_lsn()")
				f.delivers()
				require.Eventually(t, func() bool { return s.confirmed() > end }, wait, tick)
			})
		})
	}
}

// isLetter checks one dead letter of the kind poisons[i], event n.
func (s *setup) isLetter(record *kgo.Record, i, n int) {
	t, p := s.t, poisons[i]
	require.Equal(t, eventID(n), judge.Header(record, "id"))
	require.Equal(t, fmt.Sprint("key-", i), string(record.Key))
	payload := p.row.payload
	if payload == "" {
		payload = `{"n": 1}`
	}
	require.Equal(t, payload, string(record.Value))
	require.Equal(t, s.slot, judge.Header(record, "walrelay-stream"))
	require.Empty(t, judge.Header(record, "walrelay-position")) // no fence: letters of several topics share a partition
	require.Equal(t, s.letter(n).position, judge.Header(record, "walrelay-source-position"))
	require.Contains(t, judge.Header(record, "walrelay-dead-letter-reason"), p.reason)
	require.Equal(t, s.letter(n).topic, judge.Header(record, "walrelay-dead-letter-topic"))
	require.Equal(t, "created", judge.Header(record, "eventType"))
	if p.row.headers != "" {
		require.Equal(t, p.row.headers, judge.Header(record, "walrelay-dead-letter-headers"))
		return
	}
	require.Equal(t, "t1", judge.Header(record, "tenant"))
	require.Equal(t, "12345678901234567890", judge.Header(record, "n"))
}

// Later events of a dead-lettered key follow it, also after a restart; others go their way.
func TestPoison_FollowKey(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newPoisoned(t, testenv.Postgres(t, major), "dead-letter")
		s.set("WALRELAY_DEAD_LETTER_FOLLOW_KEY", "true")
		f := follow(s)
		dead := s.cluster.Consume(t, s.dead())
		relay := s.relay()
		send := func(r row) int {
			n := f.number()
			s.insertRow(n, r)
			return n
		}
		want := []int{send(row{key: "bad", payload: text(30000)}), send(row{key: "bad"})}
		f.sees(send(row{key: "good"}))
		s.stop(relay)
		s.relay()
		want = append(want, send(row{key: "bad"}))
		f.sees(send(row{key: "good"}))
		for i, record := range dead.WaitFor(t, len(want), wait) {
			require.Equal(t, eventID(want[i]), judge.Header(record, "id"))
			require.Equal(t, s.topic, judge.Header(record, "walrelay-dead-letter-topic"))
			l := s.letter(want[i])
			require.True(t, l.follow)
			require.Equal(t, "dead-lettered", l.action)
			require.Equal(t, i > 0, strings.Contains(l.reason, "follows a dead-lettered event of its key"), l.reason)
		}
	})
}

// What does not fit the dead-letter topic either is only let go while its row can still be read.
func TestPoison_Unfit(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newPoisoned(t, testenv.Postgres(t, major), "dead-letter")
		s.limit(s.dead(), topicLimit)
		f := follow(s)
		dead := s.cluster.Consume(t, s.dead())
		relay := s.relay()

		n := f.number()
		s.insertRow(n, row{payload: text(30000)})
		f.delivers()
		require.Eventually(t, func() bool {
			return s.metric("walrelay_poison_events_total", `action="unfit"`) == 1
		}, wait, tick)
		l := s.letter(n)
		require.Equal(t, "unfit", l.action)
		require.Contains(t, l.reason, "larger than the dead-letter topic's max.message.bytes")
		digest := sha256.Sum256([]byte(text(30000)))
		require.Equal(t, digest[:], l.payload)
		s.ready(200)

		n = f.number()
		s.db.Exec(t, `CREATE FUNCTION gone() RETURNS trigger LANGUAGE plpgsql
			AS 'BEGIN DELETE FROM outbox WHERE id = NEW.id; RETURN NULL; END'`)
		s.db.Exec(t, "CREATE TRIGGER gone AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION gone()")
		s.insertRow(n, row{payload: text(30000)})
		at := s.stuck(n, "its row is not in public.outbox any more")
		s.holds(at)
		s.run("stream", "release", at.String(), "--verdict", "dead-letter") // which fails again, once
		require.Eventually(t, func() bool { return strings.Count(relay.Log(), "stream is stuck") == 2 }, wait, tick)
		require.Equal(t, at, s.stuck(n, "its row is not in public.outbox any more"))
		s.holds(at)
		require.Equal(t, 2, strings.Count(relay.Log(), "stream is stuck"))
		s.run("stream", "release", at.String(), "--verdict", "skip")
		f.delivers()
		s.ready(200)
		require.Equal(t, "skipped", s.letter(n).action)
		require.Empty(t, dead.Rest(t, 200*time.Millisecond))
	})
}
