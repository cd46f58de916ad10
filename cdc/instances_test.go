package cdc

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// instances asks as cfg's role.
func instances(t *testing.T, cfg *Config) []Instance {
	t.Helper()
	reader := NewLagReader(cfg)
	defer func() { require.NoError(t, reader.Close(context.Background())) }()
	lag, err := reader.Lag(t.Context())
	require.NoError(t, err)
	return lag.Instances
}

func TestInstances(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		db.Exec(t, "CREATE PUBLICATION events_pub FOR TABLE public.events WITH (publish = 'insert')")
		register(t, cfg)
		found := instances(t, cfg)
		require.NotNil(t, found)
		require.Empty(t, found)

		active := dial(t, cfg)
		require.NoError(t, active.StartReplication(t.Context(), 0))
		require.Eventually(t, func() bool {
			found = instances(t, cfg)
			return len(found) == 1 && found[0].State == "streaming"
		}, time.Minute, 10*time.Millisecond)
		require.True(t, found[0].Active)
		require.EqualValues(t, active.Repl.PID(), found[0].PID)
		require.Equal(t, "walrelay", found[0].Application)
		require.Equal(t, "127.0.0.1", found[0].Client)

		standby := presence{cfg: cfg, log: cfg.Logger}
		defer standby.hide(context.Background())
		pid := standby.show(t.Context())
		require.NotZero(t, pid)
		require.Equal(t, pid, standby.show(t.Context()), "the session stays")
		found = instances(t, cfg)
		require.Len(t, found, 2)
		require.False(t, found[1].Active)
		require.Equal(t, pid, found[1].PID)
		require.Equal(t, "walrelay standby "+cfg.Slot, found[1].Application)
		require.WithinDuration(t, time.Now(), found[1].Since, time.Hour)

		other := *cfg // of another slot in the same database
		other.Slot = "another"
		stranger := presence{cfg: &other, log: cfg.Logger}
		defer stranger.hide(context.Background())
		require.NotZero(t, stranger.show(t.Context()))
		require.Len(t, instances(t, cfg), 2)

		// A role that may see nothing of others sees who they are all the same.
		weak := *cfg
		asRole(t, db, &weak, "")
		found = instances(t, &weak)
		require.Len(t, found, 2)
		require.Equal(t, pid, found[1].PID)
		require.Equal(t, "walrelay standby "+cfg.Slot, found[1].Application)
		require.True(t, found[1].Since.IsZero())
		require.Empty(t, found[1].Client)

		db.Exec(t, "SELECT pg_terminate_backend($1)", pid)
		require.Eventually(t, func() bool { return len(instances(t, cfg)) == 1 }, time.Minute, 10*time.Millisecond)
		require.NotEqual(t, pid, standby.show(t.Context()), "a lost session is replaced")
		require.Len(t, instances(t, cfg), 2)
		standby.hide(t.Context())
		require.Eventually(t, func() bool { return len(instances(t, cfg)) == 1 }, time.Minute, 10*time.Millisecond)
	})
}

// The lag must not be lost with the right to see other sessions.
func TestInstances_ViewRevoked(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		db.Exec(t, "CREATE PUBLICATION events_pub FOR TABLE public.events WITH (publish = 'insert')")
		register(t, cfg)
		weak := *cfg
		asRole(t, db, &weak, "")
		db.Exec(t, "REVOKE SELECT ON pg_catalog.pg_stat_activity FROM PUBLIC")
		require.Nil(t, instances(t, &weak))
	})
}

func TestPresenceMark_FitsIntoAName(t *testing.T) {
	t.Parallel()
	require.Equal(t, " standby orders", presenceMark("orders"))
	require.Len(t, presenceMark(strings.Repeat("x", 63)), maxName)
}
