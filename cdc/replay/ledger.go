package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/checkpoint"
)

// The states of a replay.
const (
	Planned = "planned" // before its first row
	Running = "running" // unfinished, interrupted ones included
	Done    = "done"
)

// Record is what walrelay.replays has of a replay.
type Record struct {
	Name      string
	Selection Selection
	Tables    []string // as Mapping.Name has them, in order; nil: all
	State     string

	AtTable, AtValue   string // of the last row that was acknowledged; empty: none was
	Published, Refused int64

	RequestedBy      string
	Started, Updated time.Time // on the server's clock
}

// selectionDocument is the column selection.
type selectionDocument struct {
	Selection
	Tables []string `json:"tables,omitempty"`
}

// Ledger is a stream's part of walrelay.replays. It is not safe for concurrent use.
type Ledger struct {
	db     *pgx.Conn
	stream string
}

// OpenLedger opens a connection of its own.
func OpenLedger(ctx context.Context, cfg *cdc.Config) (*Ledger, error) {
	db, err := cdc.Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Ledger{db: db, stream: cfg.Stream}, nil
}

// Close closes the connection, and gives up every replay that is held.
func (l *Ledger) Close(ctx context.Context) error { return l.db.Close(ctx) }

// Begin writes a new replay down.
func (l *Ledger) Begin(ctx context.Context, r *Record) error {
	written, err := l.write(ctx, r, "VALUES ($1, $2, $3, 'planned') ON CONFLICT (stream, name) DO NOTHING")
	if err == nil && !written {
		err = &cdc.FatalError{
			Object: fmt.Sprintf("replay %q", r.Name), Problem: "was begun before",
			Remedy: "`walrelay replay resume " + r.Name + "`, or choose another name",
		}
	}
	return err
}

// Plan writes down a replay of what comes before a slot that is yet to be created, or plans it anew. When the
// slot is there it does nothing: who has created it has planned before, and may be through by now.
func (l *Ledger) Plan(ctx context.Context, r *Record, slot string) error {
	_, err := l.write(ctx, r, `SELECT $1, $2, $3::jsonb, 'planned'
		WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $4)
		ON CONFLICT (stream, name) DO UPDATE
		SET selection = excluded.selection, state = 'planned', at_table = NULL, at_value = NULL, published = 0,
			refused = 0, requested_by = current_user, started_at = now(), updated_at = now()`, slot)
	return err
}

func (l *Ledger) write(ctx context.Context, r *Record, what string, args ...any) (written bool, err error) {
	selection, err := json.Marshal(selectionDocument{r.Selection, r.Tables})
	if err != nil {
		return false, fmt.Errorf("record replay: %w", err)
	}
	tag, err := l.db.Exec(ctx, "INSERT INTO walrelay.replays (stream, name, selection, state) "+what,
		append([]any{l.stream, r.Name, selection}, args...)...)
	if err != nil {
		return false, cdc.Diagnose(fmt.Errorf("record replay: %w", err))
	}
	return tag.RowsAffected() > 0, nil
}

// Hold takes a replay for this connection until it is closed, since two that publish the same rows would
// be in each other's way. It reports false when another process has it.
func (l *Ledger) Hold(ctx context.Context, name string) (held bool, err error) {
	err = l.db.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtextextended('walrelay.replays ' || $1, 0))",
		l.stream+" "+name).Scan(&held)
	if err != nil {
		return false, cdc.Diagnose(fmt.Errorf("hold replay: %w", err))
	}
	return held, nil
}

// Find returns a replay, nil if there is none of that name.
func (l *Ledger) Find(ctx context.Context, name string) (*Record, error) {
	records, err := l.read(ctx, "AND name = $2", name)
	if err != nil || len(records) == 0 {
		return nil, err
	}
	return &records[0], nil
}

// List returns every replay of the stream, the latest first.
func (l *Ledger) List(ctx context.Context) ([]Record, error) {
	return l.read(ctx, "ORDER BY started_at DESC, name")
}

func (l *Ledger) read(ctx context.Context, which string, args ...any) ([]Record, error) {
	rows, err := l.db.Query(ctx, `
		SELECT name, selection, state, coalesce(at_table, ''), coalesce(at_value, ''), published, refused, requested_by,
			started_at, updated_at
		FROM walrelay.replays WHERE stream = $1 `+which, append([]any{l.stream}, args...)...)
	if err != nil {
		return nil, cdc.Diagnose(fmt.Errorf("read replays: %w", err))
	}
	records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Record, err error) {
		var selection selectionDocument
		err = row.Scan(&r.Name, &selection, &r.State, &r.AtTable, &r.AtValue, &r.Published, &r.Refused, &r.RequestedBy,
			&r.Started, &r.Updated)
		r.Selection, r.Tables = selection.Selection, selection.Tables
		return r, err
	})
	if err != nil {
		return nil, cdc.Diagnose(fmt.Errorf("read replays: %w", err))
	}
	return records, nil
}

// republished closes the gap that an operator has made, if the replay holds it.
func (l *Ledger) republished(ctx context.Context, r *Record) error {
	if r.Tables != nil || len(r.Selection.IDs) > 0 {
		return nil
	}
	return cdc.RegistryOn(l.db, l.stream).Republished(ctx, r.Name, r.Selection.Since, r.Selection.Until)
}

// CoverAll says that every row that was there before the slot is published, so that retention may delete it in
// its time, and nothing is left out any more.
func (l *Ledger) CoverAll(ctx context.Context) error {
	_, err := l.db.Exec(ctx, "UPDATE walrelay.streams SET covered_since = '-infinity', left_out = NULL WHERE name = $1",
		l.stream)
	if err != nil {
		return cdc.Diagnose(fmt.Errorf("record that all rows are covered: %w", err))
	}
	return nil
}

// Refuse writes down rows that cannot be delivered, among the dead letters, from where they can be redriven. It may be
// told of the same row again.
func (l *Ledger) Refuse(ctx context.Context, rows []checkpoint.Poison) error {
	return cdc.RegistryOn(l.db, l.stream).RecordRefused(ctx, rows)
}

// errReplayGone says that a replay's row was deleted under it.
var errReplayGone = errors.New("record replay: its row in walrelay.replays is gone")

// Reach writes down how far a replay came.
func (l *Ledger) Reach(ctx context.Context, r *Record) error {
	tag, err := l.db.Exec(ctx, `
		UPDATE walrelay.replays SET state = $3, at_table = nullif($4, ''), at_value = nullif($5, ''), published = $6,
			refused = $7, updated_at = now()
		WHERE stream = $1 AND name = $2`,
		l.stream, r.Name, r.State, r.AtTable, r.AtValue, r.Published, r.Refused)
	switch {
	case err != nil:
		return cdc.Diagnose(fmt.Errorf("record replay: %w", err))
	case tag.RowsAffected() == 0:
		return errReplayGone
	}
	return nil
}
