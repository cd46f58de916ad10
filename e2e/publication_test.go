package e2e

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// breach is a way to make the publication send less than every insert. PostgreSQL says nothing of
// any of them.
type breach struct {
	name string
	from int // the first major that has it; 0: all
	hurt string
	mend string // before the operator's word
	slot bool   // it must go too
	say  []string
}

const (
	publish = "CREATE PUBLICATION walrelay FOR TABLE public.outbox " +
		"WITH (publish = 'insert', publish_via_partition_root = true)"
	retable = "ALTER PUBLICATION walrelay SET TABLE public.outbox"
)

var breaches = []breach{
	{
		name: "dropped", hurt: "DROP PUBLICATION walrelay", mend: publish,
		say: []string{`publication "walrelay"`, "drop the slot"}, slot: true,
	},
	{
		name: "dropped and created again", hurt: "DROP PUBLICATION walrelay; " + publish,
		say: []string{`publication "walrelay"`, "was dropped and created again"},
	},
	{
		name: "table taken out", hurt: "ALTER PUBLICATION walrelay DROP TABLE public.outbox",
		mend: "ALTER PUBLICATION walrelay ADD TABLE public.outbox",
		say:  []string{`table "public"."outbox"`, `is not in publication "walrelay"`},
	},
	{
		name: "table taken out and added again",
		hurt: "ALTER PUBLICATION walrelay DROP TABLE public.outbox; ALTER PUBLICATION walrelay ADD TABLE public.outbox",
		say:  []string{`publication "walrelay"`, `table "public"."outbox" was taken out of it and added again`},
	},
	{
		name: "table dropped and created again",
		hurt: "ALTER TABLE public.outbox RENAME TO former; CREATE TABLE public.outbox (LIKE public.former INCLUDING ALL); " +
			"ALTER PUBLICATION walrelay ADD TABLE public.outbox",
		mend: "DROP TABLE public.former",
		say:  []string{`publication "walrelay"`, `table "public"."outbox" was dropped and created again`},
	},
	{
		name: "no inserts", hurt: "ALTER PUBLICATION walrelay SET (publish = 'update')",
		mend: "ALTER PUBLICATION walrelay SET (publish = 'insert')",
		say:  []string{`publication "walrelay"`, "does not publish inserts"},
	},
	{
		name: "row filter", from: 15, hurt: retable + " WHERE (aggregatetype = 'orders')", mend: retable,
		say: []string{`table "public"."outbox"`, `has a row filter in publication "walrelay"`},
	},
	{
		name: "column list", from: 15, hurt: retable + " (id, aggregatetype, aggregateid)", mend: retable,
		say: []string{
			`table "public"."outbox"`, `has a column list in publication "walrelay"`,
			`omits the mapped column "payload"`,
		},
	},
}

func TestPublication_Breached(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		name := map[bool]string{true: "while running", false: "while down"}[running]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testenv.ForMajors(t, func(t *testing.T, major int) {
				s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
				f := follow(s)
				relay := s.relay()
				f.delivers()
				for _, b := range breaches {
					if major < b.from {
						continue
					}
					t.Log(b.name)
					if !running {
						s.stop(relay)
					}
					s.db.Exec(t, "BEGIN; "+b.hurt+"; COMMIT")
					if !running {
						relay = s.start()
					}
					say := slices.Concat(b.say, []string{"rows committed ", " may be missing", "walrelay stream new-epoch " + s.slot})
					if !b.slot { // how far back the log of a lost publication goes only PostgreSQL knows
						say = append(say, "walrelay replay --since 20")
					}
					fatal(t, relay, say...)
					if b.mend != "" {
						s.db.Exec(t, b.mend)
					}
					if b.slot {
						s.dropSlot()
					}
					relay = f.goesOn()
				}
			})
		})
	}
}

// Rows were written while there was no publication. PostgreSQL 18 skips them with a warning, which
// is taken seriously; before that the server does not read past them. Either happens again at every
// start from that slot. The check of the publication is kept from being faster than the server.
func TestPublication_ServerNotices(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		s.set("WALRELAY_STATUS_INTERVAL", "10m")
		s.set("WALRELAY_RECEIVE_TIMEOUT", "20m")
		f := follow(s)
		relay := s.relay()
		f.delivers()
		require.Eventually(t, func() bool { // the last check that comes before its time, for the partitions of the topic
			var checked bool
			require.NoError(t, s.db.QueryRow(t, `SELECT (SELECT partitions <> '{}' FROM walrelay.streams) AND EXISTS (
				SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'walrelay'
				AND state = 'idle' AND query ~ 'pause_reason|greatest\(confirmed_lsn')`).Scan(&checked))
			return checked
		}, wait, tick)
		s.db.Exec(t, "DROP PUBLICATION walrelay")
		f.skips()
		say := []string{
			`publication "walrelay": was not there when rows after `, "rows committed after ", " may be missing",
			"pg_drop_replication_slot('" + s.slot + "')", "walrelay stream new-epoch " + s.slot,
		}
		fatal(t, relay, say...)

		s.db.Exec(t, publish)
		s.idle()
		s.run("stream", "new-epoch")
		fatal(t, s.start(), say...)
		s.dropSlot()
		f.goesOn()
	})
}

// What is changed and changed back between two looks leaves a trace in the catalog, and a warning.
func TestPublication_ChangedBack(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		f := follow(s)
		relay := s.relay()
		f.delivers()
		const there = "ALTER PUBLICATION walrelay SET (publish = '')"
		const back = "ALTER PUBLICATION walrelay SET (publish = 'insert')"
		s.db.Exec(t, "BEGIN; "+there+"; "+back+"; COMMIT")
		relay.WaitForLog(t, `"publication was altered; every insert is still published"`, wait)
		f.delivers()
		s.stop(relay)
		s.db.Exec(t, there)
		f.skips()
		s.db.Exec(t, back)
		relay = s.relay()
		require.Contains(t, relay.Log(), `was altered since it was recorded: had it stopped publishing inserts, rows after `)
		f.delivers()
	})
}

// A generated column can only be mapped where PostgreSQL sends it.
func TestPublication_GeneratedColumn(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		f := follow(s)
		s.db.Exec(t, "ALTER TABLE outbox ADD made text GENERATED ALWAYS AS (aggregatetype || '.' || type) STORED")
		s.set("WALRELAY_COLUMN_TYPE", "made")
		say := []string{`table "public"."outbox"`, `has the mapped column "made" generated`}
		const send = `ALTER PUBLICATION "walrelay" SET (publish_generated_columns = stored)`
		fatal(t, s.start(), append(say, send)...)
		if major < 18 {
			return
		}
		s.db.Exec(t, send)
		relay := s.relay()
		require.Equal(t, "orders.created", judge.Header(f.delivers(), "eventType"))
		s.stop(relay)
		s.db.Exec(t, "ALTER TABLE outbox DROP made")
		s.db.Exec(t, "ALTER TABLE outbox ADD made text GENERATED ALWAYS AS (aggregatetype || '.' || type) VIRTUAL")
		fatal(t, s.start(), append(say, "map an ordinary column")...)
	})
}

// The publication that walrelay makes itself sends inserts only, so that the application may delete
// from a table without a replica identity.
func TestPublication_Created(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		s.db.Exec(t, "DROP PUBLICATION walrelay")
		s.db.Exec(t, "ALTER TABLE outbox DROP CONSTRAINT outbox_pkey")
		s.relay()
		follow(s).delivers()
		var options string
		require.NoError(t, s.db.QueryRow(t, `SELECT concat_ws(',', pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot)
			FROM pg_publication WHERE pubname = 'walrelay'`).Scan(&options))
		require.Equal(t, "t,f,f,f,t", options)
		s.db.Exec(t, "UPDATE outbox SET type = 'x'")
		s.db.Exec(t, "DELETE FROM outbox")
	})
}

// Changes that are no inserts are counted, whoever publishes them.
func TestPublication_OtherChanges(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		s.db.Exec(t, "ALTER PUBLICATION walrelay SET (publish = 'insert, update, delete, truncate')")
		f := follow(s)
		relay := s.relay()
		f.delivers()
		require.Contains(t, relay.Log(), "publishes more than inserts")
		s.db.Exec(t, "UPDATE outbox SET type = 'x'")
		s.db.Exec(t, "UPDATE outbox SET type = 'y'")
		s.db.Exec(t, "DELETE FROM outbox")
		s.db.Exec(t, "TRUNCATE outbox")
		f.delivers()
		require.Eventually(t, func() bool { return s.metric("walrelay_events_total", "") == 2 }, wait, tick)
		require.Equal(t, 2.0, s.metric("walrelay_ignored_changes_total", `kind="update"`))
		require.Equal(t, 1.0, s.metric("walrelay_ignored_changes_total", `kind="delete"`))
		require.Equal(t, 1.0, s.metric("walrelay_ignored_changes_total", `kind="truncate"`))
	})
}
