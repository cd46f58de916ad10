package cdc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/decoder"
)

// A domain is what it is over, and NOT NULL if that is said of it or of the column.
func TestColumns_OfDomains(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		db.Exec(t, `
			CREATE DOMAIN digest AS bytea NOT NULL; CREATE DOMAIN sum AS digest CHECK (length(VALUE) < 9);
			ALTER TABLE events ALTER key TYPE digest USING ''::bytea, ALTER note TYPE information_schema.cardinal_number USING 1,
				ALTER payload TYPE sum USING ''::bytea;
			INSERT INTO events VALUES (1, 'k', '\x00', '\x00ff', 7)`)
		table := sampleOf(t, cfg)
		require.Equal(t, []decoder.Column{
			{Name: "id", Type: 20, Modifier: -1, NotNull: true},
			{Name: "kind", Type: 25, Modifier: -1, NotNull: true},
			{Name: "key", Type: 17, Modifier: -1, NotNull: true},
			{Name: "payload", Type: 17, Modifier: -1},
			{Name: "note", Type: 23, Modifier: -1},
		}, table.columns)
		require.Equal(t, "\x00=\x00\xff", string(table.Largest().Key)+"="+string(table.Largest().Payload))

		cfg.Nullability = true
		rel := decoder.Relation{Columns: []decoder.Column{{Name: "key"}, {Name: "payload"}, {Name: "kind"}}}
		require.NoError(t, db.QueryRow(t, "SELECT 'events'::regclass::oid").Scan(&rel.OID))
		require.NoError(t, dial(t, cfg).describe(t.Context(), &rel))
		require.Equal(t, []decoder.Column{
			{Name: "key", NotNull: true},
			{Name: "payload"},
			{Name: "kind", NotNull: true},
		}, rel.Columns)
	})
}

// What no event can be made of is said at the start.
func TestPreflight_ColumnTypes(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		template, err := decoder.ParseTemplate("{kind}:{note}:{key}")
		require.NoError(t, err)
		cfg.Mappings[0].Key, cfg.Mappings[0].KeyTemplate = "", template
		before, err := dial(t, cfg).Preflight(t.Context())
		require.NoError(t, err)
		db.Exec(t, "ALTER TABLE events ALTER note TYPE bytea USING '', ALTER kind TYPE bytea USING ''")
		warnings, err := dial(t, cfg).Preflight(t.Context())
		require.NoError(t, err)
		require.Equal(t, append([]string{"table public.events has columns of type bytea, and a part of a topic or of a key " +
			"must be text (kind, note): none of its events can be delivered"}, before...), warnings)
	})
}
