package replay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/time/rate"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// Config says how a replay is carried out. Ledger and Sink are its own while it runs.
type Config struct {
	CDC    *cdc.Config // connection, stream, tables and window
	Ledger *Ledger
	Sink   cdc.Sink // of a replay of this name, running
	// Snapshot is one that another session has exported; empty: the present state.
	Snapshot string
	// Rate limits the rows published in a second; 0: no limit.
	Rate int
	// Skip says that the stream's policy is to drop what cannot be delivered: it is recorded as skipped, and not as
	// refused.
	Skip bool
	// Refused is told of each row that cannot be delivered, with the position under which the ledger gets it.
	// Progress is told now and then; total is the planner's estimate. Trouble is told why publishing does not go on.
	// All on Run's goroutine.
	Refused  func(checkpoint.Poison)
	Progress func(done, total int64)
	Trouble  func(error)
}

// A replay's progress is written down every recordEvery, and after recordMost refused rows. What was published since is
// published again when it is resumed.
const (
	recordEvery = time.Second
	recordMost  = 1000
)

// Run carries out a replay that the ledger has, from where it came to, and returns once everything is
// acknowledged, or refused. The whole is read in one snapshot of the database.
func Run(ctx context.Context, cfg *Config, r *Record) error {
	run := &run{cfg: cfg, record: r, limit: rate.NewLimiter(rate.Inf, 1)}
	if cfg.Rate > 0 {
		run.limit = rate.NewLimiter(rate.Limit(cfg.Rate), max(cfg.Rate/10, 1))
	}
	run.publisher = NewPublisher(cfg.Sink, cfg.CDC.Window, run.settled, cfg.Trouble)
	db, err := snapshot(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	if run.tables, err = run.open(ctx, db); err != nil {
		return err
	}
	run.record.State = Running
	for _, t := range run.tables {
		if err := run.table(ctx, db, t); err != nil {
			run.keep(context.WithoutCancel(ctx))
			return err
		}
	}
	if err := run.publisher.Drain(ctx); err != nil {
		run.keep(context.WithoutCancel(ctx))
		return err
	}
	run.record.State = Done
	if run.keep(ctx); run.keepErr != nil {
		return run.keepErr
	}
	return cfg.Ledger.republished(ctx, r)
}

// snapshot opens a connection that sees one state of the database.
func snapshot(ctx context.Context, cfg *Config) (*pgx.Conn, error) {
	direct := *cfg.CDC
	direct.ReceiveTimeout = 0 // one answer takes as long as the brokers take to store it
	db, err := cdc.Connect(ctx, &direct)
	if err != nil {
		return nil, err
	}
	begin := "SET statement_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	if cfg.Snapshot != "" {
		begin += "; SET TRANSACTION SNAPSHOT '" + cfg.Snapshot + "'" // of the server's making: hex digits and dashes
	}
	if _, err := db.PgConn().Exec(ctx, begin).ReadAll(); err != nil {
		_ = db.Close(ctx)
		return nil, cdc.Diagnose(fmt.Errorf("begin snapshot: %w", err))
	}
	return db, nil
}

// run is a replay that is carried out.
type run struct {
	cfg       *Config
	record    *Record
	publisher *Publisher
	limit     *rate.Limiter
	tables    []*table
	total     int64

	places  []place             // of rows that are not settled, in order
	refused []checkpoint.Poison // that are not written down
	kept    time.Time
	keepErr error
}

// place is where a replay can be resumed.
type place struct{ table, value string }

func (r *run) done() int64 { return r.record.Published + r.record.Refused }

// open describes the tables that are left, and estimates their rows.
func (r *run) open(ctx context.Context, db *pgx.Conn) (tables []*table, err error) {
	left := r.record.AtTable == ""
	r.total = r.done()
	for i := range r.cfg.CDC.Mappings {
		m := &r.cfg.CDC.Mappings[i]
		after := ""
		if m.Name() == r.record.AtTable {
			left, after = true, r.record.AtValue
		}
		if !left || r.record.Tables != nil && !slices.Contains(r.record.Tables, m.Name()) {
			continue
		}
		t, err := describe(ctx, db, m, &r.record.Selection)
		if err != nil {
			return nil, err
		}
		n, err := t.estimate(ctx, db, &r.record.Selection, after)
		if err != nil {
			return nil, err
		}
		r.total += n
		tables = append(tables, t)
	}
	if !left {
		return nil, &cdc.FatalError{
			Object:  fmt.Sprintf("replay %q", r.record.Name),
			Problem: "came to table " + r.record.AtTable + ", which is not configured any more",
			Remedy:  "configure that table, or begin another replay",
		}
	}
	return tables, nil
}

// table publishes what is left of a table. Its rows stream: reading waits while publishing does.
func (r *run) table(ctx context.Context, db *pgx.Conn, t *table) error {
	after := ""
	if r.record.AtTable == t.mapping.Name() {
		after = r.record.AtValue
	}
	sql, args := t.query(&r.record.Selection, after)
	rows := decoder.NewRows(t.mapping, t.columns)
	result := db.PgConn().ExecParams(ctx, sql, texts(args), nil, nil, nil) // text, as pgoutput has it
	for result.NextRow() {
		if err := r.row(ctx, t, rows, result.Values()); err != nil {
			_, _ = result.Close() // it is over; err says why
			return err
		}
	}
	if _, err := result.Close(); err != nil {
		return cdc.Diagnose(fmt.Errorf("read rows of table %s: %w", t.mapping.Name(), err))
	}
	return nil
}

func (r *run) row(ctx context.Context, t *table, rows *decoder.Rows, values [][]byte) error {
	if err := r.limit.Wait(ctx); err != nil {
		return err
	}
	at := values[len(values)-1]
	ev := rows.Event(values)
	if ev.Timestamp == nil && t.timed {
		ev.Timestamp = at // the nearest to the commit time that is known
		if stamp, err := ev.Time(); err != nil || stamp.After(time.Now()) {
			ev.Timestamp = nil // brokers refuse what lies ahead
		}
	}
	r.places = append(r.places, place{t.mapping.Name(), string(at)})
	if err := r.publisher.Publish(ctx, ev); err != nil {
		return err
	}
	if time.Since(r.kept) >= recordEvery || len(r.refused) >= recordMost {
		r.keep(ctx)
	}
	return r.keepErr
}

// settled counts a row, in order.
func (r *run) settled(_ *decoder.Event, refused *checkpoint.Poison) {
	r.record.AtTable, r.record.AtValue = r.places[0].table, r.places[0].value
	r.places = r.places[1:]
	if refused == nil {
		r.record.Published++
		return
	}
	r.record.Refused++
	poison := *refused
	poison.Position, poison.Action = checkpoint.RowPosition(poison.Table, poison.EventID), checkpoint.Refused
	if r.cfg.Skip {
		poison.Action = checkpoint.Skipped
	}
	r.refused = append(r.refused, poison)
	r.cfg.Refused(poison)
}

// keep writes down how far the replay came, and before that what it has left out: a resumed one does not look there
// again.
func (r *run) keep(ctx context.Context) {
	r.kept = time.Now()
	r.cfg.Progress(r.done(), r.total)
	err := r.cfg.Ledger.Refuse(ctx, r.refused)
	if err == nil {
		r.refused = nil
		err = r.cfg.Ledger.Reach(ctx, r.record)
	}
	if err != nil && r.keepErr == nil {
		r.keepErr = err
	}
}
