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
			m, ok, err := s.ResolveRelation(t.Context(), oids[name], "public", name, 1)
			require.NoError(t, err)
			require.True(t, ok, name)
			require.Same(t, &cfg.Mappings[0], m)
		}
		_, ok, err := s.ResolveRelation(t.Context(), oids["member"], "public", "member", 1)
		require.NoError(t, err)
		require.False(t, ok)

		_, _, err = s.ResolveRelation(t.Context(), oids["gone"], "public", "gone", 1)
		fatal(t, err, `"public"."gone"`, "was dropped", "WALRELAY_TABLES")
		for _, name := range []string{"detached", "foreigner"} {
			_, _, err = s.ResolveRelation(t.Context(), oids[name], "public", name, 1)
			fatal(t, err, `"public"."`+name+`"`, "detached partition")
		}

		// Via the root, nothing travels under a partition's name.
		db.Exec(t, "ALTER PUBLICATION events_pub SET (publish_via_partition_root = true)")
		for _, name := range []string{"gone", "detached", "foreigner"} {
			_, ok, err = s.ResolveRelation(t.Context(), oids[name], "public", name, 1)
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

// Rows that were written before rows of partitions travelled as those of their table arrive under the partition's
// name, whatever the publication says today: they must not be taken for those of somebody else's table.
func TestStream_PartitionThatIsGoneBeforeThePublicationWasAltered(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		db.Exec(t, `DROP TABLE events;
			CREATE TABLE events (id bigint, kind text, key text, payload text) PARTITION BY RANGE (id);
			CREATE TABLE kept PARTITION OF events FOR VALUES FROM (0) TO (100);
			CREATE TABLE gone PARTITION OF events FOR VALUES FROM (100) TO (200);
			CREATE PUBLICATION events_pub FOR TABLE events WITH (publish = 'insert')`)
		r := start(t, db, cfg, &scripted{})
		r.state(StateStreaming)
		r.stopped()
		db.Exec(t, "INSERT INTO events VALUES (101, 'a', 'k', 'p')")
		db.Exec(t, "DROP TABLE gone")
		db.Exec(t, "ALTER PUBLICATION events_pub SET (publish_via_partition_root = true)")
		for range 2 { // nor is it forgotten
			r = start(t, db, cfg, &scripted{})
			fatal(t, r.ended(), `table "public"."gone"`, "was dropped before its rows were read")
		}

		// What the message says helps.
		db.Exec(t, "CREATE TABLE gone (LIKE events); ALTER PUBLICATION events_pub ADD TABLE gone")
		own := cfg.Mappings[0]
		own.Table = "gone"
		both := *cfg
		both.Mappings = append(both.Mappings[:1:1], own)
		r = start(t, db, &both, &scripted{})
		r.published("101")
		db.Exec(t, "INSERT INTO events VALUES (1, 'a', 'k', 'p')")
		end := r.end("101", "1")
		r.until(func() bool { slot, _ := r.confirmed(); return slot >= end })
		r.stopped()

		// From there on, a table that is unknown and gone is somebody else's.
		db.Exec(t, "CREATE TABLE other (id int); ALTER PUBLICATION events_pub ADD TABLE other; INSERT INTO other VALUES (1)")
		db.Exec(t, "DROP TABLE gone, other")
		r = start(t, db, cfg, &scripted{})
		insert(t, db, 2)
		r.published("2")
		r.stopped()
	})
}
