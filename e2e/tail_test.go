package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// tail starts `walrelay tail` and waits until it reads.
func (s *setup) tail(args ...string) *testenv.Process {
	s.t.Helper()
	p := testenv.StartProcess(s.t, testenv.Command{
		Path: testenv.Binary(s.t), Args: append([]string{"tail"}, args...), Env: s.env,
	})
	p.WaitForLog(s.t, "transactions that commit after ", wait)
	return p
}

// printed waits until a process has printed so many lines.
func printed(t *testing.T, p *testenv.Process, n int) []string {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Count(p.Stdout(), "\n") >= n }, wait, tick, p.Log())
	return strings.Split(strings.TrimSpace(p.Stdout()), "\n")
}

// A tail shows what the stream beside it publishes, and touches nothing of it.
func TestTail(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newPoisoned(t, testenv.Postgres(t, major), "skip")
		f := follow(s)
		s.relay()
		f.delivers()
		s.caughtUp()
		whole, bare := s.tail("--payload", "--json"), s.tail()
		few := s.tail("--only-type", "cancelled", "--limit", "1")

		n := f.number()
		s.insertRow(n, row{key: "secret-key", payload: `{"secret": "payload"}`, headers: `{"tenant": "secret-tenant"}`})
		record := f.sees(n)
		var got struct {
			Position, Table, Topic, ID, Type, Key, Value, Fault string
			Size                                                int
			Headers                                             []struct{ Name, Value string }
		}
		require.NoError(t, json.Unmarshal([]byte(printed(t, whole, 1)[0]), &got))
		require.Equal(t, judge.Header(record, "walrelay-position"), got.Position)
		require.Equal(t, []string{record.Topic, string(record.Key), string(record.Value)},
			[]string{got.Topic, got.Key, got.Value})
		require.Equal(t, []string{eventID(n), "created", "public.outbox", ""},
			[]string{got.ID, got.Type, got.Table, got.Fault})
		require.Len(t, got.Headers, len(record.Headers))
		for i, h := range record.Headers {
			require.Equal(t, h.Key, got.Headers[i].Name)
			require.Equal(t, string(h.Value), got.Headers[i].Value)
		}
		require.Greater(t, got.Size, len(record.Value))

		s.insertRow(f.number(), row{aggregate: "no topic"})
		f.delivers()
		lines := printed(t, bare, 3)
		require.Contains(t, lines[0], got.Position+" "+s.topic+" type=created id="+eventID(n))
		require.Contains(t, lines[0], "tenant")
		require.Contains(t, lines[1], "(no topic)")
		require.Contains(t, lines[1], "FAULT: the topic name has a character")
		require.NotContains(t, bare.Stdout()+bare.Log(), "secret")

		s.db.Exec(t, strings.Replace(insertSQL, "'created'", "'cancelled'", 1), eventID(f.number()), "k", `{}`)
		require.Equal(t, 0, few.Wait(t, wait), few.Log())
		require.Equal(t, 1, strings.Count(few.Stdout(), "\n"))
		require.Contains(t, few.Stdout(), "type=cancelled")

		for _, p := range []*testenv.Process{whole, bare} {
			p.Signal(t, os.Interrupt)
			require.Equal(t, 0, p.Wait(t, wait), p.Log())
		}
		require.Eventually(t, func() bool {
			var slots int
			require.NoError(t, s.db.QueryRow(t,
				"SELECT count(*) FROM pg_replication_slots WHERE temporary AND database = current_database()").Scan(&slots))
			return slots == 0
		}, wait, tick)
		f.delivers()
		require.Equal(t, "1", s.registered("epoch"))
	})
}

// Before there is a stream, or even the schema, its events can be looked at; partitions and large transactions too.
func TestTail_WithoutStream(t *testing.T) {
	t.Parallel()
	s := newBare(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
	s.db.Exec(t, `CREATE TABLE outbox (id bigint, aggregate_type text, aggregate_id text, event_type text, payload bytea)
		PARTITION BY RANGE (id)`)
	s.db.Exec(t, `CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES FROM (0) TO (1000000)`)
	s.db.Exec(t, `CREATE PUBLICATION outbox_pub FOR TABLE outbox_1 WITH (publish = 'insert')`)
	s.set("WALRELAY_PUBLICATION", "outbox_pub")
	s.set("WALRELAY_COLUMN_KEY", "aggregate_id")
	s.set("WALRELAY_COLUMN_TYPE", "event_type")
	s.set("WALRELAY_TOPIC", s.prefix+"{aggregate_type}")
	require.Contains(t, s.fails(1, "tail"), `table "public"."outbox": is not in publication`)
	s.db.Exec(t, "ALTER PUBLICATION outbox_pub SET TABLE outbox")

	const many = 50_000
	p := s.tail("--payload", "--limit", fmt.Sprint(many+1))
	s.db.Exec(t, `INSERT INTO outbox SELECT n, 'orders', NULL, 'created', '\xff00'
		FROM generate_series(1, $1::int) AS n`, many)
	s.db.Exec(t, `INSERT INTO outbox VALUES (0, 'orders', E'a\x1b[2Jb', 'created', 'text')`)
	require.Equal(t, 0, p.Wait(t, wait), p.Log())
	require.Equal(t, many+1, strings.Count(p.Stdout(), " "+s.topic+" type=created id="))
	require.Contains(t, p.Stdout(), "    key    null\n    value  base64 /wA=\n")
	require.Contains(t, p.Stdout(), `    key    "a\x1b[2Jb"`+"\n    value  text\n")
}
