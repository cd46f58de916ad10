package cdc

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/decoder"
)

// describe adds to a relation which of its columns are NOT NULL, if that is asked for: the log does not say. What the
// catalog says may be newer than the row, as it is for Debezium.
func (s *Server) describe(ctx context.Context, rel *decoder.Relation) error {
	if !s.cfg.Nullability {
		return nil
	}
	rows, err := s.SQL.Query(ctx, `SELECT a.attname::text FROM pg_attribute a
		WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped AND `+ColumnNotNull, rel.OID)
	if err != nil {
		return Diagnose(fmt.Errorf("describe relation: %w", err))
	}
	notNull, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return Diagnose(fmt.Errorf("describe relation: %w", err))
	}
	for _, name := range notNull {
		for i := range rel.Columns {
			if rel.Columns[i].Name == name {
				rel.Columns[i].NotNull = true
			}
		}
	}
	return nil
}
