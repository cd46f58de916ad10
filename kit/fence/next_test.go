package fence_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/walrelay/walrelay/kit/fence"
	"github.com/walrelay/walrelay/testenv"
)

func TestNext(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		db := prepare(t, testenv.Postgres(t, major))
		db.Exec(t, "CREATE ROLE "+db.Name+` LOGIN; GRANT USAGE ON SCHEMA walrelay_kit TO `+db.Name+`;
			GRANT SELECT, INSERT, UPDATE ON walrelay_kit.fences TO `+db.Name)
		t.Cleanup(func() { db.Exec(t, "DROP OWNED BY "+db.Name+"; DROP ROLE "+db.Name) })
		conn, err := db.Conn.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		_, err = conn.Exec(t.Context(), "SET ROLE "+db.Name) // nothing here needs more
		require.NoError(t, err)
		defer func() { _, _ = conn.Exec(t.Context(), "RESET ROLE") }()

		for i := range uint64(3) {
			token, err := fence.Next(t.Context(), conn, "a")
			require.NoError(t, err)
			require.Equal(t, [2]uint64{1, i + 1}, [2]uint64{token.Term(), token.Counter()})
		}
		other, err := fence.Next(t.Context(), conn, "b")
		require.NoError(t, err)
		require.EqualValues(t, 1, other.Counter())
		_, err = fence.Next(t.Context(), conn, "")
		require.ErrorIs(t, err, fence.ErrResource)
	})
}

func TestNext_Concurrently(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	tokens := make([][]fence.Token, 8)
	var group errgroup.Group
	for i := range tokens {
		group.Go(func() error {
			for range 20 {
				token, err := fence.Rows{DB: db.Conn}.Next(t.Context(), "a")
				if err != nil {
					return err
				}
				tokens[i] = append(tokens[i], token)
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	seen := map[fence.Token]bool{}
	for _, own := range tokens {
		require.IsIncreasing(t, own)
		for _, token := range own {
			require.False(t, seen[token], "given twice: %s", token)
			seen[token] = true
		}
	}
	require.Len(t, seen, 160)
}

// A standby that never got the last tokens is promoted, and its first token is asked for at once.
func TestNext_PromotionThatLostTokens(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		primary := testenv.StartPostgres(t, major, testenv.Config{})
		standby := primary.Standby(t, testenv.Config{Settings: map[string]string{
			"checkpoint_completion_target": "1", // the checkpoint after the promotion takes its time
		}})
		db := prepare(t, primary)
		first, err := fence.Next(t.Context(), db.Conn, "known")
		require.NoError(t, err)
		db.Exec(t, "CHECKPOINT")
		caughtUp(t, primary, standby)
		standby.Exec(t, "ALTER SYSTEM SET primary_conninfo = ''")
		standby.Exec(t, "SELECT pg_reload_conf()")
		require.Eventually(t, func() bool {
			var senders int
			primary.QueryRow(t, "SELECT count(*) FROM pg_stat_replication", nil, &senders)
			return senders == 0
		}, 30*time.Second, 10*time.Millisecond)

		lost := map[string]fence.Token{}
		for range 5 {
			for _, resource := range []string{"known", "new"} {
				lost[resource], err = fence.Next(t.Context(), db.Conn, resource)
				require.NoError(t, err)
			}
		}
		require.Equal(t, first+5, lost["known"])
		primary.Kill(t)
		promoted := db.On(t, standby)
		_, err = fence.Next(t.Context(), promoted.Conn, "known")
		require.Error(t, err, "a standby gives no tokens")

		standby.Promote(t)
		for resource, last := range lost {
			token, err := fence.Next(t.Context(), promoted.Conn, resource)
			require.NoError(t, err)
			require.Greater(t, token, last, resource)
			require.EqualValues(t, 2, token.Term(), resource)
			require.LessOrEqual(t, token.Counter(), last.Counter(), "the counter alone would have gone back")
		}
	})
}

// caughtUp waits until the standby has applied what the primary has written so far.
func caughtUp(t *testing.T, primary, standby *testenv.Server) {
	t.Helper()
	var lsn string
	primary.QueryRow(t, "SELECT pg_current_wal_lsn()::text", nil, &lsn)
	require.Eventually(t, func() bool {
		var there bool
		standby.QueryRow(t, "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", []any{lsn}, &there)
		return there
	}, 30*time.Second, 10*time.Millisecond)
}

// What the checkpoint in the control file says is behind right after a promotion; the source of the
// timeline is not. This is why the one is used and not the other.
func TestTimeline_AfterPromotion(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		primary := testenv.StartPostgres(t, major, testenv.Config{})
		standby := primary.Standby(t, testenv.Config{})
		db := prepare(t, primary)
		caughtUp(t, primary, standby)
		promoted := db.On(t, standby)
		// A connection from before the promotion, with the statement prepared.
		conn, err := promoted.Conn.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		var recovering bool
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_is_in_recovery()").Scan(&recovering))
		require.True(t, recovering)
		standby.Promote(t)
		token, err := fence.Next(t.Context(), conn, "a")
		require.NoError(t, err)
		require.EqualValues(t, 2, token.Term())
		var stale int
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT timeline_id FROM pg_control_checkpoint()").Scan(&stale))
		t.Logf("pg_control_checkpoint() says %d", stale)
	})
}

// A crash does not change the timeline, so a token has to be on disk before it is used, even where
// the role does not wait for the disk.
func TestNext_CrashWithAsynchronousCommit(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, 18, testenv.Config{Settings: map[string]string{
		"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB",
	}})
	db := prepare(t, server)
	server.Exec(t, "CHECKPOINT")
	var last fence.Token
	for range 3 {
		var err error
		last, err = fence.Next(t.Context(), db.Conn, "a")
		require.NoError(t, err)
	}
	server.Kill(t)
	server.Start(t)
	require.Eventually(t, func() bool { return db.Conn.Ping(t.Context()) == nil }, 30*time.Second, 10*time.Millisecond)
	next, err := fence.Next(t.Context(), db.Conn, "a")
	require.NoError(t, err)
	require.Equal(t, last+1, next)
}

// A dump restored elsewhere, an upgrade: the timeline begins at 1 again, under another identifier.
func TestNext_TimelineGoesBack(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	_, err := fence.Next(t.Context(), db.Conn, "a")
	require.NoError(t, err)
	db.Exec(t, "UPDATE walrelay_kit.fences SET timeline = 7, system_identifier = 42, counter = 100 WHERE resource = 'a'")
	for _, counter := range []uint64{101, 102} {
		token, err := fence.Next(t.Context(), db.Conn, "a")
		require.NoError(t, err)
		require.Equal(t, [2]uint64{8, counter}, [2]uint64{token.Term(), token.Counter()})
	}
	// The same cluster's timeline further on adds to that.
	db.Exec(t, `UPDATE walrelay_kit.fences SET timeline = timeline - 1,
		term_offset = term_offset + 1 WHERE resource = 'a'`)
	token, err := fence.Next(t.Context(), db.Conn, "a")
	require.NoError(t, err)
	require.Equal(t, [2]uint64{9, 103}, [2]uint64{token.Term(), token.Counter()})
}

func TestRaise(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	for i, seen := range []fence.Token{5<<40 | 77, 5<<40 | 78, 6 << 40, 1<<40 | 5000} {
		resource := fmt.Sprint("r", i%2) // a new one and one that is there
		require.NoError(t, fence.Raise(t.Context(), db.Conn, resource, seen))
		token, err := fence.Next(t.Context(), db.Conn, resource)
		require.NoError(t, err)
		require.Greater(t, token, seen)
	}
	before, err := fence.Next(t.Context(), db.Conn, "r0")
	require.NoError(t, err)
	require.NoError(t, fence.Raise(t.Context(), db.Conn, "r0", 1))
	after, err := fence.Next(t.Context(), db.Conn, "r0")
	require.NoError(t, err)
	require.Equal(t, before+1, after, "nothing to raise")
}

// Removing a row must not take its counter back.
func TestPurge(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	var last fence.Token
	for range 9 {
		var err error
		last, err = fence.Next(t.Context(), db.Conn, "idle")
		require.NoError(t, err)
	}
	require.NoError(t, fence.Raise(t.Context(), db.Conn, "idle", last|3<<40))
	last, err := fence.Next(t.Context(), db.Conn, "idle")
	require.NoError(t, err)
	_, err = fence.Leases{DB: db.Conn, TTL: time.Hour}.Acquire(t.Context(), "held", "me")
	require.NoError(t, err)
	_, err = fence.Next(t.Context(), db.Conn, "busy")
	require.NoError(t, err)
	require.NoError(t, fence.Admit(t.Context(), db.Conn, "idle", fence.Once, last))
	db.Exec(t, "UPDATE walrelay_kit.fences SET updated_at = now() - interval '2 days' WHERE resource IN ('idle', 'held')")
	db.Exec(t, "UPDATE walrelay_kit.fence_marks SET updated_at = now() - interval '2 days'")

	removed, err := fence.Purge(t.Context(), db.Conn, 24*time.Hour)
	require.NoError(t, err)
	require.EqualValues(t, 2, removed)
	var left []string
	require.NoError(t, db.QueryRow(t, "SELECT array_agg(resource ORDER BY resource) FROM walrelay_kit.fences").Scan(&left))
	require.Equal(t, []string{"", "busy", "held"}, left)
	for _, resource := range []string{"idle", "never seen"} {
		token, err := fence.Next(t.Context(), db.Conn, resource)
		require.NoError(t, err)
		require.Greater(t, token, last)
	}
	_, err = fence.Purge(t.Context(), db.Conn, 0)
	require.ErrorIs(t, err, fence.ErrDuration)
}

// Whoever begins a row while it is being removed reads the counter that the removal leaves behind.
func TestPurge_InProgress(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	var last fence.Token
	for range 9 {
		var err error
		last, err = fence.Next(t.Context(), db.Conn, "a")
		require.NoError(t, err)
	}
	purge, err := db.Conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = purge.Rollback(t.Context()) }()
	_, err = fence.Purge(t.Context(), purge, time.Microsecond)
	require.NoError(t, err)
	var group errgroup.Group
	group.Go(func() error { return fence.Raise(t.Context(), db.Conn, "a", 1) })
	require.Eventually(t, func() bool {
		var waiting int
		require.NoError(t, db.QueryRow(t, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting))
		return waiting == 1
	}, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, purge.Commit(t.Context()))
	require.NoError(t, group.Wait())
	token, err := fence.Next(t.Context(), db.Conn, "a")
	require.NoError(t, err)
	require.Greater(t, token, last)
}

// Tokens asked for while rows are removed over and over still only grow.
func TestPurge_BesideNext(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	var group errgroup.Group
	done := make(chan struct{})
	group.Go(func() error {
		for {
			select {
			case <-done:
				return nil
			default:
			}
			if _, err := fence.Purge(t.Context(), db.Conn, time.Microsecond); err != nil {
				return err
			}
		}
	})
	var callers errgroup.Group
	for i := range 4 {
		callers.Go(func() error {
			var last fence.Token
			for range 50 {
				token, err := fence.Next(t.Context(), db.Conn, fmt.Sprint(i))
				if err != nil {
					return err
				}
				if token <= last {
					return fmt.Errorf("%s after %s", token, last)
				}
				last = token
			}
			return nil
		})
	}
	err := callers.Wait()
	close(done)
	require.NoError(t, err)
	require.NoError(t, group.Wait())
}

// Without the row that keeps tokens from going back there is an error, not an endless search for it.
func TestNext_FloorIsGone(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	db.Exec(t, "TRUNCATE walrelay_kit.fences")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := fence.Next(ctx, db.Conn, "a")
	require.ErrorIs(t, err, fence.ErrFloor)
	_, err = fence.Leases{DB: db.Conn, TTL: time.Minute}.Acquire(ctx, "a", "me")
	require.ErrorIs(t, err, fence.ErrFloor)
	require.ErrorIs(t, fence.Raise(ctx, db.Conn, "a", 1<<40), fence.ErrFloor)

	db.Exec(t, "INSERT INTO walrelay_kit.fences (resource, system_identifier, timeline, counter) VALUES ('', 0, 0, 0)")
	require.NoError(t, fence.Raise(ctx, db.Conn, "a", 1<<40|7))
	token, err := fence.Next(ctx, db.Conn, "a")
	require.NoError(t, err)
	require.EqualValues(t, 1<<40|8, token)
}
