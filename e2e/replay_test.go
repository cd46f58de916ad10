package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// content is what a replayed record has in common with the stream's: everything but the position, the
// commit time and the mark.
func content(r *kgo.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s-%d %q %q", r.Topic, r.Partition, r.Key, r.Value)
	if r.Key == nil || r.Value == nil {
		fmt.Fprintf(&b, " null: %t %t", r.Key == nil, r.Value == nil)
	}
	for _, h := range r.Headers {
		switch h.Key {
		case "walrelay-position", "walrelay-commit-time", "walrelay-replay":
		default:
			fmt.Fprintf(&b, " %s=%q", h.Key, h.Value)
		}
	}
	return b.String()
}

func contents(records []*kgo.Record) (all []string) {
	for _, r := range records {
		all = append(all, content(r))
	}
	return all
}

// replays are the names of the replays that records belong to.
func replays(records []*kgo.Record) (names []string) {
	for _, r := range records {
		if name := judge.Header(r, "walrelay-replay"); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// awkward inserts rows whose text depends on session settings, or on how NULL is told from nothing.
func (s *setup) awkward() (rows int) {
	s.t.Helper()
	s.db.Exec(s.t, `SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'SQL, DMY'; SET bytea_output = 'escape'`)
	for n, payload := range []string{`'{"b": 1.10, "a": 9007199254740993}'`, `NULL`, `'""'`, `to_jsonb(now())`} {
		s.db.Exec(s.t, fmt.Sprintf(`INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload, headers)
			VALUES ('%s', 'orders', '%d', 'created', %s, '{"tenant": "%d", "none": null}')`, eventID(n), n, payload, n))
	}
	return 4
}

// A replayed row is the record that the stream made of it, in both delivery modes, and the stream beside
// it goes on under the positions that it would have had.
func TestReplay_IsTheStreamsRecord(t *testing.T) {
	t.Parallel()
	for name, start := range deliveries() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testenv.ForMajors(t, func(t *testing.T, major int) {
				s := start(t, testenv.Postgres(t, major), testenv.Kafka(t), 3)
				relay := s.relay()
				consumer := s.consume(s.topic)
				n := s.awkward()
				first := consumer.WaitFor(t, n, wait)
				require.Empty(t, replays(first))

				require.Contains(t, s.run("replay", "--all", "--name", "again", "--dry-run"), "about ")
				require.Contains(t, s.run("replay", "--all", "--name", "again"), "replay again: 4 rows were published")
				again := consumer.WaitFor(t, n, wait)
				require.ElementsMatch(t, contents(first), contents(again))
				for _, r := range again {
					require.Equal(t, "again", judge.Header(r, "walrelay-replay"))
					require.Empty(t, judge.Header(r, "walrelay-position"))
				}

				s.insert(100, "k", `{}`)
				last := consumer.WaitFor(t, 1, wait)[0]
				require.Equal(t, "00000001", judge.Header(last, "walrelay-position")[:8], "the epoch")
				s.stop(relay) // it was not fenced
				require.NotContains(t, relay.Log(), "interrupted")
				require.Regexp(t, `again +done +4 published +0 refused`, s.run("replay", "list"))
				require.Contains(t, s.fails(1, "replay", "--all", "--name", "again"), "was begun before")
			})
		})
	}
}

// Ids, a time range and a table each choose rows; what is not there is named.
func TestReplay_Selections(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
	s.db.Exec(t, `CREATE TABLE public."Odd ""outbox" (LIKE public.outbox INCLUDING ALL);
		ALTER PUBLICATION walrelay ADD TABLE public."Odd ""outbox"`)
	s.set("WALRELAY_TABLES", `public.outbox,public."Odd ""outbox"`)
	for n := range 10 {
		s.db.Exec(t, `INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, created_at)
			VALUES ($1, 'orders', 'k', 't', '2026-01-01 00:00:00+00'::timestamptz + $2 * interval '1 hour')`, eventID(n), 9-n)
	}
	s.db.Exec(t, `INSERT INTO public."Odd ""outbox" (id, aggregatetype, aggregateid, type)
		VALUES ($1, 'orders', 'k', 't')`, eventID(20))
	consumer := s.cluster.Consume(t, s.topic)
	next := func(want ...int) {
		t.Helper()
		var ids []string
		for _, n := range want {
			ids = append(ids, eventID(n))
		}
		require.Equal(t, ids, delivered(consumer.WaitFor(t, len(want), wait)))
	}

	s.run("replay", "--since", "2026-01-01T02:00:00Z", "--until", "2026-01-01T05:00:00Z", "--name", "range")
	next(7, 6, 5)
	s.run("replay", "--id", eventID(1), "--id", eventID(20), "--name", "ids")
	next(1, 20)
	require.Contains(t, s.fails(1, "replay", "--id", eventID(2), "--id", eventID(30), "--name", "missing"),
		`no table has a row of id "`+eventID(30)+`"`)
	next(2)
	s.run("replay", "--all", "--table", `"Odd ""outbox"`, "--name", "table")
	next(20)
	require.Contains(t, s.fails(1, "replay", "--id", "no uuid", "--name", "bad"), "cannot be one of the id column's type")
	require.Contains(t, s.fails(2, "replay"), "say which rows")
	require.Contains(t, s.fails(2, "replay", "--all", "--id", "1"), "exclude each other")
	require.Contains(t, s.fails(2, "replay", "--all", "--name", "backfill"), "choose another")
	require.Contains(t, s.fails(1, "replay", "resume", "nothing"), "has no replay")
}

// A replay that is killed goes on near where it was.
func TestReplay_KilledAndResumed(t *testing.T) {
	t.Parallel()
	for name, start := range deliveries() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 3)
			const rows = 20_000
			s.db.Exec(t, `INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload, created_at)
				SELECT lpad(n::text, 32, '0')::uuid, 'orders', (n % 7)::text, 't', '{}', now() - ($1 - n) * interval '1 second'
				FROM generate_series(0, $1 - 1) AS n`, rows)
			consumer := s.consume(s.topic)
			p := testenv.StartProcess(t, testenv.Command{ // it would take longer than anything here may
				Path: testenv.Binary(t), Args: []string{"replay", "--all", "--name", "long", "--rate", "100"}, Env: s.env,
			})
			// It has come somewhere, and written that down.
			require.Eventually(t, func() bool {
				var published int
				err := s.db.QueryRow(t, "SELECT coalesce(max(published), 0) FROM walrelay.replays").Scan(&published)
				return err == nil && published > 0
			}, wait, tick)
			require.Contains(t, s.fails(1, "replay", "resume", "long"), "by another process")
			p.Kill(t)
			require.Contains(t, s.run("replay", "resume", "long"), "rows were published")
			seen, records := map[string]bool{}, 0
			for len(seen) < rows {
				seen[judge.Header(consumer.WaitFor(t, 1, wait)[0], "id")] = true
				records++
			}
			require.Less(t, records, rows+rows/2, "it did not begin anew")
			require.Contains(t, s.run("replay", "resume", "long"), "is done")
		})
	}
}

// What cannot be delivered is named, left out, and among the dead letters once, until it is redriven.
func TestReplay_Refused(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
	s.limit(s.topic, 2000)
	s.insert(1, "k", `{}`)
	s.insert(2, "k", `"`+strings.Repeat("secret", 1000)+`"`)
	s.insert(3, "k", `{}`)
	output := s.fails(1, "replay", "--all", "--name", "some")
	require.Contains(t, output, `event "`+eventID(2)+`" of table public.outbox cannot be delivered: the record takes`)
	require.Contains(t, output, "2 rows were published, 1 cannot be delivered")
	require.NotContains(t, output, "secret")
	require.Equal(t, []string{eventID(1), eventID(3)}, delivered(s.cluster.Consume(t, s.topic).WaitFor(t, 2, wait)))
	require.Contains(t, s.fails(1, "replay", "--all", "--name", "again"), "2 rows were published, 1 cannot be delivered")
	letter := s.run("deadletters", "list")
	require.Regexp(t, `^00000000-\S+  \S+  "`+eventID(2)+`" of public.outbox to `+s.topic+`, \d+ bytes: refused\n`, letter)
	require.Equal(t, 1, strings.Count(letter, eventID(2)))
	require.NotContains(t, letter, "secret")
	require.Contains(t, output, "it is dead letter "+letter[:43])
	require.Contains(t, s.fails(1, "deadletters", "redrive", "--all"), `"`+eventID(2)+`" stays: the record takes`)
	s.limit(s.topic, 100_000)
	require.Contains(t, s.run("deadletters", "redrive", letter[:43]), `"`+eventID(2)+`" redriven`)
	require.Empty(t, s.run("deadletters", "list"))
	require.Equal(t, []string{eventID(1), eventID(3), eventID(1), eventID(3), eventID(2)},
		delivered(s.cluster.Consume(t, s.topic).WaitFor(t, 5, wait)))
}

// A partitioned table is read as a whole, and one whose rows have no time in the order of its ids.
func TestReplay_TablesOfOthers(t *testing.T) {
	t.Parallel()
	s := newOwn(t, testenv.Postgres(t, 14), testenv.Kafka(t), 1, ownOutbox+" PARTITION BY RANGE (id)",
		"CREATE TABLE low PARTITION OF outbox FOR VALUES FROM (0) TO (10)",
		"CREATE TABLE high PARTITION OF outbox DEFAULT",
		`CREATE PUBLICATION outbox_pub FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`)
	for _, n := range []int{12, 3, 100, 9} {
		s.insertOwn(n, "k", nil)
	}
	require.Contains(t, s.fails(1, "replay", "--since", "2026-01-01T00:00:00Z"), `has no column "created_at"`)
	s.run("replay", "--all", "--name", "whole")
	require.Equal(t, []string{"3", "9", "12", "100"}, delivered(s.cluster.Consume(t, s.topic).WaitFor(t, 4, wait)))
}
