package retention

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/decoder"
)

const plain = `CREATE TABLE public.events (id bigint PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())`

func TestRows_OnlyWhatIsConfirmed(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major, plain)
		f.insert("1", "2")
		f.db.Exec(t, `INSERT INTO public.events VALUES (3)`) // too young
		late, err := f.db.Conn.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = late.Rollback(context.Background()) }() // a no-op unless the test fails
		_, err = late.Exec(t.Context(), `INSERT INTO public.events VALUES (4, now() - interval '2 hours')`)
		require.NoError(t, err)
		f.covers() // which is before anything is chosen, since choosing comes after it
		f.db.Exec(t, `INSERT INTO public.events VALUES (5, now() - interval '2 hours')`)
		f.run()
		f.stays(5, "1", "2", "3", "5")

		f.covers()
		f.leaves("3")
		require.NoError(t, late.Commit(t.Context()))
		f.stays(5, "3", "4")
		f.covers()
		f.leaves("3")
		require.Eventually(t, func() bool { return f.Stats().Rows == 4 }, wait, tick) // counted after they have gone
	})
}

// Each table tells the age of its rows by its own column.
func TestRows_ColumnOfItsOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 18, plain+`; CREATE TABLE public.audit (no int PRIMARY KEY, seen date)`)
	audit := Outbox{decoder.Mapping{Schema: "public", Table: "audit", ID: "no"}, "seen"}
	conn, err := f.Connect(t.Context(), f.session)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	f.cfg.Tables = append(f.cfg.Tables, audit)
	require.NoError(t, f.Check(t.Context(), conn))
	f.insert("1")
	f.db.Exec(t, "INSERT INTO public.audit VALUES (1, '2026-01-01'), (2, current_date + 1)")
	f.coversAll()
	f.run()
	f.leaves()
	require.Eventually(t, func() bool {
		var left []int
		require.NoError(t, f.db.QueryRow(t, "SELECT array_agg(no) FROM public.audit").Scan(&left))
		return slices.Equal(left, []int{2})
	}, wait, tick)
	wrong := New(Config{Tables: []Outbox{{audit.Mapping, "at"}}})
	require.ErrorContains(t, wrong.Check(t.Context(), conn), `"audit": has no column "at"`)
}

// stays looks at the table for a while.
func (f *fixture) stays(looks int, ids ...string) {
	f.t.Helper()
	ticker := time.NewTicker(2 * askInterval)
	defer ticker.Stop()
	for range looks {
		<-ticker.C
		require.Equal(f.t, ids, f.ids())
	}
}

// leaves waits until only the given rows are there.
func (f *fixture) leaves(ids ...string) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return strings.Join(f.ids(), " ") == strings.Join(ids, " ") }, wait, tick)
}

// What was confirmed in another session, or by another server, counts no longer.
func TestRows_ChosenAnewInEachSession(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major, plain)
		f.insert("1")
		f.run()
		f.stays(3, "1")
		f.change(cdc.Session{})
		f.stays(3, "1")
		f.change(cdc.Session{Number: 2})
		f.stays(3, "1")
		f.change(cdc.Session{Number: 2, Covered: 1 << 62})
		f.keeps()
		require.Empty(t, f.Stats().LastError)
	})
}

// A row that was written again under the id of a chosen one is another row.
func TestRows_WrittenAgain(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major, plain)
		f.insert("1", "2", "3")
		require.NoError(t, f.connect(t.Context(), f))
		defer f.hangUp(t.Context())
		table := &f.tables[0]
		const since = "-infinity"
		chosen, err := f.choose(t.Context(), table, since)
		require.NoError(t, err)
		require.Len(t, chosen, 3)
		f.db.Exec(t, `DELETE FROM public.events WHERE id = 1; UPDATE public.events SET at = at WHERE id = 2`)
		f.insert("1")
		done, err := f.remove(t.Context(), f, table, since, chosen)
		require.NoError(t, err)
		require.True(t, done)
		require.Equal(t, []string{"1", "2"}, f.ids())
	})
}

func TestRows_NeverChosen(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major, plain)
		f.insert("1", "2", "3", "4", "5")
		for i, action := range []string{"dead-lettered", "skipped", "unfit"} {
			f.db.Exec(t, `INSERT INTO walrelay.dead_letters (stream, position, event_id, table_name, topic, size, reason, action)
				VALUES ('other', $1, $1, $2, '', 1, '', $3)`, fmt.Sprint(i+1), f.cfg.Tables[0].Name(), action)
		}
		f.db.Exec(t, `UPDATE public.events SET at = now() - interval '2 years' WHERE id = 4`)
		f.coversAll()
		f.run()
		f.keeps("1", "2", "3", "4")
		f.db.Exec(t, `DELETE FROM walrelay.dead_letters; UPDATE walrelay.streams SET covered_since = '-infinity'`)
		f.keeps()
	})
}

// Neither is a lock waited for, nor does a row that is locked hold up others.
func TestRows_Locked(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major, plain)
		f.insert("1", "2", "3")
		holder, err := f.db.Conn.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = holder.Rollback(context.Background()) }()
		_, err = holder.Exec(t.Context(), `SELECT FROM public.events WHERE id = 2 FOR KEY SHARE`)
		require.NoError(t, err)
		f.coversAll()
		f.run()
		f.keeps("2")
		require.Zero(t, f.Stats().Errors)
		_, err = holder.Exec(t.Context(), `INSERT INTO public.events VALUES (7);
			UPDATE public.events SET at = at WHERE id = 2`)
		require.NoError(t, err)
		require.NoError(t, holder.Commit(t.Context()))
		f.keeps("7")
	})
}

func TestRows_ManyAndIndexed(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major, plain+"; CREATE INDEX ON public.events (at)")
		f.db.Exec(t, `INSERT INTO public.events SELECT n, now() - interval '1 day' + n * interval '1 s'
			FROM generate_series(1, $1::int) AS n; `, 2*choice+1)
		holder, err := f.db.Conn.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = holder.Rollback(context.Background()) }()
		_, err = holder.Exec(t.Context(), `SELECT FROM public.events WHERE id = 1 FOR KEY SHARE`) // the oldest stays
		require.NoError(t, err)
		f.coversAll()
		f.run()
		f.keeps("1")
		require.EqualValues(t, 2*choice, f.Stats().Rows)
		require.WithinDuration(t, time.Now().Add(-24*time.Hour), f.Stats().Oldest, time.Hour)
		require.NoError(t, holder.Commit(t.Context()))
		f.keeps()
		require.EqualValues(t, 2*choice+1, f.Stats().Rows)
		require.Zero(t, f.Stats().Oldest)
	})
}

func TestRows_Types(t *testing.T) {
	t.Parallel()
	const uuid1, uuid2 = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"
	for _, c := range []struct{ id, at, first, second string }{
		{"uuid", "timestamptz", uuid1, uuid2},
		{"text", "timestamp", `a'"\,{}`, "b"},
		{"varchar(36)", "date", uuid1, uuid2},
		{"char(36)", "timestamptz(3)", uuid1, uuid2},
		{"char(5)", "timestamp(0)", "a", "b"},
		{"numeric", "timestamptz", "1.50", "2"},
		{"bytea", "timestamptz", `\x00ff`, `\x01`},
		{"public.positive", "timestamptz", "1", "2"},
		{`public."Odd name"`, "timestamptz", "one", "two"},
	} {
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 18, `CREATE DOMAIN public.positive AS int CHECK (value > 0);
				CREATE TYPE public."Odd name" AS ENUM ('one', 'two');
				CREATE TABLE public.events (id `+c.id+` PRIMARY KEY, at `+c.at+`)`)
			for _, id := range []string{c.first, c.second} {
				f.db.Exec(t, "INSERT INTO public.events VALUES ('"+strings.ReplaceAll(id, "'", "''")+
					"', now() - interval '3 days')")
			}
			f.db.Exec(t, "UPDATE public.events SET at = now() + interval '1 day' WHERE id = '"+c.second+"'")
			f.coversAll()
			f.run()
			f.keeps(c.second)
		})
	}
}

// Another stream that reads the table has its say; one without a slot has not.
func TestRows_OtherStreams(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major, plain)
		slot := f.db.Slot(t)
		f.db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
		f.insert("1")
		f.db.Exec(t, `INSERT INTO walrelay.streams (name, system_identifier, timeline, slot, publication, delivery, routing,
				publication_state)
			SELECT n, '1', 1, s, 'none', 'at-least-once', 'r', '{"tables": [{"schema": "public", "table": "events"}]}'
			FROM (VALUES ('second', $1), ('gone', 'no_such_slot')) AS v (n, s)`, slot)
		f.coversAll()
		f.run()
		f.stays(5, "1")
		require.Eventually(t, func() bool { // until it is behind what was chosen, whenever that was
			f.db.Exec(t, "SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())", slot)
			return len(f.ids()) == 0
		}, wait, tick)
	})
}

func TestCheck(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		for ddl, parts := range map[string][]string{
			`CREATE TABLE public.events (id int)`:            {`"public"."events"`, `no column "at"`, "RETENTION_COLUMN"},
			`CREATE TABLE public.events (id int, at bigint)`: {"bigint", "WALRELAY_RETENTION_COLUMN"},
		} {
			f := newFixture(t, major, ddl)
			conn, err := f.Connect(t.Context(), cdc.Session{})
			require.NoError(t, err)
			err = f.Check(t.Context(), conn)
			require.NoError(t, conn.Close(t.Context()))
			require.True(t, cdc.Fatal(err))
			for _, part := range parts {
				require.ErrorContains(t, err, part)
			}
		}
	})
}

// Errors say which command mends them, and what was mended is noticed.
func TestRows_Mended(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major, plain)
		role := f.db.Slot(t) // a name that nobody else uses
		f.db.Exec(t, `CREATE ROLE `+role+` LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA walrelay TO `+role+`;
			GRANT SELECT ON walrelay.streams, walrelay.dead_letters, public.events TO `+role)
		t.Cleanup(func() { f.db.Exec(t, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
		f.dsn = strings.Replace(f.dsn, "postgres:postgres@", role+":x@", 1)
		f.insert("1")
		f.coversAll()
		f.run()
		f.fails(`may not delete from "public"."events"`,
			`GRANT SELECT, DELETE, UPDATE ("at") ON "public"."events" TO "`+role+`"`)

		f.db.Exec(t, `GRANT DELETE, UPDATE (at) ON public.events TO `+role)
		f.keeps()
		require.Empty(t, f.Stats().LastError)

		f.db.Exec(t, `ALTER TABLE public.events DROP CONSTRAINT events_pkey;
			CREATE PUBLICATION all_of_it FOR TABLE public.events`)
		f.insert("2")
		f.fails("does not have a replica identity", `ALTER TABLE "public"."events" REPLICA IDENTITY FULL`)
		f.db.Exec(t, `ALTER TABLE public.events REPLICA IDENTITY FULL`)
		f.keeps()

		f.db.Exec(t, `ALTER TABLE public.events RENAME at TO since; ALTER TABLE public.events ADD at int`)
		f.change(cdc.Session{Number: 2, Covered: 1 << 62})
		f.fails("has the column \"at\" of type integer")
	})
}
