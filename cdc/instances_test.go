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

// awaitInstances waits until there are that many: a session that has ended, or was given up, stays for a moment.
func awaitInstances(t *testing.T, cfg *Config, n int) (found []Instance) {
	t.Helper()
	require.Eventually(t, func() bool {
		found = instances(t, cfg)
		return len(found) == n
	}, time.Minute, 10*time.Millisecond)
	return found
}

// shown shows a standby, which gives that a second and does not try again before its next attempt to get the slot.
func shown(t *testing.T, p *presence) (pid int32) {
	t.Helper()
	require.Eventually(t, func() bool {
		pid = p.show(t.Context())
		return pid != 0
	}, time.Minute, 10*time.Millisecond)
	return pid
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
		var pid int32
		require.Eventually(t, func() bool {
			pid = shown(t, &standby)
			return pid == standby.show(t.Context())
		}, time.Minute, 10*time.Millisecond, "the session stays")
		found = awaitInstances(t, cfg, 2)
		require.False(t, found[1].Active)
		require.Equal(t, pid, found[1].PID)
		require.Equal(t, "walrelay standby "+cfg.Slot, found[1].Application)
		require.WithinDuration(t, time.Now(), found[1].Since, time.Hour)

		other := *cfg // of another slot in the same database
		other.Slot = "another"
		stranger := presence{cfg: &other, log: cfg.Logger}
		defer stranger.hide(context.Background())
		shown(t, &stranger)
		require.Len(t, instances(t, cfg), 2)

		// A role that may see nothing of others sees who they are all the same.
		weak := *cfg
		asRole(t, db, &weak, "")
		found = awaitInstances(t, &weak, 2)
		require.Equal(t, pid, found[1].PID)
		require.Equal(t, "walrelay standby "+cfg.Slot, found[1].Application)
		require.True(t, found[1].Since.IsZero())
		require.Empty(t, found[1].Client)

		db.Exec(t, "SELECT pg_terminate_backend($1)", pid)
		awaitInstances(t, cfg, 1)
		require.NotEqual(t, pid, shown(t, &standby), "a lost session is replaced")
		awaitInstances(t, cfg, 2)
		standby.hide(t.Context())
		awaitInstances(t, cfg, 1)
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
