package cdc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func TestResolveRelation(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		db.Exec(t, `DROP TABLE events;
			CREATE TABLE events (id bigint, kind text, key text, payload text) PARTITION BY RANGE (id);
			CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id);
			CREATE TABLE events_1_1 PARTITION OF events_1 FOR VALUES FROM (0) TO (50);
			CREATE TABLE gone PARTITION OF events FOR VALUES FROM (100) TO (200);
			CREATE TABLE detached PARTITION OF events FOR VALUES FROM (200) TO (300);
			CREATE TABLE member (id int);
			CREATE TABLE foreigner (id int);
			CREATE PUBLICATION events_pub FOR TABLE events, member WITH (publish = 'insert')`)
		oids := map[string]uint32{}
		for _, name := range []string{"events", "events_1", "events_1_1", "gone", "detached", "member", "foreigner"} {
			oids[name] = relationOID(t, db, name)
		}
		db.Exec(t, "DROP TABLE gone; ALTER TABLE events DETACH PARTITION detached")

		s := dial(t, cfg)
		for _, name := range []string{"events", "events_1", "events_1_1"} {
			m, ok, err := s.ResolveRelation(t.Context(), oids[name], "public", name)
			require.NoError(t, err)
			require.True(t, ok, name)
			require.Same(t, &cfg.Mappings[0], m)
		}
		_, ok, err := s.ResolveRelation(t.Context(), oids["member"], "public", "member")
		require.NoError(t, err)
		require.False(t, ok)

		_, _, err = s.ResolveRelation(t.Context(), oids["gone"], "public", "gone")
		fatal(t, err, `"public"."gone"`, "was dropped", "WALRELAY_TABLES")
		for _, name := range []string{"detached", "foreigner"} {
			_, _, err = s.ResolveRelation(t.Context(), oids[name], "public", name)
			fatal(t, err, `"public"."`+name+`"`, "detached partition")
		}

		// Via the root, nothing travels under a partition's name.
		db.Exec(t, "ALTER PUBLICATION events_pub SET (publish_via_partition_root = true)")
		for _, name := range []string{"gone", "detached", "foreigner"} {
			_, ok, err = s.ResolveRelation(t.Context(), oids[name], "public", name)
			require.NoError(t, err)
			require.False(t, ok)
		}
	})
}

func relationOID(t *testing.T, db *testenv.Database, name string) (oid uint32) {
	t.Helper()
	require.NoError(t, db.QueryRow(t, "SELECT to_regclass($1)::oid", name).Scan(&oid))
	return oid
}
