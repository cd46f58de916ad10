package cdc

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/decoder"
)

// Limits of what is read of the outbox tables.
const (
	sampleBlocks = 64       // of a table's end, read by their address: no scan of the rest
	sampleRows   = 1000     // of one table or partition
	sampleLeaves = 4        // partitions of one table, the youngest
	sampleRoutes = 100      // different routes of one table
	sampleBytes  = 16 << 20 // of the one row that is fetched whole
)

// Sample is what the broker's side of an examination needs to know of the server's.
type Sample struct {
	// ClockOffset is the server's clock minus ours.
	ClockOffset time.Duration
	Tables      []SampledTable
	// Topics lists those that the stream has published to, as the registry knows them: the outbox may be
	// empty whenever it is looked at.
	Topics []string
}

// SampledTable is what the last rows of one outbox table look like. It holds a row, payload included.
type SampledTable struct {
	Mapping *decoder.Mapping
	// Rows is how many rows were looked at, RowBytes the size of the largest of them: its mapped columns,
	// as far as that is known without reading it.
	Rows     int
	RowBytes int64

	columns []decoder.Column
	largest [][]byte   // values; nil: no row, or one beyond sampleBytes
	routes  [][][]byte // values of a row for each different route; a stand-in for what else must not be NULL
}

// Largest maps the largest row that was seen; nil when there was none. The event is valid until the next call.
func (t *SampledTable) Largest() *decoder.Event {
	if t.largest == nil {
		return nil
	}
	return decoder.NewRows(t.Mapping, t.columns).Event(t.largest)
}

// Routes calls use with an event for each different route that was seen: only its Route means anything.
func (t *SampledTable) Routes(use func(*decoder.Event)) {
	rows := decoder.NewRows(t.Mapping, t.columns)
	for _, values := range t.routes {
		use(rows.Event(values))
	}
}

// takeSample looks at the last rows of each table. That a table is missing or may not be read, other
// checks say.
func (e *examination) takeSample(ctx context.Context) error {
	if _, err := e.recorded(ctx); err == nil && e.row != nil {
		e.sample.Topics = slices.Sorted(maps.Keys(e.row.Partitions))
	}
	for i := range e.cfg.Mappings {
		table := SampledTable{Mapping: &e.cfg.Mappings[i]}
		if err := e.sampleTable(ctx, &table); err != nil {
			e.unknown("sample", "table "+tableName(table.Mapping.Schema, table.Mapping.Table), err)
			continue
		}
		e.sample.Tables = append(e.sample.Tables, table)
	}
	return nil
}

// leaf is a table that holds rows.
type leaf struct {
	name   string // quoted where needed, qualified
	blocks int64
}

func (e *examination) sampleTable(ctx context.Context, t *SampledTable) error {
	name := tableName(t.Mapping.Schema, t.Mapping.Table)
	rows, err := e.server.SQL.Query(ctx, `
		SELECT a.attname::text, `+ColumnType+", a.atttypmod, "+ColumnNotNull+` FROM pg_attribute a
		WHERE a.attrelid = (SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE n.nspname = $1 AND c.relname = $2 AND has_table_privilege(c.oid, 'SELECT')
					AND has_schema_privilege(n.oid, 'USAGE'))
			AND a.attnum > 0 AND NOT a.attisdropped AND a.attname = ANY ($3) ORDER BY a.attnum`,
		t.Mapping.Schema, t.Mapping.Table, append(t.Mapping.Required(), t.Mapping.Optional()...))
	if err != nil {
		return err
	}
	if t.columns, err = pgx.CollectRows(rows, pgx.RowToStructByPos[decoder.Column]); err != nil || len(t.columns) == 0 {
		return err
	}
	rows, err = e.server.SQL.Query(ctx, `
		SELECT p.name, pg_relation_size(p.oid) / current_setting('block_size')::bigint FROM (`+partitionsOf+`) AS p
		WHERE has_table_privilege(p.oid, 'SELECT') ORDER BY p.oid DESC LIMIT $3`,
		t.Mapping.Schema, t.Mapping.Table, sampleLeaves)
	if err != nil {
		return err
	}
	leaves, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l leaf, err error) {
		return l, row.Scan(&l.name, &l.blocks)
	})
	if err != nil {
		return err
	}
	if len(leaves) == 0 { // partitions that may be read through their table only
		leaves = []leaf{{name: name}}
	}
	for _, l := range leaves {
		if err := e.sampleLeaf(ctx, t, l); err != nil {
			return err
		}
	}
	return nil
}

// sampleLeaf reads routes and sizes of the rows in the last blocks, and fetches the largest row.
func (e *examination) sampleLeaf(ctx context.Context, t *SampledTable, l leaf) error {
	sizes, routed, at := make([]string, 0, len(t.columns)), []string{}, []int{}
	for i, column := range t.columns {
		sizes = append(sizes, sizeOf(column))
		if slices.Contains(t.Mapping.Route, column.Name) {
			routed, at = append(routed, pgx.Identifier{column.Name}.Sanitize()), append(at, i)
		}
	}
	list := strings.Join(append([]string{"ctid", strings.Join(sizes, " + ")}, routed...), ", ")
	from := fmt.Sprintf("(%d,0)", max(l.blocks-sampleBlocks, 0))
	// The values come as text, as the log has them, and are not looked at by pgx.
	result := e.server.SQL.PgConn().ExecParams(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE ctid >= '%s'::tid LIMIT %d",
		list, l.name, from, sampleRows), nil, nil, nil, nil).Read()
	if result.Err != nil {
		return result.Err
	}
	var row string
	for _, values := range result.Rows {
		t.Rows++
		t.route(at, values[2:])
		size, err := strconv.ParseInt(string(values[1]), 10, 64)
		if err != nil {
			return fmt.Errorf("read a row's size: %w", err)
		}
		if size > t.RowBytes || t.Rows == 1 {
			t.RowBytes, row = size, string(values[0])
		}
	}
	if row == "" || t.RowBytes > sampleBytes {
		return nil
	}
	return e.fetch(ctx, t, l, row)
}

// sizeOf is the size of a column's value as text, where the server knows it without reading the value.
func sizeOf(column decoder.Column) string {
	name := pgx.Identifier{column.Name}.Sanitize()
	switch column.Type {
	case 25, 1043, 1042, 17: // text, varchar, bpchar, bytea
		return "coalesce(octet_length(" + name + "), 0)"
	default: // jsonb among them: compressed, perhaps
		return "coalesce(pg_column_size(" + name + "), 0)"
	}
}

// route keeps the values of a row's route columns, which are at these indexes, unless they are known.
func (t *SampledTable) route(at []int, route [][]byte) {
	if len(t.routes) >= sampleRoutes {
		return
	}
	values := make([][]byte, len(t.columns))
	for i, column := range t.columns {
		if slices.Contains(t.Mapping.NotNull(), column.Name) {
			values[i] = []byte("x")
		}
	}
	for i, column := range at {
		values[column] = route[i]
	}
	for _, known := range t.routes {
		same := true
		for _, column := range at {
			same = same && string(known[column]) == string(values[column])
		}
		if same {
			return
		}
	}
	t.routes = append(t.routes, values)
}

func (e *examination) fetch(ctx context.Context, t *SampledTable, l leaf, row string) error {
	names := make([]string, 0, len(t.columns))
	for _, column := range t.columns {
		names = append(names, pgx.Identifier{column.Name}.Sanitize())
	}
	result := e.server.SQL.PgConn().ExecParams(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE ctid = '%s'::tid",
		strings.Join(names, ", "), l.name, row), nil, nil, nil, nil).Read()
	if result.Err != nil {
		return result.Err
	}
	if len(result.Rows) > 0 { // it may have been deleted meanwhile
		t.largest = result.Rows[0]
	}
	return nil
}
