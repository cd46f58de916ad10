package cdc

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/decoder"
)

// What the catalog says of the column a of pg_attribute, in SQL, where the log is not read. Debezium takes a domain
// for the type that it is over, and its NOT NULL for that of the column.
const (
	// ColumnType is decoder.Column.Type. OIDs below 10000 are the server's own types, and no domains:
	// FirstGenbkiObjectId in src/include/access/transam.h.
	ColumnType = `CASE WHEN a.atttypid < 10000 THEN a.atttypid ELSE (
		WITH RECURSIVE down (oid) AS (
			SELECT a.atttypid
			UNION ALL SELECT d.typbasetype FROM down JOIN pg_type d ON d.oid = down.oid WHERE d.typtype = 'd')
		SELECT down.oid FROM down JOIN pg_type b ON b.oid = down.oid WHERE b.typtype <> 'd') END`

	// ColumnNotNull is decoder.Column.NotNull.
	ColumnNotNull = `(a.attnotnull OR EXISTS (
		SELECT FROM pg_type d WHERE d.oid = a.atttypid AND d.typtype = 'd' AND d.typnotnull))`
)

// byteaColumns returns the columns of decoder.Mapping.Text that are of type bytea: no event of the table can be
// delivered then.
func (s *Server) byteaColumns(ctx context.Context, m *decoder.Mapping) ([]string, error) {
	rows, err := s.SQL.Query(ctx, `
		SELECT a.attname::text FROM pg_attribute a
		JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = $2 AND a.attname = ANY ($3) AND a.attnum > 0 AND NOT a.attisdropped
			AND `+ColumnType+` = 'bytea'::regtype ORDER BY a.attnum`, m.Schema, m.Table, m.Text())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

const inTheMiddle = "of type bytea, and a part of a topic or of a key must be text"

// byteaWarnings says at the start what otherwise the first event would.
func (s *Server) byteaWarnings(ctx context.Context) (warnings []string, err error) {
	for i := range s.cfg.Mappings {
		m := &s.cfg.Mappings[i]
		columns, err := s.byteaColumns(ctx, m)
		if err != nil {
			return nil, Diagnose(fmt.Errorf("look at column types: %w", err))
		}
		if len(columns) > 0 {
			warnings = append(warnings, fmt.Sprintf("table %s has columns %s (%s): none of its events can be delivered",
				m.Name(), inTheMiddle, joined(columns)))
		}
	}
	return warnings, nil
}

// columnTypes is about columns of a type that no event can be made of.
func (e *examination) columnTypes(ctx context.Context, m *decoder.Mapping) error {
	columns, err := e.server.byteaColumns(ctx, m)
	if err != nil || len(columns) == 0 {
		return err
	}
	alter := make([]string, 0, len(columns))
	for _, column := range columns {
		name := pgx.Identifier{column}.Sanitize()
		alter = append(alter, fmt.Sprintf("ALTER COLUMN %s TYPE text USING encode(%s, 'hex')", name, name))
	}
	table := tableName(m.Schema, m.Table)
	e.add(Finding{
		Check: "column-types", Object: "table " + table, Level: LevelFault,
		Found: "has columns " + inTheMiddle + ": " + joined(columns),
		Why:   "none of its events can be delivered",
		Fix: "ALTER TABLE " + table + " " + strings.Join(alter, ", ") +
			"; then have the application write text there, or instead name other columns in the templates",
	})
	return nil
}
