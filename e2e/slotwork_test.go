package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// What an operator does to a slot by hand states its gap beforehand, and what follows from it.
func TestSlotWork(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		f := follow(s)
		for _, command := range []string{"show", "drop", "advance"} {
			require.Contains(t, s.fails(1, "slot", command), `slot "`+s.slot+`"`)
		}

		t.Log("create")
		made := s.run("slot", "create")
		created := s.registered("created_lsn")
		require.Contains(t, made, "slot "+s.slot+" is created, consistent from "+created)
		require.Contains(t, s.fails(1, "slot", "create"), "exists")
		shown := s.run("slot", "show")
		for _, part := range []string{
			s.slot + ": logical, pgoutput, of database " + s.db.Name, "nobody reads it", "reserved: all is there",
			"confirmed        " + created, "max_slot_wal_keep_size = -1", "not copied to standbys",
		} {
			require.Contains(t, shown, part)
		}
		n := f.number()
		s.insert(n, "k", `{}`) // before the first start, and streamed nevertheless
		relay := s.relay()
		f.sees(n)

		t.Log("refused while it is in use")
		require.Contains(t, s.run("slot", "show"), "read by server process ")
		for _, command := range []string{"drop", "advance"} {
			refused := s.fails(1, "slot", command, "--yes")
			require.Contains(t, refused, "is in use by server process ")
			require.Contains(t, refused, "walrelay stream pause "+s.slot)
		}

		t.Log("advance")
		s.run("stream", "pause")
		s.paused()
		s.idle()
		at := s.confirmed()
		s.db.Exec(t, "CREATE TABLE other (n int)")
		s.db.Exec(t, "INSERT INTO other VALUES (1)")
		f.skips()
		s.db.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
			SELECT ('00000000-0000-0000-0001-' || lpad(n::text, 12, '0'))::uuid, 'orders', 'k', 't', '{"skipped": true}'
			FROM generate_series(1, 4) AS n`)
		to := s.lsn("pg_current_wal_lsn()")
		n = f.number()
		s.insert(n, "k", `{}`) // behind the gap
		refused := s.fails(2, "slot", "advance", "--to", to.String())
		require.Contains(t, refused, fmt.Sprintf("what is committed between that and %s", to))
		require.Contains(t, refused, "events in it: 5, in 2 transactions that were committed from 20")
		require.Contains(t, refused, "nothing is done without --yes")
		require.Equal(t, at, s.confirmed())
		require.Contains(t, s.fails(1, "slot", "advance", "--yes", "--to", at.String()), "never goes back")
		require.Contains(t, s.fails(1, "slot", "advance", "--yes", "--to", "FFFF/0"), "lies beyond the end of the log")
		require.Contains(t, s.fails(2, "slot", "advance", "--yes", "--to", "0/100000000"), "is no position in the log")
		require.Contains(t, s.run("slot", "advance", "--yes", "--to", to.String()), "slot "+s.slot+" stands at ")
		s.run("stream", "resume")
		f.sees(n) // none of the gap before it
		s.ready(200, "streaming")
		require.Equal(t, "1", s.registered("epoch"))

		t.Log("drop")
		s.stop(relay)
		f.skips()
		refused = s.fails(2, "slot", "drop")
		require.Contains(t, refused, "events in it: 1, in 1 transactions")
		dropped := s.run("slot", "drop", "--yes")
		require.Contains(t, dropped, "slot "+s.slot+" is dropped\nthe next start refuses")
		require.Contains(t, dropped, "walrelay stream new-epoch "+s.slot)
		fatal(t, s.start(), "is gone", "left them out with `walrelay slot drop`", "walrelay slot create")
		f.goesOn()
	})
}

// A gap that an operator has made is nobody else's doing: a start names it once, other commands until it is closed,
// with the command that does.
func TestSlotWork_LeftOut(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		consumer := s.consume(s.topic)
		arrives := func(n int, replayed bool) {
			t.Helper()
			record := consumer.WaitFor(t, 1, wait)[0]
			require.Equal(t, eventID(n), judge.Header(record, "id"))
			require.Equal(t, replayed, judge.Header(record, "walrelay-replay") != "")
		}
		// leaves makes a gap of event n, and returns the command that closes it.
		leaves := func(n int, how ...string) (replay []string) {
			t.Helper()
			s.insert(n, "k", `{}`)
			var output string
			for _, command := range how {
				output = s.run(append([]string{"slot"}, strings.Fields(command)...)...)
			}
			_, command, found := strings.Cut(output, "to publish it, once the stream runs: walrelay ")
			require.True(t, found, output)
			require.Equal(t, "true", s.registered("(covered_since > (SELECT max(created_at) FROM public.outbox))"))
			return strings.Fields(command)
		}
		mark := "left them out with `walrelay slot "
		tells := func() bool {
			t.Helper()
			level, found := s.doctor().level("postgresql", "left-out")
			for _, text := range []string{found, s.run("status", "--once"), s.run("status", "--json"), s.run("stream", "show")} {
				require.Equal(t, level == "warning", strings.Contains(text, mark), text)
			}
			return level == "warning"
		}
		relay := s.relay()
		s.insert(1, "k", `{}`)
		arrives(1, false)
		s.stop(relay)
		for i, how := range [][]string{{"advance --yes"}, {"drop --yes", "create"}} {
			n := 10 * (i + 1)
			replay := leaves(n, how...)
			require.True(t, tells())
			for starts := range 2 {
				relay = s.relay()
				s.insert(n+1+starts, "k", `{}`)
				arrives(n+1+starts, false)
				require.Equal(t, 1-starts, strings.Count(relay.Log(), mark), relay.Log())
				s.stop(relay)
			}
			s.run("replay", "--id", eventID(n), "--name", "one")
			arrives(n, true)
			require.True(t, tells(), "an id is not the gap")
			var rows int // that of the gap, and those within the margins
			_, err := fmt.Sscanf(s.run(append(replay, "--name", "gap")...), "replay gap: %d rows were published", &rows)
			require.NoError(t, err)
			require.Contains(t, delivered(consumer.WaitFor(t, rows, wait)), eventID(n))
			require.False(t, tells())
			s.db.Exec(t, "DELETE FROM walrelay.replays")
		}
	})
}

// A slot that was advanced has left the state in Kafka behind: only a new epoch goes on from there.
func TestSlotWork_ExactlyOnce(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
	s.set("WALRELAY_DELIVERY", "exactly-once")
	s.set("WALRELAY_STATE_TOPIC", s.prefix+"state")
	s.committed = true
	f := follow(s)
	relay := s.relay()
	f.delivers()
	s.stop(relay)
	f.skips()
	require.Contains(t, s.run("slot", "advance", "--yes"), "walrelay stream new-epoch "+s.slot)
	fatal(t, s.start(), "the state found only reaches", "walrelay stream new-epoch")
	f.goesOn()
}

// A slot that is lost, or of another plugin, is named as such.
func TestSlotWork_Lost(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, lastMajor(), testenv.Config{Settings: map[string]string{
		"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "48MB",
	}})
	s := newSetup(t, server, testenv.Kafka(t), 1)
	s.run("slot", "create")
	require.Contains(t, s.run("slot", "show"), "max_slot_wal_keep_size = 1MB: the slot may be lost when ")
	for range 4 {
		s.db.Exec(t, "SELECT pg_logical_emit_message(true, 'x', 'y')")
		s.db.Exec(t, "SELECT pg_switch_wal()")
	}
	s.db.Exec(t, "CHECKPOINT")
	require.Contains(t, s.run("slot", "show"), "lost: wal_removed; it will never be read again")
	require.Contains(t, s.fails(1, "slot", "advance", "--yes"), "lost: wal_removed")
	require.Contains(t, s.run("status", "--once"), " lost: wal_removed; it will never be read again")
	require.NotContains(t, s.run("status", "--once"), "lost: lost")
	dropped := s.run("slot", "drop", "--yes")
	require.Contains(t, s.run("stream", "show"), s.slot+" does not exist")
	require.Contains(t, dropped, "not counted: the slot is lost")
	require.Contains(t, dropped, "walrelay stream new-epoch "+s.slot)

	s.db.Exec(t, "SELECT pg_create_physical_replication_slot($1)", s.slot)
	require.Contains(t, s.fails(1, "slot", "drop", "--yes"), "is none of walrelay's")
	require.Contains(t, s.run("slot", "show"), ": physical")
}

// Rows in partitions are counted, and a table that is published and no outbox is not.
func TestSlotWork_CountsWhatIsStreamed(t *testing.T) {
	t.Parallel()
	s := newOwn(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1,
		`CREATE TABLE outbox (id bigint, aggregate_type text, aggregate_id text, event_type text, payload jsonb)
			PARTITION BY RANGE (id)`,
		`CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES FROM (0) TO (100)`, `CREATE TABLE other (n int)`,
		`CREATE PUBLICATION outbox_pub FOR TABLE outbox, other WITH (publish = 'insert')`)
	s.run("slot", "create")
	s.insertOwn(1, "k", `{}`)
	s.insertOwn(2, "k", `{}`)
	s.db.Exec(t, "INSERT INTO other VALUES (1)")
	require.Contains(t, s.fails(2, "slot", "drop"), "events in it: 2, in 2 transactions")
	relay := s.relay()
	records := s.consume(s.topic).WaitFor(t, 2, wait)
	require.Equal(t, "1", judge.Header(records[0], "id"))
	s.stop(relay)
}
