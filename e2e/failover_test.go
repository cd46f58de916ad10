package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// failover is a primary that a relay streams from, and a standby which may take over.
type failover struct {
	*setup
	primary, standby *testenv.Server
}

// newFailover makes the relay know both servers, the primary first. From 17 on the standby has the slot.
func newFailover(t *testing.T, major int) *failover {
	t.Helper()
	primary := testenv.StartPostgres(t, major, testenv.Config{})
	settings := map[string]string{}
	if major >= 17 {
		settings["sync_replication_slots"] = "on"
	}
	f := &failover{primary: primary, standby: primary.Standby(t, testenv.Config{Settings: settings})}
	f.setup = newSetup(t, primary, testenv.Kafka(t), 3)
	f.set("WALRELAY_SLOT_FAILOVER", "true")
	f.hosts(primary, f.standby)
	return f
}

// hosts puts the servers into the relay's URL, in this order.
func (f *failover) hosts(servers ...*testenv.Server) {
	f.t.Helper()
	u, err := url.Parse(f.db.DSN)
	require.NoError(f.t, err)
	hosts := make([]string, len(servers))
	for i, server := range servers {
		hosts[i] = fmt.Sprintf("127.0.0.1:%d", server.Port)
	}
	u.Host = strings.Join(hosts, ",")
	u.RawQuery += "&target_session_attrs=read-write"
	f.set("WALRELAY_DATABASE_URL", u.String())
}

// copied waits until the standbys have a copy of the slot that would survive their promotion. For that the
// slot must move once, beyond what a standby held when it saw the slot for the first time.
func (f *failover) copied(standbys ...*testenv.Server) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		f.primary.Exec(f.t, "SELECT pg_log_standby_snapshot()") // where decoding may begin
		f.caughtUp()
		ready := 0
		for _, standby := range standbys {
			var has int
			standby.QueryRow(f.t, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND synced
				AND NOT temporary AND invalidation_reason IS NULL`, []any{f.slot}, &has)
			ready += has
		}
		return ready == len(standbys)
	}, wait, 10*tick)
}

// guarded makes the primary send nothing to the relay that the standby does not have.
func (f *failover) guarded() {
	f.t.Helper()
	var slot string
	f.standby.QueryRow(f.t, "SELECT current_setting('primary_slot_name')", nil, &slot)
	f.primary.Exec(f.t, "ALTER SYSTEM SET synchronized_standby_slots = '"+slot+"'")
	f.primary.Exec(f.t, "SELECT pg_reload_conf()")
}

// cutOff lets the standby replay what it has received, and receive nothing more.
func (f *failover) cutOff() {
	f.t.Helper()
	f.standby.Exec(f.t, "ALTER SYSTEM SET primary_conninfo = ''")
	f.standby.Exec(f.t, "SELECT pg_reload_conf()")
	require.Eventually(f.t, func() bool {
		var connected bool
		f.standby.QueryRow(f.t, "SELECT EXISTS (SELECT FROM pg_stat_wal_receiver)", nil, &connected)
		return !connected
	}, wait, tick)
}

// replayed waits until a standby has everything that the primary has written so far, and returns its end.
func (f *failover) replayed(standby *testenv.Server) (end pglogrepl.LSN) {
	f.t.Helper()
	end = f.lsn("pg_current_wal_lsn()")
	require.Eventually(f.t, func() bool {
		var there bool
		standby.QueryRow(f.t, "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", []any{end.String()}, &there)
		return there
	}, wait, tick)
	return end
}

// promote makes a standby the primary, which is where the setup's database is from then on.
func (f *failover) promote(standby *testenv.Server) {
	f.t.Helper()
	standby.Promote(f.t)
	f.db = databaseOn(f.t, standby, f.db.Name)
}

// databaseOn is a database that another server has, too.
func databaseOn(t *testing.T, server *testenv.Server, name string) *testenv.Database {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), server.SocketDSN(name))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return &testenv.Database{Name: name, DSN: server.DSN(name), Conn: pool}
}

// load writes events in the background until it cannot any more. It returns how many were committed.
func (f *failover) load() (committed func() int64) {
	var count atomic.Int64
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	conn, err := pgx.Connect(ctx, f.primary.SocketDSN(f.db.Name))
	require.NoError(f.t, err)
	go func() {
		defer close(ended)
		defer func() { _ = conn.Close(ctx) }()
		for n := 1; ; n++ {
			key, payload := fmt.Sprint(n%10), `{"load": true}`
			if _, err := conn.Exec(ctx, insertSQL, eventID(n), key, payload); err != nil {
				return
			}
			count.Add(1)
		}
	}()
	f.t.Cleanup(func() {
		cancel()
		<-ended
	})
	return count.Load
}

// unrecorded keeps the relay from recording how far it has come. The primary's end ends that, too.
func (f *failover) unrecorded() {
	f.t.Helper()
	conn, err := pgx.Connect(context.Background(), f.primary.SocketDSN(f.db.Name))
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(context.Background(), "BEGIN; SELECT FROM walrelay.streams FOR UPDATE")
	require.NoError(f.t, err)
}

// delivery waits until all that is in the outbox table, as it is now, is in Kafka, and judges that.
func (f *failover) delivery() *judge.Verdict {
	f.t.Helper()
	f.caughtUp()
	ledger := judge.NewLedger()
	rows, err := f.db.Conn.Query(context.Background(),
		"SELECT id::text, aggregateid, payload::text FROM outbox ORDER BY id")
	require.NoError(f.t, err)
	var id, key, payload string
	_, err = pgx.ForEachRow(rows, []any{&id, &key, &payload}, func() error {
		return ledger.Commit(f.event(id, key, payload))
	})
	require.NoError(f.t, err)
	return f.judge(ledger)
}

// timelines counts the deliveries by the timeline in their position, those of an event only once.
func (f *failover) timelines() map[string]int {
	f.t.Helper()
	count, seen := map[string]int{}, map[string]bool{}
	left := f.ends(f.topic).Sum()
	for _, r := range f.cluster.Consume(f.t, f.topic).WaitFor(f.t, int(left), wait) {
		if position := judge.Header(r, "walrelay-position"); !seen[position] {
			seen[position] = true
			count[position[9:17]]++
		}
	}
	return count
}

const first, second = "00000001", "00000002" // timelines

// Nothing is lost, and nothing has to be forgotten, when the primary withholds from the relay what the
// standby does not have. Rows that come again from the new primary have the positions that they had.
func TestFailover_Guarded(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		if major < 17 {
			t.Skip("failover slots are new in PostgreSQL 17")
		}
		for _, killed := range []bool{false, true} {
			t.Run(map[bool]string{false: "relay lives", true: "relay is killed too"}[killed], func(t *testing.T) {
				t.Parallel()
				f := newFailover(t, major)
				f.guarded()
				relay := f.relay()
				f.copied(f.standby)
				committed := f.load()
				grows := func(by int64) {
					size := f.ends(f.topic).Sum()
					require.Eventually(t, func() bool { return f.ends(f.topic).Sum() >= size+by }, wait, tick)
				}
				grows(1000)
				f.unrecorded()
				grows(500) // these come again
				f.cutOff()
				relay.WaitForLog(t, "does not have active_pid", wait) // the server says for whom it waits
				more := committed() + 500
				require.Eventually(t, func() bool { return committed() >= more }, wait, tick)
				require.Equal(t, 1, logged(t, relay, "notice from the server", &struct{}{}))
				f.primary.Kill(t)
				if killed {
					relay.Kill(t)
				}
				f.promote(f.standby)
				var kept int
				require.NoError(t, f.db.QueryRow(t, "SELECT count(*) FROM outbox").Scan(&kept))
				require.Less(t, int64(kept), committed(), "all was copied: this shows nothing")
				if killed {
					relay = f.relay()
				}
				for n := range 200 {
					f.insert(1_000_000+n, "new", `{"load": false}`)
				}
				v := f.delivery()
				require.GreaterOrEqual(t, v.Duplicates, 500)
				require.Equal(t, map[string]int{first: kept, second: 200}, f.timelines())
				require.Zero(t, f.metric("walrelay_diverged_events_total", ""))

				relay.Kill(t)
				relay = f.relay()
				f.insert(2_000_000, "new", `{"load": false}`)
				f.delivery()
				require.Equal(t, map[string]int{first: kept, second: 201}, f.timelines())
				require.Equal(t, "1", f.registered("epoch"))
				require.Equal(t, "2", f.registered("timeline"))
				require.NotContains(t, relay.Log(), `"level":"error"`)
			})
		}
	})
}

// Without that, the standby may lack events that consumers have seen. This is reported, and the stream
// goes on: what is new lies below them in the log, and above them in position.
func TestFailover_Diverged(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		if major < 17 {
			t.Skip("failover slots are new in PostgreSQL 17")
		}
		f := newFailover(t, major)
		consumer := follow(f.setup)
		relay := f.relay()
		f.copied(f.standby)
		consumer.delivers()
		had := f.replayed(f.standby)
		f.cutOff()
		const lost = 20
		for range lost - 1 {
			consumer.delivers()
		}
		f.db.Exec(t, "SELECT pg_logical_emit_message(false, 'e2e', repeat('x', 1000000))")
		before := consumer.delivers()
		f.caughtUp() // so the ratchet stands far beyond the fork
		f.primary.Kill(t)
		f.promote(f.standby)

		after := consumer.delivers()
		require.Less(t, positionLSN(t, after), positionLSN(t, before))
		require.Equal(t, second, judge.Header(after, "walrelay-position")[9:17])
		require.Equal(t, judge.Header(before, "walrelay-position")[:8], judge.Header(after, "walrelay-position")[:8])
		f.ready(200)
		f.caughtUp()
		require.InDelta(t, lost, f.metric("walrelay_diverged_events_total", ""), 0)
		_, body := f.get("/status")
		require.Contains(t, body, `"diverged_events": 20`)
		var entry struct {
			Level    string
			Events   int
			Timeline int
			From     string `json:"from_lsn"`
			To       string `json:"to_lsn"`
		}
		require.Equal(t, 1, logged(t, relay, "events that were published are not in the database", &entry))
		require.Equal(t, "warn", entry.Level)
		require.Equal(t, lost, entry.Events)
		require.Equal(t, 1, entry.Timeline)
		require.Equal(t, positionLSN(t, before).String(), entry.To)
		fork, err := pglogrepl.ParseLSN(entry.From)
		require.NoError(t, err)
		require.GreaterOrEqual(t, fork, had)

		t.Log("the old primary is up again, and first in the list of hosts")
		f.primary.Start(t)
		zombie := databaseOn(t, f.primary, f.db.Name)
		skipped := consumer.number()
		zombie.Exec(t, insertSQL, eventID(skipped), "k", `{"skipped": true}`)
		f.cut()
		consumer.delivers()
		f.cut() // once more: it is said once
		consumer.delivers()
		require.Equal(t, 1, logged(t, relay, "is passed over: it writes on timeline 1, but timeline 2 has begun", &entry))

		t.Log("it is the only one")
		f.standby.Stop(t, testenv.Fast)
		f.ready(503, "it writes on timeline 1, but timeline 2 has begun")
		require.True(t, relay.Running())
		f.standby.Start(t)
		f.db.Conn.Reset()
		consumer.delivers()
		consumer.delivers()
		f.ready(200)
		require.InDelta(t, lost, f.metric("walrelay_diverged_events_total", ""), 0)
		require.Equal(t, "1", f.registered("epoch"))
	})
}

// When the new primary dies, too, and another standby of the first one takes over, that calls its timeline 2
// as well. So what is new there would have positions below those of the other timeline 2.
func TestFailover_Sibling(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		if major < 17 {
			t.Skip("failover slots are new in PostgreSQL 17")
		}
		f := newFailover(t, major)
		sibling := f.primary.Standby(t, testenv.Config{Settings: map[string]string{"sync_replication_slots": "on"}})
		f.hosts(f.primary, f.standby, sibling)
		consumer := follow(f.setup)
		relay := f.relay()
		f.copied(f.standby, sibling)
		consumer.delivers()
		f.replayed(f.standby)
		f.replayed(sibling)
		f.primary.Kill(t)

		f.promote(f.standby)
		consumer.delivers()
		f.db.Exec(t, "SELECT pg_logical_emit_message(false, 'e2e', repeat('x', 1000000))")
		before := consumer.delivers()
		f.standby.Kill(t)

		f.promote(sibling)
		after := consumer.delivers()
		require.Equal(t, second, judge.Header(before, "walrelay-position")[9:17])
		require.Equal(t, second, judge.Header(after, "walrelay-position")[9:17])
		require.Less(t, positionLSN(t, after), positionLSN(t, before))
		require.Equal(t, "2", f.registered("epoch"))
		require.Positive(t, f.metric("walrelay_diverged_events_total", "")) // what lies before the sibling's end is not known
		consumer.delivers()
		require.True(t, relay.Running())
	})
}

// logged counts the lines of the log whose message has the text, and reads the last one.
func logged(t *testing.T, relay *testenv.Process, text string, entry any) (count int) {
	t.Helper()
	for line := range strings.Lines(relay.Log()) {
		var head struct{ Message string }
		require.NoError(t, json.Unmarshal([]byte(line), &head), line)
		if strings.Contains(head.Message, text) {
			count++
			require.NoError(t, json.Unmarshal([]byte(line), entry))
		}
	}
	return count
}

// A server that takes over without the slot is a gap, whatever the version.
func TestFailover_WithoutSlot(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		f := newFailover(t, major)
		if major >= 17 {
			f.standby.Exec(t, "ALTER SYSTEM SET sync_replication_slots = off")
			f.standby.Exec(t, "SELECT pg_reload_conf()")
		}
		consumer := follow(f.setup)
		relay := f.relay()
		consumer.delivers()
		f.replayed(f.standby)
		relay.Signal(t, syscall.SIGSTOP) // until the promotion is over: it does not try in between
		f.primary.Kill(t)
		f.promote(f.standby)
		consumer.skips()
		relay.Signal(t, syscall.SIGCONT)
		message := fatal(t, relay, `slot "`+f.slot+`"`, "is gone", "not copied to the server that took over",
			"walrelay stream new-epoch "+f.slot)
		require.Contains(t, message, "rows committed between "+f.registered("confirmed_lsn")+" and ")
		consumer.goesOn()
	})
}
