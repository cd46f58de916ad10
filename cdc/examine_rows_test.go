package cdc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/decoder"
)

func sampleOf(t *testing.T, cfg *Config) *SampledTable {
	t.Helper()
	var taken Sample
	Examine(t.Context(), cfg, func(s Sample) { taken = s })
	require.Len(t, taken.Tables, len(cfg.Mappings))
	return &taken.Tables[0]
}

func routesOf(table *SampledTable) []string {
	var routes []string
	table.Routes(func(ev *decoder.Event) { routes = append(routes, string(ev.Route[0])) })
	return routes
}

func TestExamine_Sample(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		require.Zero(t, sampleOf(t, cfg).Rows)

		db.Exec(t, `INSERT INTO events SELECT n, 'kind' || n % 3, 'k', repeat('x', 100), 'note'
			FROM generate_series(1, 500) AS n`)
		db.Exec(t, "INSERT INTO events VALUES (501, 'big', 'it''s', repeat('y', 100000), 'T')")
		table := sampleOf(t, cfg)
		require.Equal(t, 501, table.Rows)
		require.ElementsMatch(t, []string{"kind0", "kind1", "kind2", "big"}, routesOf(table))
		ev := table.Largest()
		require.NoError(t, ev.Fault)
		require.Equal(t, "501", string(ev.ID))
		require.Len(t, ev.Payload, 100000)
		require.Equal(t, "it's", string(ev.Key))
		require.GreaterOrEqual(t, table.RowBytes, int64(100000))

		// Of a table that is large only the end is read.
		db.Exec(t, "ALTER TABLE events ALTER payload SET STORAGE PLAIN")
		db.Exec(t, "INSERT INTO events SELECT n, 'late', 'k', repeat('x', 3000) FROM generate_series(1000, 2000) AS n")
		table = sampleOf(t, cfg)
		require.Less(t, table.Rows, 500)
		require.Equal(t, []string{"late"}, routesOf(table))

		role := asRole(t, db, cfg, "REPLICATION")
		table = nil
		Examine(t.Context(), cfg, func(s Sample) { table = &s.Tables[0] })
		require.Nil(t, table.Largest())
		db.Exec(t, "GRANT SELECT ON events TO "+role)
		require.NotNil(t, sampleOf(t, cfg).Largest())
	})
}

func TestExamine_SampleOfPartitions(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		db.Exec(t, `DROP TABLE events; CREATE TABLE events (id bigint PRIMARY KEY, kind text NOT NULL, key text,
			payload jsonb) PARTITION BY RANGE (id);
			CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (1) TO (100);
			CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (100) TO (200);
			INSERT INTO events SELECT n, 'k' || n / 100, 'k', '{"a": 1}' FROM generate_series(1, 199) AS n`)
		table := sampleOf(t, cfg)
		require.Equal(t, 199, table.Rows)
		require.ElementsMatch(t, []string{"k0", "k1"}, routesOf(table))
		require.JSONEq(t, `{"a": 1}`, string(table.Largest().Payload))

		role := asRole(t, db, cfg, "REPLICATION")
		db.Exec(t, "GRANT SELECT ON events TO "+role) // and not on its partitions
		require.Equal(t, 199, sampleOf(t, cfg).Rows)
	})
}

// A stream that has run is known by its topics, whatever its outbox holds.
func TestExamine_RecordedTopics(t *testing.T) {
	t.Parallel()
	_, cfg := newStream(t, 18)
	register(t, cfg)
	require.NoError(t, dial(t, cfg).Registry().RecordPartitions(t.Context(), map[string]int32{"b": 1, "a": 2}))
	Examine(t.Context(), cfg, func(s Sample) { require.Equal(t, []string{"a", "b"}, s.Topics) })
}

// No finding shows what the application wrote.
func TestExamine_ShowsNoRow(t *testing.T) {
	t.Parallel()
	db, cfg := newStream(t, 18)
	db.Exec(t, "INSERT INTO events VALUES (1, 'secretkind', 'secretkey', 'secretpayload', 'secretnote')")
	for _, f := range examine(t, cfg) {
		require.NotContains(t, strings.Join([]string{f.Found, f.Why, f.Fix}, " "), "secret")
	}
}
