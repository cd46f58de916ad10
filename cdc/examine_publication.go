package cdc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/decoder"
)

func (e *examination) publicationChecks() []check {
	checks := []check{{"publication", quoted("publication", e.cfg.Publication), e.publication}}
	for i := range e.cfg.Mappings {
		m := &e.cfg.Mappings[i]
		object := "table " + tableName(m.Schema, m.Table)
		checks = append(checks,
			check{"partitions", object, func(ctx context.Context) error { return e.unloggedPartitions(ctx, m) }},
			check{"nullable-columns", object, func(ctx context.Context) error { return e.nullableColumns(ctx, m) }},
			check{"column-types", object, func(ctx context.Context) error { return e.columnTypes(ctx, m) }},
			check{"replica-identity", object, func(ctx context.Context) error { return e.replicaIdentity(ctx, m) }},
		)
	}
	return checks
}

// publication makes the checks that the stream makes of it, and does not stop at the first fault.
func (e *examination) publication(ctx context.Context) error {
	schemas, tables := make([]string, len(e.cfg.Mappings)), make([]string, len(e.cfg.Mappings))
	for i, m := range e.cfg.Mappings {
		schemas[i], tables[i] = m.Schema, m.Table
	}
	var raw []byte
	err := e.server.SQL.QueryRow(ctx, publicationQuery(e.server.Version), e.cfg.Publication, schemas, tables).Scan(&raw)
	if errors.Is(err, pgx.ErrNoRows) {
		return e.noPublication(ctx, schemas, tables)
	}
	if err != nil {
		return err
	}
	var found catalogPublication
	if err := json.Unmarshal(raw, &found); err != nil {
		return fmt.Errorf("read publication: %w", err)
	}
	e.publicationOptions(found)
	for i := range found.Tables {
		e.publishedTable(&found, i)
	}
	return nil
}

// noPublication: the first start of a stream makes one, if it may.
func (e *examination) noPublication(ctx context.Context, schemas, tables []string) error {
	rows, err := e.server.SQL.Query(ctx, `
		SELECT w.nsp, w.rel, c.oid IS NOT NULL, has_database_privilege(current_database(), 'CREATE')
			AND coalesce(pg_has_role(c.relowner, 'USAGE'), false)
		FROM unnest($1::text[], $2::text[]) AS w (nsp, rel)
		LEFT JOIN pg_namespace n ON n.nspname = w.nsp
		LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel`, schemas, tables)
	if err != nil {
		return err
	}
	var schema, table string
	var exists, owner bool
	missing, may := false, true
	_, err = pgx.ForEachRow(rows, []any{&schema, &table, &exists, &owner}, func() error {
		if !exists {
			missing = true
			e.add(Finding{
				Check: "table", Object: "table " + tableName(schema, table), Level: LevelFault, Found: "does not exist",
				Why: "its events do not arrive", Fix: "walrelay migrate up creates public.outbox; or correct WALRELAY_TABLES",
			})
		}
		may = may && owner
		return nil
	})
	if err != nil {
		return err
	}
	object := quoted("publication", e.cfg.Publication)
	if !e.begun() && (may || missing) {
		e.add(ok("publication", object, "does not exist yet; the first start creates it"))
		return nil
	}
	f := Finding{
		Check: "publication", Object: object, Level: LevelFault, Found: "does not exist",
		Why: fmt.Sprintf("role %q may not create it: that takes CREATE on the database and the tables' owner", e.role),
		Fix: createPublication(e.cfg.Publication, e.cfg.Mappings),
	}
	if e.begun() {
		f.Why = silentlySkipped
		f.Fix += "; then " + dropUnreadable(e.cfg.Slot) + " and " + republishSince(e.cfg.Stream, e.row.gapSince())
	}
	e.add(f)
	return nil
}

func (e *examination) publicationOptions(found catalogPublication) {
	object := quoted("publication", e.cfg.Publication)
	name := pgx.Identifier{e.cfg.Publication}.Sanitize()
	f := ok("publication", object, "publishes inserts only")
	fix := "ALTER PUBLICATION " + name + " SET (publish = 'insert')"
	switch {
	case !found.Insert:
		f.Level, f.Found, f.Why, f.Fix = LevelFault, "does not publish inserts", silentlySkipped, fix
	case found.Other:
		f.Level, f.Found, f.Fix = LevelWarning, "publishes more than inserts", fix
		f.Why = "walrelay ignores updates and deletes, which are decoded and sent for nothing"
	}
	e.add(f)
	if found.AllTables {
		f := Finding{
			Check: "publication-tables", Object: object, Level: LevelWarning, Found: "publishes all tables",
			Why: "the rows of every table are decoded and sent, and ignored",
			Fix: "DROP PUBLICATION " + name + "; " + createPublication(e.cfg.Publication, e.cfg.Mappings),
		}
		if e.begun() {
			f.Fix += "; then " + republishSince(e.cfg.Stream, e.row.gapSince())
		}
		e.add(f)
	}
}

// publishedTable adds the first reason why rows of the table do not arrive, or that it is well.
func (e *examination) publishedTable(found *catalogPublication, i int) {
	m, name := &e.cfg.Mappings[i], pgx.Identifier{e.cfg.Publication}.Sanitize()
	c := tableCheck{mapping: m, found: found, table: &found.Tables[i], publication: name, stream: e.cfg.Stream}
	object := "table " + c.name()
	if fatal, faulty := errors.AsType[*FatalError](c.run(e.cfg.Mappings)); faulty {
		fix, after := strings.CutSuffix(fatal.Remedy, ", "+republish(e.cfg.Stream))
		if after && e.begun() {
			fix += "; then " + republishSince(e.cfg.Stream, e.row.gapSince())
		}
		e.add(Finding{
			Check: "table", Object: object, Level: LevelFault, Found: fatal.Problem,
			Why: "its events do not arrive, or not whole", Fix: fix,
		})
		return
	}
	if c.table.Kind == relationPartitioned && !found.ViaRoot {
		e.add(Finding{
			Check: "table", Object: object, Level: LevelWarning, Found: "is published by its partitions",
			Why: "rows of a partition that is detached before they were read are not recognised",
			Fix: "ALTER PUBLICATION " + name + " SET (publish_via_partition_root = true)",
		})
		return
	}
	e.add(ok("table", object, "is published whole"))
}

// partitionsOf lists the tables that hold rows of the table $1.$2: itself, or its leaf partitions.
const partitionsOf = `
	SELECT l.oid, l.oid = c.oid AS itself, l.relpersistence, l.relreplident, l.oid::regclass::text AS name
	FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
	CROSS JOIN LATERAL (
		SELECT c.oid WHERE c.relkind = 'r'
		UNION SELECT relid FROM pg_partition_tree(c.oid) WHERE isleaf) AS leaf (oid)
	JOIN pg_class l ON l.oid = leaf.oid
	WHERE n.nspname = $1 AND c.relname = $2`

// unloggedPartitions: the table itself is looked at with the publication.
func (e *examination) unloggedPartitions(ctx context.Context, m *decoder.Mapping) error {
	rows, err := e.server.SQL.Query(ctx, "SELECT p.name FROM ("+partitionsOf+`) AS p
		WHERE p.relpersistence = 'u' AND NOT p.itself ORDER BY 1`, m.Schema, m.Table)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		e.add(Finding{
			Check: "partitions", Object: "table " + name, Level: LevelFault, Found: "is an unlogged partition",
			Why: "its rows are not in the log and never arrive", Fix: "ALTER TABLE " + name + " SET LOGGED",
		})
	}
	return nil
}

// nullableColumns is about columns without which an event cannot be delivered.
func (e *examination) nullableColumns(ctx context.Context, m *decoder.Mapping) error {
	rows, err := e.server.SQL.Query(ctx, `
		SELECT a.attname::text FROM pg_attribute a
		JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = $2 AND a.attname = ANY ($3) AND a.attnum > 0 AND NOT a.attisdropped
			AND NOT `+ColumnNotNull+` ORDER BY a.attnum`, m.Schema, m.Table, m.NotNull())
	if err != nil {
		return err
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(columns) == 0 {
		return err
	}
	alter := make([]string, 0, len(columns))
	for _, column := range columns {
		alter = append(alter, "ALTER COLUMN "+pgx.Identifier{column}.Sanitize()+" SET NOT NULL")
	}
	table := tableName(m.Schema, m.Table)
	e.add(Finding{
		Check: "nullable-columns", Object: "table " + table, Level: LevelWarning,
		Found: "may hold NULL in " + joined(columns),
		Why:   "a row with NULL there is an event that cannot be delivered, and by default stops the stream",
		Fix:   "ALTER TABLE " + table + " " + strings.Join(alter, ", "),
	})
	return nil
}

// replicaIdentity looks for the trap that any publication of updates or deletes sets: the application's own
// statements fail on a table that has nothing to identify its rows by.
func (e *examination) replicaIdentity(ctx context.Context, m *decoder.Mapping) error {
	rows, err := e.server.SQL.Query(ctx, `
		SELECT pub.pubname::text, string_agg(DISTINCT p.name, ', ')
		FROM (`+partitionsOf+`) AS p
		CROSS JOIN pg_publication pub
		WHERE (pub.pubupdate OR pub.pubdelete)
			AND NOT CASE p.relreplident
				WHEN 'n' THEN false
				WHEN 'd' THEN EXISTS (SELECT FROM pg_index i
					WHERE i.indrelid = p.oid AND i.indisprimary AND i.indimmediate AND i.indisvalid)
				WHEN 'i' THEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = p.oid AND i.indisreplident AND i.indisvalid)
				ELSE true END
			AND EXISTS (SELECT FROM pg_publication_tables t
				JOIN pg_namespace n ON n.nspname = t.schemaname
				JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
				WHERE t.pubname = pub.pubname
					AND (c.oid = p.oid OR c.oid IN (SELECT relid FROM pg_partition_ancestors(p.oid))))
		GROUP BY 1 ORDER BY 1`, m.Schema, m.Table)
	if err != nil {
		return err
	}
	var publication, lacking string
	_, err = pgx.ForEachRow(rows, []any{&publication, &lacking}, func() error {
		e.add(Finding{
			Check: "replica-identity", Object: "table " + tableName(m.Schema, m.Table), Level: LevelFault,
			Found: fmt.Sprintf("%s has no replica identity, and publication %q publishes updates or deletes",
				lacking, publication),
			Why: "the application's UPDATE and DELETE on it fail",
			Fix: "ALTER PUBLICATION " + pgx.Identifier{publication}.Sanitize() + " SET (publish = 'insert')",
		})
		return nil
	})
	return err
}
