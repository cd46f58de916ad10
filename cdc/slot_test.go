package cdc

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/walrelay/walrelay/testenv"
)

func TestCreateSlot_NamesWhoHoldsItUp(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, testenv.Majors()[0], testenv.Config{}) // nobody else's transactions
	db, cfg := streamOn(t, server)
	core, logs := observer.New(zap.WarnLevel)
	cfg.Logger = zap.New(core)
	s := dial(t, cfg)
	tx, err := db.Conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "INSERT INTO events VALUES (1, 'a', 'k', 'p')")
	require.NoError(t, err)

	created := make(chan error, 1)
	go func() {
		_, err := s.Register(t.Context())
		created <- err
	}()
	require.Eventually(t, func() bool { return logs.Len() > 0 }, time.Minute, 20*time.Millisecond)
	require.Equal(t, "idle in transaction", logs.All()[0].ContextMap()["oldest_state"])
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-created)
}

func TestCreateSlot_Failover(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		_, cfg := newStream(t, major)
		cfg.Failover = true
		reg := register(t, cfg)
		require.Equal(t, major >= 17, reg.Slot.Failover)
		require.Equal(t, major < 17, len(reg.Warnings) == 1)
	})
}

func TestCreateSlotCommand(t *testing.T) {
	t.Parallel()
	for version, want := range map[int]string{
		140000: `CREATE_REPLICATION_SLOT "s" LOGICAL pgoutput NOEXPORT_SNAPSHOT`,
		150000: `CREATE_REPLICATION_SLOT "s" LOGICAL pgoutput (SNAPSHOT 'nothing')`,
		170000: `CREATE_REPLICATION_SLOT "s" LOGICAL pgoutput (SNAPSHOT 'nothing', FAILOVER true)`,
	} {
		s := &Server{Version: version, cfg: &Config{Slot: "s", Failover: true}}
		require.Equal(t, want, s.createSlotCommand())
	}
}

func TestLagReader(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		lagReader := NewLagReader(cfg)
		t.Cleanup(func() { require.NoError(t, lagReader.Close(context.Background())) })
		_, err := lagReader.Lag(t.Context())
		require.ErrorContains(t, err, "does not exist")

		register(t, cfg)
		before, err := lagReader.Lag(t.Context())
		require.NoError(t, err)
		require.Equal(t, "reserved", before.WALStatus)
		require.False(t, before.Active)
		require.Nil(t, before.SafeWALSize)
		require.WithinDuration(t, time.Now(), before.ServerTime, time.Minute)

		db.Exec(t, "SELECT pg_logical_emit_message(true, 'x', repeat('y', 100000))")
		after, err := lagReader.Lag(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, after.ConfirmedBytes, before.ConfirmedBytes+100000)
		require.GreaterOrEqual(t, after.RetainedBytes, after.ConfirmedBytes)

		results := make(chan error)
		for range 8 {
			go func() {
				_, err := lagReader.Lag(t.Context())
				results <- err
			}()
		}
		for range 8 {
			require.NoError(t, <-results)
		}
	})
}

// TestLagReader_NeverStale: while the server does not answer there is no number, and then a new one.
func TestLagReader_NeverStale(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, testenv.Majors()[0], testenv.Config{})
	_, cfg := streamOn(t, server)
	register(t, cfg)
	lagReader := NewLagReader(cfg)
	t.Cleanup(func() { require.NoError(t, lagReader.Close(context.Background())) })
	_, err := lagReader.Lag(t.Context())
	require.NoError(t, err)

	server.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = lagReader.Lag(ctx) // which would wait as long as it is let
	require.ErrorIs(t, err, context.DeadlineExceeded)
	server.Resume(t)
	_, err = lagReader.Lag(t.Context())
	require.NoError(t, err)
}

// TestStream_LagIsOfTheServerInUse: after a failover the former primary, which still answers, is not asked.
func TestStream_LagIsOfTheServerInUse(t *testing.T) {
	t.Parallel()
	major := testenv.Majors()[0]
	_, former := streamOn(t, testenv.StartPostgres(t, major, testenv.Config{}))
	_, cfg := streamOn(t, testenv.Postgres(t, major))
	cfg.Slot = former.Slot
	register(t, former)
	register(t, cfg)
	server := dial(t, cfg)

	address, promoted := former.ConnString, cfg.ConnString
	cfg.ReadConnString = func() (Secret, error) { return address, nil }
	stream, err := New(*cfg, &scripted{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stream.lag.Close(context.Background())) })
	_, err = stream.Lag(t.Context())
	require.NoError(t, err)
	stream.meet(server)
	_, err = stream.Lag(t.Context())
	require.ErrorContains(t, err, "different servers", "the address leads to the former one still")
	address = promoted
	_, err = stream.Lag(t.Context())
	require.NoError(t, err)
	address = former.ConnString
	_, err = stream.Lag(t.Context())
	require.NoError(t, err, "the connection is kept")
}
