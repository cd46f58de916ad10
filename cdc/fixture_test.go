package cdc

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/migrations"
	"github.com/walrelay/walrelay/testenv"
)

// outbox is the table of the fixture: plain, with the columns that the mapping names.
const outbox = `CREATE TABLE public.events
	(id bigint PRIMARY KEY, kind text NOT NULL, key text, payload text, note text)`

func outboxMapping() decoder.Mapping {
	return decoder.Mapping{
		Schema: "public", Table: "events", ID: "id", Key: "key", Payload: "payload", Type: "note", Headers: "absent",
		Route: []string{"kind"},
	}
}

// newConfig returns a valid configuration for a database.
func newConfig(t *testing.T, db *testenv.Database) *Config {
	t.Helper()
	return &Config{
		ConnString: Secret(db.DSN), Stream: "orders", Slot: db.Slot(t), Publication: "events_pub",
		Mappings: []decoder.Mapping{outboxMapping()}, Routing: "r1", Delivery: "at-least-once",
		ConnectTimeout: 10 * time.Second, StatusInterval: time.Second, ReceiveTimeout: time.Minute,
		ShutdownTimeout: 10 * time.Second, BackoffMin: 10 * time.Millisecond, BackoffMax: time.Second,
		Window: checkpoint.Window{Events: 1000, Bytes: 1 << 20}, MaxMessageBytes: 1 << 20,
		Logger: zaptest.NewLogger(t),
	}
}

// migrate creates walrelay's own tables.
func migrate(t *testing.T, dsn string) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	_, err = migrations.Up(t.Context(), db)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// newStream returns a fresh database with the schema and an outbox, and a configuration for it.
func newStream(t *testing.T, major int) (*testenv.Database, *Config) {
	t.Helper()
	return streamOn(t, testenv.Postgres(t, major))
}

func streamOn(t *testing.T, server *testenv.Server) (*testenv.Database, *Config) {
	t.Helper()
	db := server.Database(t)
	migrate(t, db.DSN)
	db.Exec(t, outbox)
	return db, newConfig(t, db)
}

func dial(t *testing.T, cfg *Config) *Server {
	t.Helper()
	s, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// register dials, registers and hangs up, as a run that ends at once does.
func register(t *testing.T, cfg *Config) *Registration {
	t.Helper()
	s := dial(t, cfg)
	defer s.Close(context.Background())
	reg, err := s.Register(t.Context())
	require.NoError(t, err)
	return reg
}

// fatal requires a FatalError whose line has all the parts.
func fatal(t *testing.T, err error, parts ...string) {
	t.Helper()
	var f *FatalError
	require.ErrorAs(t, err, &f)
	require.NotEmpty(t, f.Object)
	require.NotEmpty(t, f.Remedy)
	for _, part := range parts {
		require.Contains(t, err.Error(), part)
	}
	require.NotContains(t, err.Error(), "\n")
}

// forMajors runs a subtest in parallel for each major.
func forMajors(t *testing.T, test func(t *testing.T, major int)) {
	t.Helper()
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		t.Parallel()
		test(t, major)
	})
}
