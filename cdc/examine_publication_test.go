package cdc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each trap is found, and gone once the fix was carried out.
func TestExamine_Publication(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		for name, test := range map[string]struct {
			since int // major
			setup string
			check string
			level Level
			part  string
		}{
			"no inserts": {
				0, "CREATE PUBLICATION events_pub FOR TABLE events WITH (publish = 'truncate')",
				"publication", LevelFault, "does not publish inserts",
			},
			"more than inserts": {
				0, "CREATE PUBLICATION events_pub FOR TABLE events",
				"publication", LevelWarning, "more than inserts",
			},
			"all tables": {
				0, "CREATE PUBLICATION events_pub FOR ALL TABLES WITH (publish = 'insert')",
				"publication-tables", LevelWarning, "all tables",
			},
			"another table": {
				0, `CREATE TABLE other ();
				CREATE PUBLICATION events_pub FOR TABLE other WITH (publish = 'insert')`,
				"table", LevelFault, "is not in publication",
			},
			"unlogged": {
				0, `CREATE PUBLICATION events_pub FOR ALL TABLES WITH (publish = 'insert');
				ALTER TABLE events SET UNLOGGED`,
				"table", LevelFault, "SET LOGGED",
			},
			"row filter": {
				15, "CREATE PUBLICATION events_pub FOR TABLE events WHERE (id > 5) WITH (publish = 'insert')",
				"table", LevelFault, "row filter",
			},
			"column list": {
				15, "CREATE PUBLICATION events_pub FOR TABLE events (id) WITH (publish = 'insert')",
				"table", LevelFault, "column list",
			},
			"generated column": {
				18, `ALTER TABLE events DROP payload, ADD payload text GENERATED ALWAYS AS (kind) STORED;
				CREATE PUBLICATION events_pub FOR TABLE events WITH (publish = 'insert')`,
				"table", LevelFault, "generated",
			},
			"by partitions": {
				0, `DROP TABLE events; CREATE TABLE events (id bigint PRIMARY KEY, kind text NOT NULL, key text,
					payload text) PARTITION BY RANGE (id);
				CREATE PUBLICATION events_pub FOR TABLE events WITH (publish = 'insert')`,
				"table", LevelWarning, "by its partitions",
			},
			"unlogged partition": {
				0, `DROP TABLE events; CREATE TABLE events (id bigint PRIMARY KEY, kind text NOT NULL,
					key text, payload text) PARTITION BY RANGE (id);
				CREATE UNLOGGED TABLE events_1 PARTITION OF events FOR VALUES FROM (1) TO (9)`,
				"partitions", LevelFault, "events_1",
			},
			"no replica identity": {
				0, `ALTER TABLE events DROP CONSTRAINT events_pkey;
				CREATE PUBLICATION "Everything" FOR TABLE events`,
				"replica-identity", LevelFault, `ALTER PUBLICATION "Everything" SET`,
			},
			"deferrable key": {
				0, `ALTER TABLE events DROP CONSTRAINT events_pkey, ADD PRIMARY KEY (id) DEFERRABLE;
				CREATE PUBLICATION events_pub FOR TABLE events`,
				"replica-identity", LevelFault, "no replica identity",
			},
			"bytea in the topic": {
				0, "CREATE DOMAIN digest AS bytea; CREATE DOMAIN sum AS digest; ALTER TABLE events ALTER kind TYPE sum USING 'x'",
				"column-types", LevelFault, "kind",
			},
			"nullable route": {
				0, "ALTER TABLE events ALTER kind DROP NOT NULL",
				"nullable-columns", LevelWarning, "kind",
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if major < test.since {
					t.Skip("that came later")
				}
				db, cfg := newStream(t, major)
				db.Exec(t, test.setup)
				if test.check == "replica-identity" { // this is what it saves from
					_, err := db.Conn.Exec(t.Context(), "DELETE FROM events")
					require.ErrorContains(t, err, "does not have a replica identity")
				}
				mended(t, db, cfg, test.check, test.level, test.part)
			})
		}
	})
}

func TestExamine_NoTable(t *testing.T) {
	t.Parallel()
	db, cfg := newStream(t, 18)
	db.Exec(t, "CREATE PUBLICATION events_pub WITH (publish = 'insert')")
	db.Exec(t, "DROP TABLE events")
	require.Contains(t, found(t, examine(t, cfg), "table").Found, "does not exist")

	db.Exec(t, "CREATE VIEW events AS SELECT 1 AS id")
	require.Contains(t, found(t, examine(t, cfg), "table").Found, "is not a table")
}
