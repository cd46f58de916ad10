package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/inbox"
	"github.com/walrelay/walrelay/testenv"
)

const day = 24 * time.Hour

func connect(t *testing.T, db *testenv.Database) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func keep(days int, width time.Duration) inbox.Partitions {
	return inbox.Partitions{
		Retention: inbox.Retention{Keep: time.Duration(days) * day, RetryWindow: time.Hour}, Width: width,
	}
}

// count returns the number of attached partitions and of all tables named like one.
func count(t *testing.T, db *testenv.Database) (attached, tables int) {
	t.Helper()
	require.NoError(t, db.QueryRow(t, `SELECT
		(SELECT count(*) FROM pg_inherits WHERE inhparent = 'walrelay_kit.inbox_timed'::regclass),
		(SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'inbox\_timed\_%')`).Scan(&attached, &tables))
	return attached, tables
}

// database has made the partitions of four days, today and three days ahead.
func TestPartitions_Maintain(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		db, ctx := database(t, major), t.Context()
		conn := connect(t, db)
		before, _ := count(t, db)
		require.Equal(t, 8, before)
		created, dropped, err := partitions().Maintain(ctx, conn)
		require.NoError(t, err)
		require.Zero(t, created+dropped, "all is there")

		old := message(0)
		old.ID, old.Time = "old", time.Now().Add(-3*day)
		for _, want := range []inbox.Outcome{inbox.Applied, inbox.Duplicate} {
			outcome, err := inbox.Do(ctx, db.Conn, partitions(), old, apply(old))
			require.NoError(t, err)
			require.Equal(t, want, outcome)
		}

		// A longer time, another width: no gap, no overlap.
		created, dropped, err = keep(10, 7*day).Maintain(ctx, conn)
		require.NoError(t, err)
		require.Zero(t, dropped)
		require.Positive(t, created)
		for age := -14 * day; age < 10*day; age += 6 * time.Hour {
			m := message(int(age / time.Hour))
			m.Time = time.Now().Add(-age)
			outcome, err := inbox.Do(ctx, db.Conn, keep(10, 7*day), m, apply(m))
			require.NoError(t, err, age)
			require.Equal(t, inbox.Applied, outcome)
		}

		// A shorter one: what is behind it goes, as whole tables, and is refused from then on.
		_, dropped, err = keep(1, time.Hour).Maintain(ctx, conn)
		require.NoError(t, err)
		require.Positive(t, dropped)
		attached, tables := count(t, db)
		require.Equal(t, attached, tables, "nothing is left behind")
		outcome, err := inbox.Do(ctx, db.Conn, keep(1, time.Hour), old, apply(old))
		require.ErrorIs(t, err, inbox.ErrTooOld)
		require.Equal(t, inbox.Undone, outcome)
		require.Equal(t, 1, effects(t, db, old))

		future := message(0)
		future.Time = time.Now().Add(30 * day)
		_, err = inbox.Do(ctx, db.Conn, keep(1, time.Hour), future, apply(future))
		require.ErrorIs(t, err, inbox.ErrNoPartition)
	})
}

// Detaching waits for a transaction that uses the table, consumers go on meanwhile, and an interrupted one is
// finished by a later call.
func TestPartitions_MaintainInterrupted(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		db, ctx := database(t, major), t.Context()
		conn := connect(t, db)
		user, err := db.Conn.Begin(ctx)
		require.NoError(t, err)
		defer func() { _ = user.Rollback(ctx) }()
		m := message(0)
		_, err = inbox.Once(ctx, user, partitions(), m, apply(m))
		require.NoError(t, err)

		maintained := make(chan error, 1) // the goroutine's only answer
		interrupted, interrupt := context.WithCancel(ctx)
		defer interrupt()
		go func() {
			_, _, err := keep(1, day).Maintain(interrupted, conn)
			maintained <- err
		}()
		pending := func() (pending bool) {
			require.NoError(t, db.QueryRow(t, "SELECT EXISTS (SELECT FROM pg_inherits WHERE inhdetachpending)").Scan(&pending))
			return pending
		}
		require.Eventually(t, pending, 20*time.Second, 10*time.Millisecond)
		other := message(1)
		outcome, err := inbox.Do(ctx, db.Conn, keep(1, day), other, apply(other))
		require.NoError(t, err, "it does not wait for the one that waits")
		require.Equal(t, inbox.Applied, outcome)
		created, dropped, err := keep(1, day).Maintain(ctx, connect(t, db))
		require.NoError(t, err)
		require.Zero(t, created+dropped, "the other one works")

		interrupt()
		require.ErrorIs(t, <-maintained, context.Canceled)
		require.True(t, pending())
		require.NoError(t, user.Commit(ctx))
		again, total := connect(t, db), 0
		require.Eventually(t, func() bool { // as soon as the server has noticed that the other one left
			_, dropped, err := keep(1, day).Maintain(ctx, again)
			require.NoError(t, err)
			total += dropped
			return total == 3
		}, 20*time.Second, 10*time.Millisecond)
		attached, tables := count(t, db)
		require.Equal(t, attached, tables)
	})
}

// A process that died between detaching and dropping leaves a table, which the next call drops.
func TestPartitions_MaintainAfterCrash(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	var oldest string
	require.NoError(t, db.QueryRow(t, `SELECT min(inhrelid::regclass::text) FROM pg_inherits
		WHERE inhparent = 'walrelay_kit.inbox_timed'::regclass`).Scan(&oldest))
	db.Exec(t, "ALTER TABLE walrelay_kit.inbox_timed DETACH PARTITION "+oldest)
	_, dropped, err := keep(1, day).Maintain(t.Context(), connect(t, db))
	require.NoError(t, err)
	require.Equal(t, 3, dropped)
	attached, tables := count(t, db)
	require.Equal(t, attached, tables)
}
