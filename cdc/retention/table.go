package retention

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walrelay/walrelay/cdc"
)

// table is an outbox table as the catalog has it.
type table struct {
	Outbox

	oid        uint32
	name       string // qualified, quoted
	id, idType string // of the id column, for SQL
	column     string // the time column, quoted
	columnType string // for SQL

	indexed  bool // an index begins with the time column
	readable bool // the role may SELECT
	writable bool // the role may DELETE, and lock rows
	role     string

	// droppable says that whole partitions are dropped instead of rows deleted: each ends at some time of the
	// column, none is the default partition (with which the server detaches none CONCURRENTLY), and the role owns all.
	droppable bool
}

// Check verifies that every table has the column, and one of a type that is a time. It is for
// cdc.Config.Check: its *cdc.FatalError ends the start.
func (k *Keeper) Check(ctx context.Context, db *pgx.Conn) error {
	_, err := fitting(ctx, db, &k.cfg)
	return err
}

// fitting reads the tables, and verifies that each has a time.
func fitting(ctx context.Context, db *pgx.Conn, cfg *Config) ([]table, error) {
	tables, err := inspect(ctx, db, cfg)
	for i := range tables {
		if err := tables[i].checkColumn(); err != nil {
			return nil, err
		}
	}
	return tables, err
}

// inspect reads what there is to know of the tables.
func inspect(ctx context.Context, db *pgx.Conn, cfg *Config) ([]table, error) {
	tables := make([]table, 0, len(cfg.Tables))
	for _, o := range cfg.Tables {
		t := table{
			Outbox: o, name: pgx.Identifier{o.Schema, o.Table}.Sanitize(), id: pgx.Identifier{o.ID}.Sanitize(),
			column: pgx.Identifier{o.Column}.Sanitize(),
		}
		err := db.QueryRow(ctx, `
			SELECT r.oid::int8, coalesce(format_type(i.atttypid, i.atttypmod), ''), coalesce(format_type(a.atttypid, NULL), ''),
				EXISTS (SELECT FROM pg_index x WHERE x.indrelid = r.oid AND x.indkey[0] = a.attnum AND x.indisvalid
					AND x.indpred IS NULL),
				has_table_privilege(r.oid, 'SELECT'),
				has_table_privilege(r.oid, 'DELETE') AND has_any_column_privilege(r.oid, 'UPDATE'), current_user::text,
				EXISTS (SELECT FROM pg_partitioned_table p WHERE p.partrelid = r.oid AND p.partstrat = 'r'
						AND p.partnatts = 1 AND p.partattrs[0] = a.attnum)
					AND pg_has_role(r.relowner, 'USAGE')
					AND NOT EXISTS (SELECT FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid
						WHERE h.inhparent = r.oid AND (NOT pg_has_role(c.relowner, 'USAGE') OR `+upperBound+` IS NULL))
			FROM pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace
			LEFT JOIN pg_attribute i ON i.attrelid = r.oid AND i.attname = $3 AND NOT i.attisdropped
			LEFT JOIN pg_attribute a ON a.attrelid = r.oid AND a.attname = $4 AND NOT a.attisdropped
			WHERE n.nspname = $1 AND r.relname = $2`, o.Schema, o.Table, o.ID, o.Column).
			Scan(&t.oid, &t.idType, &t.columnType, &t.indexed, &t.readable, &t.writable, &t.role, &t.droppable)
		if errors.Is(err, pgx.ErrNoRows) {
			continue // the check of the publication has a message for that
		}
		if err != nil {
			return nil, fmt.Errorf("inspect table %s: %w", t.name, err)
		}
		if t.idType != "" {
			tables = append(tables, t)
		}
	}
	return tables, nil
}

// isTime reports whether a type, as format_type names it, tells a row's age.
func isTime(name string) bool {
	switch name {
	case "timestamp with time zone", "timestamp without time zone", "date":
		return true
	}
	return false
}

func (t *table) checkColumn() error {
	const remedy = "set WALRELAY_RETENTION_COLUMN, or retention of the table in WALRELAY_TABLE_COLUMNS, to "
	switch {
	case isTime(t.columnType):
		return nil
	case t.columnType == "":
		return &cdc.FatalError{
			Object:  "table " + t.name,
			Problem: fmt.Sprintf("has no column %q, by which WALRELAY_RETENTION tells a row's age", t.Column),
			Remedy:  remedy + "the column that holds the time of the insert, or WALRELAY_RETENTION to 0",
		}
	default:
		return &cdc.FatalError{
			Object:  "table " + t.name,
			Problem: fmt.Sprintf("has the column %q of type %s, which is no time", t.Column, t.columnType),
			Remedy:  remedy + "a column of type timestamptz, timestamp or date",
		}
	}
}

// mayDelete says which right the role lacks.
func (t *table) mayDelete() error {
	if t.readable && (t.writable || t.droppable) {
		return nil
	}
	return fmt.Errorf("role %q may not delete from %s: %s", t.role, t.name, t.grant())
}

// grant gives the role what it needs to delete rows.
func (t *table) grant() string {
	return "GRANT SELECT, DELETE, UPDATE (" + t.column + ") ON " + t.name + " TO " + pgx.Identifier{t.role}.Sanitize()
}

// diagnose names the table, and what mends an error that trying again does not.
func (t *table) diagnose(err error) error {
	remedy := ""
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch server.Code {
		case "42501": // insufficient_privilege
			remedy = t.grant()
		case "55000": // object_not_in_prerequisite_state: "... does not have a replica identity and publishes deletes"
			remedy = "ALTER PUBLICATION ... SET (publish = 'insert') for the publication that publishes deletes too, or " +
				"ALTER TABLE " + t.name + " REPLICA IDENTITY FULL"
		case "57014": // query_canceled: by statement_timeout
			remedy = "CREATE INDEX CONCURRENTLY ON " + t.name + " (" + t.column + "), and one on " + t.id + " if there is none"
		}
	}
	if remedy == "" {
		return fmt.Errorf("table %s: %w", t.name, err)
	}
	return fmt.Errorf("table %s: %w; to go on: %s", t.name, err, remedy)
}
