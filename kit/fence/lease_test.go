package fence_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/walrelay/walrelay/kit/fence"
	"github.com/walrelay/walrelay/kit/tx"
	"github.com/walrelay/walrelay/testenv"
)

func TestLease(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		db := prepare(t, testenv.Postgres(t, major))
		leases := fence.Leases{DB: db.Conn, TTL: time.Hour}
		first, err := leases.Acquire(t.Context(), "a", "one")
		require.NoError(t, err)
		for _, holder := range []string{"two", "one"} {
			_, err = leases.Acquire(t.Context(), "a", holder)
			require.ErrorIs(t, err, fence.ErrHeld)
		}
		require.NoError(t, first.Renew(t.Context()))
		var holder string
		var rest time.Duration
		require.NoError(t, db.QueryRow(t, `SELECT holder, expires_at - clock_timestamp() FROM walrelay_kit.fences
			WHERE resource = 'a'`).Scan(&holder, &rest))
		require.Equal(t, "one", holder)
		require.InDelta(t, time.Hour, rest, float64(time.Minute))

		require.NoError(t, first.Release(t.Context()))
		require.ErrorIs(t, first.Renew(t.Context()), fence.ErrLost)
		require.ErrorIs(t, first.Release(t.Context()), fence.ErrLost)
		second, err := leases.Acquire(t.Context(), "a", "two")
		require.NoError(t, err)
		require.Greater(t, second.Token, first.Token)
		require.ErrorIs(t, first.Release(t.Context()), fence.ErrLost, "not somebody else's lease")

		token, err := fence.Next(t.Context(), db.Conn, "a") // authority taken by force
		require.NoError(t, err)
		require.Greater(t, token, second.Token)
		require.ErrorIs(t, second.Renew(t.Context()), fence.ErrLost)
		_, err = leases.Acquire(t.Context(), "", "x")
		require.ErrorIs(t, err, fence.ErrResource)
		_, err = fence.Leases{DB: db.Conn}.Acquire(t.Context(), "a", "x")
		require.ErrorIs(t, err, fence.ErrDuration)
	})
}

func TestLease_ThroughDatabaseSQL(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	leases := fence.Leases{DB: tx.Std(db.Standard(t)), TTL: time.Hour}
	lease, err := leases.Acquire(t.Context(), "a", "one")
	require.NoError(t, err)
	require.Positive(t, lease.Token)
	_, err = leases.Acquire(t.Context(), "a", "two")
	require.ErrorIs(t, err, fence.ErrHeld)
	require.NoError(t, lease.Renew(t.Context()))
	require.NoError(t, lease.Release(t.Context()))
}

// Of many who want a lease at the same moment one gets it, also for a resource that is new.
func TestLease_Race(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	leases := fence.Leases{DB: db.Conn, TTL: time.Hour}
	var last fence.Token
	for range 5 {
		var got atomic.Pointer[fence.Lease]
		var winners atomic.Int32
		var group errgroup.Group
		for range 12 {
			group.Go(func() error {
				lease, err := leases.Acquire(t.Context(), "a", "racer")
				if errors.Is(err, fence.ErrHeld) {
					return nil
				}
				winners.Add(1)
				got.Store(lease)
				return err
			})
		}
		require.NoError(t, group.Wait())
		require.EqualValues(t, 1, winners.Load())
		require.Greater(t, got.Load().Token, last)
		last = got.Load().Token
		expire(t, db, "a")
	}
}

// The holder is paused while it holds the lease, another one takes over and writes, the first one wakes up
// and writes: too late, in every form of the guard.
func TestLease_PausedHolder(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	db.Exec(t, `CREATE TABLE account (id bigint PRIMARY KEY, owner text, fence bigint);
		INSERT INTO account (id) VALUES (1)`)
	leases := fence.Leases{DB: db.Conn, TTL: time.Hour}
	write := func(token fence.Token, form fence.Form, owner string) error {
		return fence.Write{
			Table: pgx.Identifier{"account"}, Key: map[string]any{"id": 1}, Set: map[string]any{"owner": owner},
		}.Do(t.Context(), db.Conn, form, token)
	}
	paused, err := leases.Acquire(t.Context(), "account 1", "paused")
	require.NoError(t, err)
	require.NoError(t, write(paused.Token, fence.Repeatable, "paused"))
	expire(t, db, "account 1") // no heartbeat while it is paused

	next, err := leases.Acquire(t.Context(), "account 1", "next")
	require.NoError(t, err)
	require.NoError(t, write(paused.Token, fence.Repeatable, "late, but nobody newer has written yet"))
	require.NoError(t, write(next.Token, fence.Repeatable, "next"))
	for _, form := range []fence.Form{fence.Once, fence.Repeatable} {
		require.ErrorIs(t, write(paused.Token, form, "too late"), fence.ErrFenced)
	}
	require.ErrorIs(t, paused.Renew(t.Context()), fence.ErrLost)
	require.ErrorIs(t, write(next.Token, fence.Once, "twice"), fence.ErrRepeated)
	require.NoError(t, write(next.Token, fence.Repeatable, "again"))
	var owner string
	require.NoError(t, db.QueryRow(t, "SELECT owner FROM account").Scan(&owner))
	require.Equal(t, "again", owner)
}

func TestKeep_RenewsAndStops(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	lease, err := fence.Leases{DB: db.Conn, TTL: 18 * time.Second}.Acquire(t.Context(), "a", "one")
	require.NoError(t, err)
	held, stop := lease.Keep(t.Context())
	defer stop()
	expiries := map[int64]bool{} // one of the lease as it was acquired, and one for each renewal
	require.Eventually(t, func() bool {
		var expiry time.Time
		require.NoError(t, held.Err())
		require.NoError(t, db.QueryRow(t, "SELECT expires_at FROM walrelay_kit.fences WHERE resource = 'a'").Scan(&expiry))
		expiries[expiry.UnixMicro()] = true
		return len(expiries) > 2
	}, 2*time.Minute, 100*time.Millisecond)
	stop()
	stop()
	require.ErrorIs(t, held.Err(), context.Canceled)
	require.NotErrorIs(t, context.Cause(held), fence.ErrLost)
	require.NoError(t, lease.Release(t.Context()))
}

func TestKeep_TakenOver(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	lease, err := fence.Leases{DB: db.Conn, TTL: 3 * time.Second}.Acquire(t.Context(), "a", "one")
	require.NoError(t, err)
	held, stop := lease.Keep(t.Context())
	defer stop()
	_, err = fence.Next(t.Context(), db.Conn, "a")
	require.NoError(t, err)
	<-held.Done()
	require.ErrorIs(t, context.Cause(held), fence.ErrLost)
}

// deaf is a database that does not answer, and does not look at the context either.
type deaf struct {
	tx.Tx
	silent atomic.Bool
	wake   chan struct{}
}

func (d *deaf) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if d.silent.Load() {
		<-d.wake
	}
	return d.Tx.Exec(ctx, sql, args...)
}

func TestKeep_DatabaseSilent(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	handle := &deaf{Tx: db.Conn, wake: make(chan struct{})}
	lease, err := fence.Leases{DB: handle, TTL: time.Second}.Acquire(t.Context(), "a", "one")
	require.NoError(t, err)
	handle.silent.Store(true)
	held, stop := lease.Keep(t.Context())
	<-held.Done()
	require.ErrorIs(t, context.Cause(held), fence.ErrLost)
	close(handle.wake)
	stop()
}

// A source of one's own gives the token, and the lease still belongs to one.
type counting struct {
	next   atomic.Int64
	before func()
}

func (c *counting) Next(context.Context, string) (fence.Token, error) {
	if c.before != nil {
		c.before()
	}
	return fence.Token(c.next.Add(1)), nil
}

func TestLease_OtherSource(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	source := &counting{}
	source.next.Store(1000)
	leases := fence.Leases{DB: db.Conn, TTL: time.Hour, Source: source}
	lease, err := leases.Acquire(t.Context(), "a", "one")
	require.NoError(t, err)
	require.EqualValues(t, 1001, lease.Token)
	require.NoError(t, lease.Renew(t.Context()))
	require.NoError(t, lease.Release(t.Context()))

	source.before = func() { expire(t, db, "a") } // paused while it asks
	_, err = leases.Acquire(t.Context(), "a", "two")
	require.ErrorIs(t, err, fence.ErrLost)
}
