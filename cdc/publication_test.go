package cdc

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/testenv"
)

// TestCheckPublication_Faults turns a good publication bad in every way that hides rows.
func TestCheckPublication_Faults(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		for name, test := range map[string]struct {
			since int // oldest major that knows the statement
			until int // newest major on which it is a fault; 0: all
			sql   string
			want  []string
		}{
			"missing": {
				sql:  "DROP PUBLICATION events_pub",
				want: []string{`publication "events_pub"`, "does not exist", "CREATE PUBLICATION"},
			},
			"no insert": {
				sql:  "ALTER PUBLICATION events_pub SET (publish = 'update')",
				want: []string{"does not publish inserts", "SET (publish = 'insert')"},
			},
			"not in it": {
				sql:  "CREATE TABLE other (); ALTER PUBLICATION events_pub SET TABLE other",
				want: []string{`table "public"."events"`, "is not in publication", "ADD TABLE"},
			},
			"no table": {sql: "DROP TABLE events", want: []string{`"public"."events"`, "does not exist"}},
			"a view": {
				sql:  "ALTER TABLE events RENAME TO e; CREATE VIEW events AS TABLE e",
				want: []string{"is not a table"},
			},
			"unlogged": {
				sql:  "DROP TABLE events; CREATE UNLOGGED TABLE events (id int)",
				want: []string{"unlogged"},
			},
			"row filter": {
				since: 15, sql: "ALTER PUBLICATION events_pub SET TABLE events WHERE (id > 5)",
				want: []string{"row filter", "new-epoch orders"},
			},
			"column list": {
				since: 15, sql: "ALTER PUBLICATION events_pub SET TABLE events (id, kind, payload)",
				want: []string{"column list", `"key"`, "id, kind, payload"},
			},
			"column list without an optional one": {
				since: 15,
				sql:   "ALTER PUBLICATION events_pub SET TABLE events (id, kind, payload, key)",
				want:  []string{"column list", `"note"`},
			},
			"row filter on a partition": {since: 15, sql: partitioned + `
				ALTER PUBLICATION events_pub SET (publish_via_partition_root = false);
				ALTER PUBLICATION events_pub SET TABLE events, events_1 WHERE (id > 5)`, want: []string{"row filter"}},
			"mapped column missing": {
				sql:  "ALTER TABLE events RENAME payload TO body",
				want: []string{`no column "payload"`},
			},
			"route column missing": {sql: "ALTER TABLE events DROP COLUMN kind", want: []string{`no column "kind"`}},
			"generated": {
				sql: `ALTER TABLE events DROP COLUMN payload;
				ALTER TABLE events ADD payload text GENERATED ALWAYS AS (key) STORED`,
				want: []string{`"payload" generated`, "publish_generated_columns"},
			},
			"virtual": {since: 18, sql: `ALTER TABLE events DROP COLUMN payload;
				ALTER TABLE events ADD payload text GENERATED ALWAYS AS (key) VIRTUAL;
				ALTER PUBLICATION events_pub SET (publish_generated_columns = stored)`, want: []string{`"payload" generated`}},
			"published as its root": {
				sql: `DROP TABLE events; CREATE TABLE whole (LIKE public.events2) PARTITION BY LIST (id);
				CREATE TABLE events PARTITION OF whole DEFAULT; ALTER PUBLICATION events_pub ADD TABLE whole`,
				want: []string{"is a partition", "partitioned table among"},
			},
		} {
			if test.since > major {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db, cfg := newStream(t, major)
				db.Exec(t, strings.Replace(outbox, "public.events", "public.events2", 1))
				reg := register(t, cfg)
				db.Exec(t, test.sql)

				s := dial(t, cfg)
				_, err := s.CheckPublication(t.Context())
				fatal(t, err, test.want...)
				_, err = s.Register(t.Context())
				fatal(t, err, append(test.want, "rows committed between "+reg.Confirmed.String())...)
			})
		}
	})
}

// TestCheckPublication_Good lists what publishes every insert whole.
func TestCheckPublication_Good(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		for name, test := range map[string]struct {
			since   int
			sql     string
			warning string
		}{
			"all tables": {sql: "CREATE PUBLICATION events_pub FOR ALL TABLES WITH (publish = 'insert')"},
			"schema": {
				since: 15,
				sql:   "CREATE PUBLICATION events_pub FOR TABLES IN SCHEMA public WITH (publish = 'insert')",
			},
			"whole list": {
				since: 15,
				sql:   "CREATE PUBLICATION events_pub FOR TABLE events (id, kind, key, payload, note) WITH (publish = 'insert')",
			},
			"everything": {
				sql:     "CREATE PUBLICATION events_pub FOR TABLE events",
				warning: "publishes more than inserts",
			},
			"partitioned": {
				sql:     partitioned + publish + "events WITH (publish = 'insert')",
				warning: "by its partitions",
			},
			"via root": {
				sql: partitioned + publish + "events WITH (publish = 'insert', publish_via_partition_root)",
			},
			"stored, 18": {
				since: 18,
				sql:   storedKey + publish + "events WITH (publish = 'insert', publish_generated_columns = stored)",
			},
			"stored, listed": {
				since: 18,
				sql:   storedKey + publish + "events (id, kind, key, payload, note) WITH (publish = 'insert')",
			},
			"filter of a leaf that does not count": {since: 15, sql: partitioned + `CREATE PUBLICATION events_pub
				FOR TABLE events, events_1 WHERE (id > 5) WITH (publish = 'insert', publish_via_partition_root)`},
			"own leaf listed": {
				sql: partitioned + publish + "events, events_1 WITH (publish = 'insert', publish_via_partition_root)",
			},
		} {
			if test.since > major {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db, cfg := newStream(t, major)
				db.Exec(t, test.sql)
				s := dial(t, cfg)
				state, err := s.CheckPublication(t.Context())
				require.NoError(t, err)
				require.NotZero(t, state.OID)
				require.NotZero(t, state.LSN)
				if test.warning == "" {
					require.Empty(t, state.Warnings)
				} else {
					require.Len(t, state.Warnings, 1)
					require.Contains(t, state.Warnings[0], test.warning)
				}

				document, err := json.Marshal(state)
				require.NoError(t, err)
				var back PublicationState
				require.NoError(t, json.Unmarshal(document, &back))
				require.True(t, state.Equal(back))
				require.NoError(t, state.Since(back, 1, cfg))
			})
		}
	})
}

const (
	publish     = "CREATE PUBLICATION events_pub FOR TABLE "
	partitioned = `DROP TABLE events; CREATE TABLE events (id bigint, kind text, key text, payload text)
		PARTITION BY RANGE (id); CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (100);`
	storedKey = `ALTER TABLE events DROP COLUMN key; ALTER TABLE events ADD key text GENERATED ALWAYS AS (kind) STORED;`
)

// TestRegister_PublicationChanged re-creates things behind the stream's back, leaving all as it was.
func TestRegister_PublicationChanged(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		for name, test := range map[string]struct {
			sql  string
			want string // empty: accepted with a warning
		}{
			"publication created again": {
				sql:  "DROP PUBLICATION events_pub; CREATE PUBLICATION events_pub FOR TABLE events WITH (publish = 'insert')",
				want: "was dropped and created again",
			},
			"table created again": {
				sql:  "DROP TABLE events; " + outbox + "; ALTER PUBLICATION events_pub ADD TABLE events",
				want: `table "public"."events" was dropped and created again`,
			},
			"table added again": {
				sql:  "ALTER PUBLICATION events_pub DROP TABLE events; ALTER PUBLICATION events_pub ADD TABLE events",
				want: `table "public"."events" was taken out of it and added again`,
			},
			"inserts switched off and on": {
				sql: "ALTER PUBLICATION events_pub SET (publish = 'update'); ALTER PUBLICATION events_pub SET (publish = 'insert')",
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db, cfg := newStream(t, major)
				reg := register(t, cfg)
				db.Exec(t, test.sql)
				s := dial(t, cfg)
				again, err := s.Register(t.Context())
				if test.want == "" {
					require.NoError(t, err)
					require.Len(t, again.Warnings, 1)
					require.Contains(t, again.Warnings[0], "was altered")
					return
				}
				fatal(t, err, `publication "events_pub"`, test.want, "rows committed between "+reg.Confirmed.String(),
					"new-epoch orders")

				_, err = s.Registry().NewEpoch(t.Context())
				require.NoError(t, err)
				_, err = s.Register(t.Context())
				require.NoError(t, err)
			})
		}
	})
}

// TestEnsurePublication_Names uses names that are syntax when not quoted.
func TestEnsurePublication_Names(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		db.Exec(t, `CREATE SCHEMA "we ird"; CREATE TABLE "we ird"."Out""box" (id int, "Pay load" text)`)
		db.Exec(t, `CREATE TABLE "x""; DROP TABLE events; --" (id int, "Pay load" text)`)
		cfg.Slot = strings.ReplaceAll("1"+cfg.Slot, "__", "_")
		cfg.Mappings = []decoder.Mapping{
			{Schema: "we ird", Table: `Out"box`, ID: "id", Payload: "Pay load"},
			{Schema: "public", Table: `x"; DROP TABLE events; --`, ID: "id", Payload: "Pay load"},
		}
		for _, name := range []string{"My-Pub", `x'"; DROP TABLE events; --`} {
			cfg.Publication, cfg.Stream = name, "s"+string(name[0])
			cfg.Slot = db.Slot(t)
			s := dial(t, cfg)
			require.NoError(t, cfg.Validate())
			_, err := s.Register(t.Context())
			require.NoError(t, err)
			require.NoError(t, s.StartReplication(t.Context(), 0))
			_, err = s.Claim(t.Context())
			require.NoError(t, err)
		}
		db.Exec(t, "TABLE events")
	})
}

func TestEnsurePublication_Refused(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		cfg.Mappings[0].Table = "nowhere"
		_, err := dial(t, cfg).Register(t.Context())
		fatal(t, err, "cannot be created", "nowhere", "walrelay migrate")

		cfg.Mappings[0].Table = "events"
		role := asRole(t, db, cfg, "REPLICATION")
		db.Exec(t, "GRANT USAGE ON SCHEMA walrelay TO "+role+"; GRANT ALL ON ALL TABLES IN SCHEMA walrelay TO "+role)
		_, err = dial(t, cfg).Register(t.Context())
		fatal(t, err, "cannot be created", "run as the owner of the tables: CREATE PUBLICATION")
	})
}

// TestCheckPublication_Fast keeps the check of every second from becoming a burden.
func TestCheckPublication_Fast(t *testing.T) {
	t.Parallel()
	_, cfg := newStream(t, testenv.Majors()[0])
	register(t, cfg)
	s := dial(t, cfg)
	_, err := s.CheckPublication(t.Context())
	require.NoError(t, err)
	fastest := time.Hour // the others may have waited for a processor
	for range 50 {
		start := time.Now()
		_, err := s.CheckPublication(t.Context())
		require.NoError(t, err)
		fastest = min(fastest, time.Since(start))
	}
	require.Less(t, fastest, 50*time.Millisecond)
}
