package cdc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/walrelay/walrelay/decoder"
)

// catalogPublication is the answer to publicationQuery.
type catalogPublication struct {
	OID       uint32         `json:"oid"`
	Row       uint32         `json:"row"`
	AllTables bool           `json:"all_tables"`
	Insert    bool           `json:"insert"`
	Other     bool           `json:"other"` // publishes updates or deletes too
	ViaRoot   bool           `json:"via_root"`
	Generated bool           `json:"generated"` // publishes stored generated columns; PostgreSQL 18
	Generates bool           `json:"generates"` // could do so
	Tables    []catalogTable `json:"tables"`    // in the order of the configuration
}

type catalogTable struct {
	OID         uint32          `json:"oid"` // 0: there is no such table
	Kind        string          `json:"kind"`
	Persistence string          `json:"persistence"`
	Ancestors   []uint32        `json:"ancestors"` // of a partition, itself included
	Columns     []catalogColumn `json:"columns"`
	Members     []catalogMember `json:"members"`
	Schemas     []catalogSchema `json:"schemas"`
}

type catalogColumn struct {
	Name      string `json:"name"`
	Generated string `json:"generated"` // "" for an ordinary column, s stored, v virtual
}

// catalogMember is a row of pg_publication_rel about the table, a table that it is a partition of,
// or one of its own partitions.
type catalogMember struct {
	Row      uint32   `json:"row"`
	Relation uint32   `json:"relation"`
	Name     string   `json:"name"`  // of the relation, as SQL has it
	Above    bool     `json:"above"` // of the table itself or of an ancestor
	Filter   bool     `json:"filter"`
	Columns  []string `json:"columns"` // nil: all
}

// catalogSchema is a row of pg_publication_namespace about the schema of the table or of an ancestor.
type catalogSchema struct {
	Row      uint32 `json:"row"`
	Relation uint32 `json:"relation"`
}

// Values of pg_class.relkind and relpersistence.
const (
	relationTable       = "r"
	relationPartitioned = "p"
	persistent          = "p"
)

// publicationQuery returns one JSON document, or no row when the publication is missing. It takes
// no lock on the tables. $1 is the publication, $2 and $3 are the schemas and tables.
func publicationQuery(version int) string {
	filter, columns, schemas := "false", "NULL::text[]", "'[]'::json"
	generated := "false, 'generates', false"
	if version >= 150000 {
		filter = "m.prqual IS NOT NULL"
		columns = `CASE WHEN m.prattrs IS NOT NULL THEN ARRAY(SELECT a.attname::text FROM pg_attribute a
			WHERE a.attrelid = m.prrelid AND a.attnum = ANY (m.prattrs::int2[])) END`
		schemas = `(SELECT coalesce(json_agg(json_build_object('row', n.oid::int8, 'relation', r.oid::int8)
				ORDER BY n.oid), '[]')
			FROM pg_publication_namespace n JOIN pg_class r ON r.relnamespace = n.pnnspid
			WHERE n.pnpubid = p.oid AND r.oid = ANY (up.oids))`
	}
	if version >= 180000 {
		generated = "p.pubgencols = 's', 'generates', true"
	}
	return `
	SELECT json_build_object('oid', p.oid::int8, 'row', p.xmin::text::int8, 'all_tables', p.puballtables,
		'insert', p.pubinsert, 'other', p.pubupdate OR p.pubdelete, 'via_root', p.pubviaroot, 'generated', ` + generated + `,
		'tables', (
			SELECT json_agg(json_build_object(
				'oid', coalesce(c.oid::int8, 0), 'kind', coalesce(c.relkind::text, ''),
				'persistence', coalesce(c.relpersistence::text, ''), 'ancestors', to_json(up.oids::int8[]),
				'columns', (SELECT coalesce(json_agg(json_build_object('name', a.attname, 'generated', a.attgenerated)), '[]')
					FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
				'members', (SELECT coalesce(json_agg(json_build_object('row', m.oid::int8, 'relation', m.prrelid::int8,
						'name', m.prrelid::regclass::text,
						'above', m.prrelid = ANY (up.oids), 'filter', ` + filter + `, 'columns', ` + columns + `)
						ORDER BY m.oid), '[]')
					FROM pg_publication_rel m
					WHERE m.prpubid = p.oid AND (m.prrelid = ANY (up.oids)
						OR c.oid IN (SELECT relid FROM pg_partition_ancestors(m.prrelid)))),
				'schemas', ` + schemas + `) ORDER BY w.ord)
			FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
			LEFT JOIN pg_namespace ns ON ns.nspname = w.nsp
			LEFT JOIN pg_class c ON c.relnamespace = ns.oid AND c.relname = w.rel
			CROSS JOIN LATERAL (SELECT ARRAY(
				SELECT c.oid WHERE c.oid IS NOT NULL
				UNION SELECT relid::oid FROM pg_partition_ancestors(c.oid)) AS oids) AS up))
	FROM pg_publication p WHERE p.pubname = $1`
}

func (t *catalogTable) memberRows() []uint32 {
	rows := []uint32{}
	for _, m := range t.Members {
		if m.Above {
			rows = append(rows, m.Row)
		}
	}
	for _, n := range t.Schemas {
		rows = append(rows, n.Row)
	}
	return rows
}

// tableCheck finds out why inserts into one table do not arrive whole.
type tableCheck struct {
	mapping     *decoder.Mapping
	found       *catalogPublication
	table       *catalogTable
	publication string // quoted
	stream      string
}

func (c tableCheck) name() string { return tableName(c.mapping.Schema, c.mapping.Table) }

// run returns the first fault, or nil.
func (c tableCheck) run(configured []decoder.Mapping) error {
	switch {
	case c.table.OID == 0:
		return c.fatal("does not exist", createOutbox)
	case c.table.Kind != relationTable && c.table.Kind != relationPartitioned:
		return c.fatal("is not a table", "name the table itself among the configured tables")
	case c.table.Persistence != persistent:
		return c.fatal("is not written to the log: it is unlogged or temporary", "ALTER TABLE "+c.name()+" SET LOGGED, "+
			republish(c.stream))
	case !c.found.AllTables && len(c.table.memberRows()) == 0:
		return c.fatal("is not in publication "+c.publication+"; "+silentlySkipped,
			"ALTER PUBLICATION "+c.publication+" ADD TABLE "+c.name()+", "+republish(c.stream))
	case c.publishedAsRoot(configured):
		return c.fatal("is a partition, and publication "+c.publication+" publishes its rows as those of the whole table",
			"name the partitioned table among the configured tables instead")
	}
	for _, m := range c.members() {
		if m.Filter {
			return c.fatal("has a row filter in publication "+c.publication+"; rows that it rejects are not sent",
				c.readd(m)+", "+republish(c.stream))
		}
	}
	return c.columns()
}

// members returns the rows of pg_publication_rel whose filters and column lists may count: those of
// the partitions do only when rows travel under their names.
func (c tableCheck) members() []catalogMember {
	if !c.found.ViaRoot {
		return c.table.Members
	}
	return slices.DeleteFunc(slices.Clone(c.table.Members), func(m catalogMember) bool { return !m.Above })
}

// publishedAsRoot says that rows arrive under the name of an ancestor which is not configured.
func (c tableCheck) publishedAsRoot(configured []decoder.Mapping) bool {
	if !c.found.ViaRoot || len(c.table.Ancestors) < 2 {
		return false
	}
	for i := range configured {
		if other := c.found.Tables[i].OID; other != c.table.OID && slices.Contains(c.table.Ancestors, other) {
			return false // that one is checked by itself
		}
	}
	above := func(relation uint32) bool { return relation != c.table.OID }
	return c.found.AllTables ||
		slices.ContainsFunc(c.table.Members, func(m catalogMember) bool { return m.Above && above(m.Relation) }) ||
		slices.ContainsFunc(c.table.Schemas, func(n catalogSchema) bool { return above(n.Relation) })
}

// columns checks that every mapped column exists, if it must, and is sent, if it exists.
func (c tableCheck) columns() error {
	required := c.mapping.Required()
	for i, name := range append(required, c.mapping.Optional()...) {
		at := slices.IndexFunc(c.table.Columns, func(col catalogColumn) bool { return col.Name == name })
		if at < 0 {
			if i < len(required) {
				return c.fatal(fmt.Sprintf("has no column %q, which is mapped", name),
					"add the column or correct the mapping of columns")
			}
			continue
		}
		if err := c.column(c.table.Columns[at]); err != nil {
			return err
		}
	}
	return nil
}

// column checks that one mapped column is sent. A column list decides alone, generated columns
// included; without a list, generated columns are sent only by PostgreSQL 18 and only stored ones.
func (c tableCheck) column(col catalogColumn) error {
	listed := false
	for _, m := range c.members() {
		if m.Columns == nil {
			continue
		}
		listed = true
		if !slices.Contains(m.Columns, col.Name) {
			return c.fatal(fmt.Sprintf("has a column list in publication %s that omits the mapped column %q (it has %s)",
				c.publication, col.Name, strings.Join(m.Columns, ", ")),
				c.readd(m)+", "+republish(c.stream))
		}
	}
	if col.Generated == "" || col.Generated == "s" && (listed || c.found.Generated) {
		return nil
	}
	remedy := "ALTER PUBLICATION " + c.publication + " SET (publish_generated_columns = stored)"
	if col.Generated != "s" || !c.found.Generates {
		remedy = "map an ordinary column, or on PostgreSQL 18 use a stored one and " + remedy
	}
	return c.fatal(fmt.Sprintf("has the mapped column %q generated, and publication %s does not send it",
		col.Name, c.publication), remedy)
}

// readd takes a table out of the publication and puts it back without row filter and column list.
func (c tableCheck) readd(m catalogMember) string {
	return "ALTER PUBLICATION " + c.publication + " DROP TABLE " + m.Name +
		"; ALTER PUBLICATION " + c.publication + " ADD TABLE " + m.Name
}

func (c tableCheck) fatal(problem, remedy string) error {
	return &FatalError{Object: "table " + c.name(), Problem: problem, Remedy: remedy}
}
