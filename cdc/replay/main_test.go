package replay

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/migrations"
	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

// fixture is a database with two outbox tables, and a stream that reads them.
type fixture struct {
	t   *testing.T
	db  *testenv.Database
	cfg *cdc.Config
}

const tables = `CREATE TABLE public.events (id bigint PRIMARY KEY, key text, payload text, at timestamptz);
	CREATE TABLE public.audit (no text PRIMARY KEY, key text, payload text, seen timestamptz)`

func newFixture(t *testing.T, major int) *fixture {
	t.Helper()
	f := &fixture{t: t, db: testenv.Postgres(t, major).Database(t)}
	db, err := sql.Open("pgx", f.db.DSN)
	require.NoError(t, err)
	_, err = migrations.Up(t.Context(), db)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	f.db.Exec(t, tables)
	f.db.Exec(t, `INSERT INTO walrelay.streams (name, system_identifier, timeline, slot, publication, delivery, routing)
		VALUES ('orders', '1', 1, 'none', 'none', 'at-least-once', 'r')`)
	f.cfg = &cdc.Config{
		ConnString: cdc.Secret(f.db.DSN), Stream: "orders", ConnectTimeout: 10 * time.Second, ReceiveTimeout: time.Minute,
		Window: checkpoint.Window{Events: 16, Bytes: 1 << 20}, Logger: zaptest.NewLogger(t),
		Mappings: []decoder.Mapping{
			{Schema: "public", Table: "events", ID: "id", Key: "key", Payload: "payload"},
			{Schema: "public", Table: "audit", ID: "no", Key: "key", Payload: "payload"},
		},
	}
	return f
}

// fill inserts rows of ids 1 to n, a minute apart, into events.
func (f *fixture) fill(n int) {
	f.t.Helper()
	f.db.Exec(f.t, `INSERT INTO public.events SELECT n, 'k', 'p', '2026-01-01'::timestamptz + n * interval '1 minute'
		FROM generate_series(1, $1) AS n`, n)
}

func (f *fixture) ledger() *Ledger {
	f.t.Helper()
	l, err := OpenLedger(f.t.Context(), f.cfg)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// begin writes a replay down.
func (f *fixture) begin(name string, s Selection, tables ...string) *Record {
	f.t.Helper()
	if s.TimeColumn == "" && s.TimeColumns == nil {
		s.TimeColumn, s.TimeColumns = "at", map[string]string{"public.audit": "seen"}
	}
	r := &Record{Name: name, Selection: s, Tables: tables}
	require.NoError(f.t, s.Validate())
	require.NoError(f.t, f.ledger().Begin(f.t.Context(), r))
	return f.find(name)
}

func (f *fixture) find(name string) *Record {
	f.t.Helper()
	r, err := f.ledger().Find(f.t.Context(), name)
	require.NoError(f.t, err)
	return r
}

// run carries a replay out, and returns what its rows' fate was told as.
func (f *fixture) run(ctx context.Context, r *Record, b *brokers, change ...func(*Config)) error {
	f.t.Helper()
	cfg := &Config{
		CDC: f.cfg, Ledger: f.ledger(), Sink: b,
		Refused:  func(p checkpoint.Poison) { b.told = append(b.told, p) },
		Progress: func(int64, int64) {},
		Trouble:  func(err error) { b.troubles = append(b.troubles, err) },
	}
	for _, c := range change {
		c(cfg)
	}
	return Run(ctx, cfg, r)
}

// letters are the recorded ones: id, action and reason.
func (f *fixture) letters() (all [][3]string) {
	f.t.Helper()
	registry, err := cdc.OpenRegistry(f.t.Context(), f.cfg)
	require.NoError(f.t, err)
	defer func() { _ = registry.Close(context.Background()) }()
	found, err := registry.Letters(f.t.Context(), false)
	require.NoError(f.t, err)
	for _, l := range found {
		all = append(all, [3]string{l.EventID, string(l.Action), l.Reason})
	}
	return all
}

// brokers acknowledge what they are given when the publisher waits for it. All on one goroutine.
type brokers struct {
	refuse  map[string]bool // by id
	failing int             // how many acknowledgements from now a run fails, once; 0: never
	reached func(n int)     // told how many are acknowledged

	mailbox *checkpoint.Mailbox
	waiting []uint64
	ids     []string
	acked   []string // in the order of acknowledgement, without those that were lost with their run
	stamps  []string

	first, last time.Time // when an event was published
	told        []checkpoint.Poison
	troubles    []error
}

var _ cdc.Sink = (*brokers)(nil)

var errRun = errors.New("the run has failed")

func (b *brokers) Begin(_ context.Context, run checkpoint.Run) error {
	b.mailbox, b.waiting, b.ids = run.Mailbox, nil, nil
	return nil
}

func (b *brokers) End(context.Context) error { return nil }

func (b *brokers) Publish(seq uint64, ev *decoder.Event) {
	if b.last = time.Now(); b.first.IsZero() {
		b.first = b.last
	}
	if b.refuse[string(ev.ID)] {
		b.mailbox.PutPoison(checkpoint.Poison{
			Seq: seq, Position: ev.Position, EventID: string(ev.ID), Table: ev.Mapping.Name(), Topic: "t", Reason: "too large",
			Action: checkpoint.Skipped,
		})
		return
	}
	b.waiting, b.ids = append(b.waiting, seq), append(b.ids, string(ev.ID))
	b.stamps = append(b.stamps, string(ev.Timestamp))
}

func (b *brokers) Reached(pglogrepl.LSN) {}

func (b *brokers) Recorded([]uint64) {}

func (b *brokers) Full() { b.Flush() }

// Flush acknowledges what waits, the latest first, since brokers know no order among partitions.
func (b *brokers) Flush() {
	for i, seq := range slices.Backward(b.waiting) {
		b.acked = append(b.acked, b.ids[i])
		b.mailbox.Settle([]uint64{seq})
		if b.failing--; b.failing == 0 {
			b.mailbox.Fail(errRun)
			break
		}
		if b.reached != nil {
			b.reached(len(b.acked))
		}
	}
	b.waiting, b.ids = nil, nil
}
