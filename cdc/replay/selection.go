package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/decoder"
)

// Selection says which rows are published again: those with the ids, or those of the time range (Since
// included, Until not; a zero time is no bound), or all.
type Selection struct {
	IDs          []string  `json:"ids,omitempty"`
	Since, Until time.Time `json:",omitzero"`
	All          bool      `json:"all,omitempty"`
	// TimeColumn orders the rows and is what Since and Until compare with. A table that lacks it is
	// read in the order of its ids, unless there is a range.
	TimeColumn string `json:"time_column,omitempty"`
	// TimeColumns are those of tables that have another, by decoder.Mapping.Name.
	TimeColumns map[string]string `json:"time_columns,omitempty"`
}

// timeColumn is that of a table.
func (s *Selection) timeColumn(m *decoder.Mapping) string {
	if own, is := s.TimeColumns[m.Name()]; is {
		return own
	}
	return s.TimeColumn
}

// Validate returns the rule that the selection breaks.
func (s *Selection) Validate() error {
	ranged := !s.Since.IsZero() || !s.Until.IsZero()
	chosen := 0
	for _, is := range []bool{len(s.IDs) > 0, ranged, s.All} {
		if is {
			chosen++
		}
	}
	switch {
	case chosen == 0:
		return errors.New("say which rows: ids, a time range, or all")
	case chosen > 1:
		return errors.New("ids, a time range and all exclude each other")
	case ranged && s.TimeColumn == "":
		return errors.New("a time range needs a time column")
	case !s.Until.IsZero() && !s.Since.Before(s.Until):
		return errors.New("the time range ends before it begins")
	}
	return nil
}

// table is an outbox table as a replay reads it.
type table struct {
	mapping   *decoder.Mapping
	columns   []decoder.Column // those that are read
	id, order column
	timed     bool // order is the time column, and not the id
}

type column struct{ name, kind string } // kind is the type as SQL writes it

// describe reads what the catalog says of the mapped columns.
func describe(ctx context.Context, db *pgx.Conn, m *decoder.Mapping, s *Selection) (*table, error) {
	t := &table{mapping: m}
	object := "table " + t.sql()
	rows, err := db.Query(ctx, `
		SELECT a.attname::text, `+cdc.ColumnType+", a.atttypmod, "+cdc.ColumnNotNull+`, format_type(a.atttypid, a.atttypmod)
		FROM pg_attribute a
		WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, t.sql())
	if err != nil {
		return nil, cdc.Diagnose(fmt.Errorf("read columns of %s: %w", object, err))
	}
	mapped, timeColumn := append(m.Required(), m.Optional()...), s.timeColumn(m)
	var found decoder.Column
	var kind string
	_, err = pgx.ForEachRow(rows, []any{&found.Name, &found.Type, &found.Modifier, &found.NotNull, &kind}, func() error {
		if slices.Contains(mapped, found.Name) {
			t.columns = append(t.columns, found)
		}
		switch {
		case found.Name == timeColumn && timeColumn != "":
			t.order, t.timed = column{found.Name, kind}, true
		case found.Name == m.ID:
			t.id = column{found.Name, kind}
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, cdc.Diagnose(fmt.Errorf("read columns of %s: %w", object, err))
	case t.id.name == "":
		return nil, &cdc.FatalError{
			Object: object, Problem: fmt.Sprintf("does not exist, or has no column %q", m.ID),
			Remedy: "correct the configured tables and columns",
		}
	case !t.timed && (!s.Since.IsZero() || !s.Until.IsZero()):
		return nil, &cdc.FatalError{
			Object: object, Problem: fmt.Sprintf("has no column %q, by which a time range is chosen", timeColumn),
			Remedy: "name the column that holds the time of the insert: --time-column",
		}
	case !t.timed:
		t.order = t.id
	}
	return t, nil
}

func (t *table) sql() string { return pgx.Identifier{t.mapping.Schema, t.mapping.Table}.Sanitize() }

func (c column) sql() string { return pgx.Identifier{c.name}.Sanitize() }

// where returns the condition of a selection and its arguments, in text. after is where an earlier
// attempt came to: the order column's value of the last row that was acknowledged; empty: nowhere.
func (t *table) where(s *Selection, after string) (condition string, args []string) {
	var all []string
	add := func(format string, arg string) {
		args = append(args, arg)
		all = append(all, fmt.Sprintf(format, fmt.Sprintf("$%d::text", len(args))))
	}
	if len(s.IDs) > 0 {
		add(t.id.sql()+" = ANY (%s::text[]::"+t.id.kind+"[])", arrayLiteral(s.IDs))
	}
	if !s.Since.IsZero() {
		add(t.order.sql()+" >= %s::timestamptz", s.Since.Format(time.RFC3339Nano))
	}
	if !s.Until.IsZero() {
		add(t.order.sql()+" < %s::timestamptz", s.Until.Format(time.RFC3339Nano))
	}
	if after != "" {
		add(t.order.sql()+" >= %s::"+t.order.kind, after)
	}
	if all == nil {
		return "true", nil
	}
	return strings.Join(all, " AND "), args
}

// query reads the mapped columns and the order column, all as text. Rows without a time come first, so
// that they lie before any place to go on from.
func (t *table) query(s *Selection, after string) (sql string, args []string) {
	var columns []string
	for _, c := range t.columns {
		columns = append(columns, column{name: c.Name}.sql())
	}
	condition, args := t.where(s, after)
	order := "t." + t.order.sql() // and not the output column of that name
	if t.timed {
		order += " NULLS FIRST, t.tableoid, t.ctid"
	}
	return "SELECT " + strings.Join(append(columns, t.order.sql()+"::text"), ", ") +
		" FROM " + t.sql() + " AS t WHERE " + condition + " ORDER BY " + order, args
}

// estimate is how many rows the planner expects.
func (t *table) estimate(ctx context.Context, db *pgx.Conn, s *Selection, after string) (int64, error) {
	condition, args := t.where(s, after)
	var plan []struct {
		Plan struct {
			Rows float64 `json:"Plan Rows"`
		}
	}
	err := db.QueryRow(ctx, "EXPLAIN (FORMAT JSON) SELECT FROM "+t.sql()+" WHERE "+condition, anys(args)...).Scan(&plan)
	if err != nil {
		return 0, cdc.Diagnose(fmt.Errorf("estimate the rows of %s: %w", t.sql(), readable(err)))
	}
	return int64(plan[0].Plan.Rows), nil
}

// present returns those of the ids that the table has.
func (t *table) present(ctx context.Context, db *pgx.Conn, ids []string) ([]string, error) {
	rows, err := db.Query(ctx, "SELECT given FROM unnest($1::text::text[]) AS given WHERE EXISTS (SELECT FROM "+t.sql()+
		" WHERE "+t.id.sql()+" = given::"+t.id.kind+")", arrayLiteral(ids))
	if err != nil {
		return nil, cdc.Diagnose(fmt.Errorf("look up ids in %s: %w", t.sql(), err))
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, cdc.Diagnose(fmt.Errorf("look up ids in %s: %w", t.sql(), readable(err)))
	}
	return found, nil
}

// readable replaces the server's word on an id that is none of the column's type.
func readable(err error) error {
	if server, ok := errors.AsType[*pgconn.PgError](err); ok && server.Code == "22P02" {
		return errors.New("an id cannot be one of the id column's type")
	}
	return err
}

// arrayLiteral writes an array as text, see https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO
func arrayLiteral(elements []string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	quoted := make([]string, len(elements))
	for i, e := range elements {
		quoted[i] = `"` + escape.Replace(e) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

func anys(texts []string) []any {
	values := make([]any, len(texts))
	for i, t := range texts {
		values[i] = t
	}
	return values
}

func texts(args []string) [][]byte {
	values := make([][]byte, len(args))
	for i, a := range args {
		values[i] = []byte(a)
	}
	return values
}
