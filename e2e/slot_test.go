package e2e

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// A stream that has lost its slot, or whose slot was moved by somebody else, ends with one message,
// and `walrelay stream new-epoch` is what lets it go on.
func TestSlot_Moved(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 2)
		f := follow(s)
		relay := s.relay()
		f.delivers()

		for _, c := range []struct {
			name    string
			running bool   // the relay is frozen meanwhile; it is stopped otherwise
			hurt    string // with the slot free
			say     []string
		}{
			{name: "dropped while down", hurt: "SELECT pg_drop_replication_slot('%s')", say: []string{"is gone"}},
			{
				name: "dropped while it runs", running: true,
				hurt: "SELECT pg_drop_replication_slot('%s')", say: []string{"is gone"},
			},
			{
				name: "created again",
				hurt: `SELECT pg_drop_replication_slot('%[1]s'); SELECT pg_create_logical_replication_slot('%[1]s', 'pgoutput')`,
				say:  []string{"stands at", "created again or advanced"},
			},
			{
				name: "created again while it runs", running: true,
				hurt: `SELECT pg_drop_replication_slot('%[1]s'); SELECT pg_create_logical_replication_slot('%[1]s', 'pgoutput')`,
				say:  []string{"stands at", "created again or advanced"},
			},
			{
				name: "advanced", hurt: "SELECT pg_replication_slot_advance('%s', pg_current_wal_lsn())",
				say: []string{"stands at", "created again or advanced"},
			},
		} {
			t.Log(c.name)
			s.free(relay, c.running)
			f.skips() // committed where the slot will not be
			for sql := range strings.SplitSeq(fmt.Sprintf(c.hurt, s.slot), ";") {
				s.db.Exec(t, sql)
			}
			if c.running {
				relay.Signal(t, syscall.SIGCONT)
			} else {
				relay = s.start()
			}
			message := fatal(t, relay, append(c.say, `slot "`+s.slot+`"`, "may be missing",
				"walrelay stream new-epoch "+s.slot)...)
			require.Contains(t, message, "rows committed between "+s.registered("confirmed_lsn")+" and ")
			relay = f.goesOn()
		}
	})
}

// D17: PostgreSQL gives a slot up that retains too much.
func TestSlot_Lost(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		server := testenv.StartPostgres(t, major, testenv.Config{Settings: map[string]string{
			"max_slot_wal_keep_size": "16MB", "min_wal_size": "32MB", "max_wal_size": "48MB",
		}})
		s := newSetup(t, server, testenv.Kafka(t), 1)
		f := follow(s)
		relay := s.relay()
		f.delivers()

		lost := func(condition string) {
			t.Helper()
			s.db.Exec(t, "CHECKPOINT") // which is when the server looks
			require.Eventually(t, func() bool {
				s.db.Exec(t, "CHECKPOINT")
				var is bool
				require.NoError(t, s.db.QueryRow(t, "SELECT "+condition+" FROM pg_replication_slots WHERE slot_name = $1",
					s.slot).Scan(&is))
				return is
			}, wait, 10*tick)
		}
		ends := func(relay *testenv.Process, say ...string) {
			t.Helper()
			message := fatal(t, relay, append(say, `slot "`+s.slot+`"`,
				"pg_drop_replication_slot('"+s.slot+"')", "walrelay stream new-epoch "+s.slot)...)
			require.Contains(t, message, "rows committed between "+s.registered("confirmed_lsn")+" and ")
			// Not re-created, and the remedy's order is enforced.
			lost("wal_status = 'lost'")
			require.Contains(t, s.fails(1, "stream", "new-epoch"), "pg_drop_replication_slot('"+s.slot+"')")
			s.dropSlot()
		}
		write := func() {
			for range 8 {
				s.db.Exec(t, "SELECT pg_logical_emit_message(true, 'x', 'y')")
				s.db.Exec(t, "SELECT pg_switch_wal()")
			}
		}

		t.Log("while down")
		s.free(relay, false)
		f.skips()
		write()
		lost("wal_status = 'lost'")
		ends(s.start(), "invalidated", "wal_removed", "max_slot_wal_keep_size")
		relay = f.goesOn()

		t.Log("while it runs and cannot deliver")
		s.insertInto("nosuchtopic", f.number(), "k", `{}`)
		heldUp(t, relay, "topic "+s.prefix+"nosuchtopic")
		write()
		lost("wal_status = 'lost'")
		ends(relay, "invalidated", "wal_removed", "max_slot_wal_keep_size")
		relay = f.goesOn()

		if major < 18 {
			return
		}
		t.Log("idle for too long")
		s.free(relay, false)
		server.Exec(t, "ALTER SYSTEM SET idle_replication_slot_timeout = '1s'")
		server.Exec(t, "SELECT pg_reload_conf()")
		f.skips()
		lost("coalesce(invalidation_reason = 'idle_timeout', false)")
		relay = s.start()
		ends(relay, "invalidated", "idle_timeout", "idle_replication_slot_timeout")
		f.goesOn()
	})
}

// What the message of a lost slot says, done word for word, closes the gap: a consumer that drops by id what it
// has seen gets every event, those that were written while nobody streamed included.
func TestSlot_LostAndRepaired(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, lastMajor(), testenv.Config{Settings: map[string]string{
		"max_slot_wal_keep_size": "16MB", "min_wal_size": "32MB", "max_wal_size": "48MB",
	}})
	s := newSetup(t, server, testenv.Kafka(t), 3)
	consumer := s.cluster.Consume(t, s.topic)
	relay := s.relay()
	long, err := pgx.Connect(t.Context(), s.db.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = long.Close(context.Background()) })
	tx, err := long.Begin(t.Context()) // its row will carry a time from before the last event that was streamed
	require.NoError(t, err)
	in(t, tx, fmt.Sprintf("INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload) "+
		"VALUES ('%s', 'orders', 'k', 'created', '{}')", eventID(20)))
	for n := range 20 {
		s.insert(n, fmt.Sprint(n%7), `{}`)
	}
	consumer.WaitFor(t, 20, wait)
	s.caughtUp()
	s.stop(relay)
	for n := 21; n < 40; n++ {
		s.insert(n, fmt.Sprint(n%7), `{}`)
	}
	commit(t, tx)
	require.Eventually(t, func() bool {
		s.db.Exec(t, "SELECT pg_logical_emit_message(true, 'x', 'y')")
		s.db.Exec(t, "SELECT pg_switch_wal()")
		s.db.Exec(t, "CHECKPOINT")
		var lost bool
		require.NoError(t, s.db.QueryRow(t, "SELECT wal_status = 'lost' FROM pg_replication_slots WHERE slot_name = $1",
			s.slot).Scan(&lost))
		return lost
	}, wait, 10*tick)

	message := fatal(t, s.start(), "invalidated", "rows committed between")
	said := regexp.MustCompile("drop the slot \\((SELECT .*?\\))\\), run `walrelay (.*?)`, " +
		"start walrelay, and then .*: `walrelay (.*?)`").FindStringSubmatch(message)
	require.NotNil(t, said, message)
	s.db.Exec(t, said[1])
	s.run(strings.Fields(said[2])...)
	s.relay()
	s.run(strings.Fields(said[3])...)

	seen := map[string]bool{}
	for len(seen) < 20 { // those of the gap; the others were consumed above
		if id := judge.Header(consumer.WaitFor(t, 1, wait)[0], "id"); id >= eventID(20) {
			seen[id] = true
		}
	}
}

// An upgrade by pg_upgrade or by a dump carries the registry to a server with another system identifier. It is
// not mistaken for a stream of that server; the operator's word lets it go on, with a slot that pg_upgrade has
// kept or without one. The shared server of another major is that other one.
func TestSlot_OtherServer(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		other := 18
		if major == other {
			other = 15
		}
		for _, slotKept := range []bool{false, true} {
			t.Run(fmt.Sprintf("slot kept %t", slotKept), func(t *testing.T) {
				s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
				f := follow(s)
				relay := s.relay()
				f.delivers()
				s.caughtUp()
				s.free(relay, false)

				old := s.db
				s.db = testenv.Postgres(t, other).Database(t)
				s.set("WALRELAY_DATABASE_URL", s.db.DSN)
				s.run("migrate")
				for _, table := range []string{"public.outbox", "walrelay.streams"} {
					s.carry(old, table)
				}
				if slotKept {
					s.db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", s.slot)
				}
				var here, there string
				const identifier = "SELECT system_identifier::text FROM pg_control_system()"
				require.NoError(t, old.QueryRow(t, identifier).Scan(&there))
				require.NoError(t, s.db.QueryRow(t, identifier).Scan(&here))

				fatal(t, s.start(), `stream "`+s.slot+`"`, "system identifier "+there, here, "walrelay stream new-epoch "+s.slot)
				f.goesOn()
				s.caughtUp()
				v := s.verdict(f.ledger, s.topic)
				require.NoError(t, v.Err())
				require.Len(t, v.Epochs, 2)
				require.Equal(t, 2, v.Records)
			})
		}
	})
}

// carry copies the rows of a table from another database.
func (s *setup) carry(from *testenv.Database, table string) {
	s.t.Helper()
	var rows bytes.Buffer
	source, err := from.Conn.Acquire(s.t.Context())
	require.NoError(s.t, err)
	defer source.Release()
	_, err = source.Conn().PgConn().CopyTo(s.t.Context(), &rows, "COPY "+table+" TO STDOUT")
	require.NoError(s.t, err)
	target, err := s.db.Conn.Acquire(s.t.Context())
	require.NoError(s.t, err)
	defer target.Release()
	_, err = target.Conn().PgConn().CopyFrom(s.t.Context(), &rows, "COPY "+table+" FROM STDIN")
	require.NoError(s.t, err)
}

// A slot that was made by hand is taken over where it stands.
func TestSlot_Adopted(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		f := follow(s)
		f.skips()
		s.db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", s.slot)
		early := f.number()
		s.insert(early, "k", `{}`)
		relay := s.relay()
		f.sees(early)
		f.delivers()
		require.Contains(t, relay.Log(), `slot \"`+s.slot+`\" was there before the stream: it goes on at `)
	})
}

func TestSlot_Failover(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		s.set("WALRELAY_SLOT_FAILOVER", "true")
		relay := s.relay()
		follow(s).delivers()
		const warning = "is not copied to standbys: that needs PostgreSQL 17"
		if major < 17 {
			require.Contains(t, relay.Log(), warning)
			return
		}
		require.NotContains(t, relay.Log(), warning)
		var failover bool
		require.NoError(t, s.db.QueryRow(t, "SELECT failover FROM pg_replication_slots WHERE slot_name = $1", s.slot).
			Scan(&failover))
		require.True(t, failover)
	})
}

// What the server, the role or the database lack is said in one line before anything is created.
func TestSlot_Preflight(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		shared := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		role := shared.slot + "_role"
		shared.db.Exec(t, "CREATE ROLE "+role+" LOGIN PASSWORD 'secret-password'")
		t.Cleanup(func() { shared.db.Server().Exec(t, "DROP ROLE "+role) })
		dsn := shared.db.DSN
		shared.set("WALRELAY_DATABASE_URL", strings.Replace(dsn, "postgres:postgres@", role+":secret-password@", 1))
		fatal(t, shared.start(), role, "lacks a privilege", "ALTER ROLE ... REPLICATION")
		shared.set("WALRELAY_DATABASE_URL", strings.Replace(dsn, "/"+shared.db.Name, "/nosuchdatabase", 1))
		fatal(t, shared.start(), "database", "nosuchdatabase", "does not exist", "correct the connection string")

		server := testenv.StartPostgres(t, major, testenv.Config{Settings: map[string]string{"wal_level": "replica"}})
		s := newSetup(t, server, testenv.Kafka(t), 1)
		fatal(t, s.start(), "server", "wal_level = replica", "set wal_level = logical and restart")

		server.Exec(t, "ALTER SYSTEM SET wal_level = 'logical'")
		server.Exec(t, "ALTER SYSTEM SET max_replication_slots = 1")
		server.Restart(t, testenv.Fast)
		server.Exec(t, "SELECT pg_create_physical_replication_slot('somebody_elses')")
		fatal(t, s.start(), `slot "`+s.slot+`"`, "max_replication_slots = 1, all in use", "raise max_replication_slots")
		server.Exec(t, "SELECT pg_drop_replication_slot('somebody_elses')")
		s.relay()
		follow(s).delivers()
	})
}

// D20: legal names work however odd, and hostile ones are names or are refused.
func TestSlot_Names(t *testing.T) {
	t.Parallel()
	const hostile = `x"; DROP TABLE outbox; --`
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		f := follow(s)
		s.db.Exec(t, `CREATE SCHEMA "we ird"`)
		s.db.Exec(t, `CREATE TABLE "we ird"."Out""box" (LIKE public.outbox INCLUDING ALL)`)
		s.db.Exec(t, `CREATE TABLE "we ird"."x""; DROP TABLE outbox; --" (LIKE public.outbox INCLUDING ALL)`)

		for _, c := range []struct{ slot, publication, tables, into string }{
			{"1slot", "My-Pub", `"we ird"."Out""box"`, `"we ird"."Out""box"`},
			{s.slot, hostile, `public.outbox,"we ird"."x""; DROP TABLE outbox; --"`, `"we ird"."x""; DROP TABLE outbox; --"`},
		} {
			s.set("WALRELAY_SLOT", c.slot)
			s.set("WALRELAY_PUBLICATION", c.publication)
			s.set("WALRELAY_TABLES", c.tables)
			relay := s.relay()
			n := f.number()
			s.db.Exec(t, strings.Replace(insertSQL, "public.outbox", c.into, 1), eventID(n), "k", `{}`)
			f.sees(n)
			s.stop(relay)
			f.fence = map[int32]string{} // the next one is another stream
		}

		s.set("WALRELAY_TABLES", "public.outbox")
		for _, c := range []struct {
			variable string
			code     int
			say      string
		}{
			{"WALRELAY_SLOT", 2, "must be 1 to 63 of a-z, 0-9 and _"},
			{"WALRELAY_STREAM", 2, "must be 1 to 100 of letters"},
			{"WALRELAY_TABLES", 2, "must have a comma between tables"},
			{"WALRELAY_COLUMN_PAYLOAD", 1, `has no column \"x\\\"; DROP TABLE outbox; --\"`},
			{"WALRELAY_COLUMN_ID", 1, "has no column"},
			{"WALRELAY_COLUMN_KEY", 1, "has no column"},
			{"WALRELAY_TOPIC", 2, "must be a topic name"},
			{"WALRELAY_DEAD_LETTER_TOPIC", 2, "must be 1 to 249 of letters"},
		} {
			before, had := s.env[c.variable]
			s.set(c.variable, hostile)
			require.Contains(t, s.fails(c.code, "run"), c.say, c.variable)
			if delete(s.env, c.variable); had {
				s.set(c.variable, before)
			}
		}
		require.Contains(t, s.fails(1, "stream", "new-epoch", hostile), "is not registered")

		var exists bool
		require.NoError(t, s.db.QueryRow(t, "SELECT to_regclass('public.outbox') IS NOT NULL").Scan(&exists))
		require.True(t, exists)
	})
}
