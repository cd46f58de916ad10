package retention

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/migrations"
	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

const (
	wait = time.Minute
	tick = 20 * time.Millisecond
)

// fixture is a database with an outbox, and a stream that confirms what the test says.
type fixture struct {
	t  *testing.T
	db *testenv.Database
	*Keeper

	mu      sync.Mutex
	session cdc.Session
	dsn     string // for the keeper
}

// newFixture creates the outbox with ddl, under the name events.
func newFixture(t *testing.T, major int, ddl string) *fixture {
	t.Helper()
	f := &fixture{t: t, db: testenv.Postgres(t, major).Database(t), session: cdc.Session{Number: 1}}
	f.dsn = f.db.DSN
	db, err := sql.Open("pgx", f.db.DSN)
	require.NoError(t, err)
	_, err = migrations.Up(t.Context(), db)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	f.db.Exec(t, ddl)
	f.db.Exec(t, `INSERT INTO walrelay.streams (name, system_identifier, timeline, slot, publication, delivery, routing,
		covered_since) VALUES ('orders', '1', 1, 'none', 'none', 'at-least-once', 'r', now() - interval '1 year')`)
	f.Keeper = New(Config{
		Limit: time.Hour, Stream: "orders", Logger: zaptest.NewLogger(t),
		Tables: []Outbox{{decoder.Mapping{Schema: "public", Table: "events", ID: "id"}, "at"}},
	})
	f.idle = tick
	return f
}

// Session implements Stream.
func (f *fixture) Session() (cdc.Session, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.session, f.session.Number > 0
}

// Connect implements Stream.
func (f *fixture) Connect(ctx context.Context, _ cdc.Session) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(f.dsn)
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["timezone"], cfg.RuntimeParams["search_path"] = "UTC", "pg_catalog, pg_temp"
	cfg.RuntimeParams["lock_timeout"] = "300"
	return pgx.ConnectConfig(ctx, cfg)
}

// run starts the keeper, until the end of the test.
func (f *fixture) run() {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx, f)
	}()
	f.t.Cleanup(func() {
		cancel()
		<-done
	})
}

// covers lets the stream confirm everything that is in the log now.
func (f *fixture) covers() {
	f.t.Helper()
	var now pglogrepl.LSN
	require.NoError(f.t, f.db.QueryRow(f.t, "SELECT pg_current_wal_insert_lsn()::text").Scan(&now))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.session.Covered = now
}

// coversAll lets the stream confirm whatever comes.
func (f *fixture) coversAll() { f.change(cdc.Session{Number: 1, Covered: 1 << 62}) }

func (f *fixture) change(s cdc.Session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.session = s
}

// ids are those in the table.
func (f *fixture) ids() []string {
	f.t.Helper()
	ids := []string{}
	require.NoError(f.t, f.db.QueryRow(f.t,
		"SELECT coalesce(array_agg(btrim(id::text) ORDER BY id::text), '{}') FROM public.events").Scan(&ids))
	return ids
}

// keeps waits until only the given rows are there, and then for two rounds more.
func (f *fixture) keeps(ids ...string) {
	f.t.Helper()
	want := append([]string{}, ids...)
	require.Eventually(f.t, func() bool { return len(f.ids()) == len(want) }, wait, tick)
	f.goesRound()
	require.Equal(f.t, want, f.ids())
}

// goesRound waits until all tables were gone through again.
func (f *fixture) goesRound() {
	f.t.Helper()
	for range 2 {
		last := f.Stats().LastRun
		require.Eventually(f.t, func() bool { return f.Stats().LastRun.After(last) }, wait, tick)
	}
}

// insert adds rows that are older than the limit.
func (f *fixture) insert(ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		f.db.Exec(f.t, "INSERT INTO public.events (id, at) VALUES ("+"'"+id+"'"+", now() - interval '2 hours')")
	}
}

// fails waits for an error with all parts. It need not be the first one: a change of the table that strikes
// between two statements of the keeper is the server's error, and has its own message from the next attempt on.
func (f *fixture) fails(parts ...string) {
	f.t.Helper()
	require.EventuallyWithT(f.t, func(c *assert.CollectT) {
		last := f.Stats().LastError
		for _, part := range parts {
			assert.Contains(c, last, part)
		}
	}, wait, tick)
}

func forMajors(t *testing.T, test func(t *testing.T, major int)) {
	t.Helper()
	t.Parallel()
	for _, major := range []int{14, 18} {
		t.Run("postgres-"+string(rune('0'+major/10))+string(rune('0'+major%10)), func(t *testing.T) {
			t.Parallel()
			test(t, major)
		})
	}
}
