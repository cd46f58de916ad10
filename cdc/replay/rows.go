package replay

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/decoder"
)

// Rows reads single rows of outbox tables as the events that they are. It is not safe for concurrent use.
type Rows struct {
	db     *pgx.Conn
	cfg    *cdc.Config
	tables map[string]*table // by name
}

// OpenRows opens a connection of its own.
func OpenRows(ctx context.Context, cfg *cdc.Config) (*Rows, error) {
	db, err := cdc.Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Rows{db: db, cfg: cfg, tables: map[string]*table{}}, nil
}

// Close closes the connection.
func (r *Rows) Close(ctx context.Context) error { return r.db.Close(ctx) }

// Read returns the event of a row by its table, as decoder.Mapping.Name has it, and its id; nil when the
// table is not configured or has no such row. Position and commit time are not known.
func (r *Rows) Read(ctx context.Context, name, id string) (*decoder.Event, error) {
	t, err := r.table(ctx, name)
	if err != nil || t == nil {
		return nil, err
	}
	return t.first(ctx, r.db, &Selection{IDs: []string{id}})
}

// first reads the first row of a selection; nil: there is none.
func (t *table) first(ctx context.Context, db *pgx.Conn, s *Selection) (*decoder.Event, error) {
	sql, args := t.query(s, "")
	result := db.PgConn().ExecParams(ctx, sql+" LIMIT 1", texts(args), nil, nil, nil)
	var ev *decoder.Event
	if result.NextRow() {
		var kept decoder.Kept
		kept.Keep(decoder.NewRows(t.mapping, t.columns).Event(result.Values()))
		ev = kept.Event()
	}
	if _, err := result.Close(); err != nil {
		return nil, cdc.Diagnose(fmt.Errorf("read a row of table %s: %w", t.mapping.Name(), readable(err)))
	}
	return ev, nil
}

// table is the configured one of that name, nil if there is none.
func (r *Rows) table(ctx context.Context, name string) (*table, error) {
	if t := r.tables[name]; t != nil {
		return t, nil
	}
	for i := range r.cfg.Mappings {
		m := &r.cfg.Mappings[i]
		if m.Prefix != "" || m.Name() != name {
			continue
		}
		t, err := describe(ctx, r.db, m, &Selection{})
		if err != nil {
			return nil, err
		}
		r.tables[name] = t
		return t, nil
	}
	return nil, nil //nolint:nilnil // no table is an answer
}
