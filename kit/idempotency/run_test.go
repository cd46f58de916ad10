package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/idempotency"
	"github.com/walrelay/walrelay/kit/tx"
	"github.com/walrelay/walrelay/testenv"
)

func TestRun_ReplaysTheAnswer(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		t.Parallel()
		db := newDatabase(t, major)
		first, err := idempotency.Run(t.Context(), db.Conn, request("k"), effect("k", "first"))
		require.NoError(t, err)
		require.False(t, first.Replayed)
		second, err := idempotency.Run(t.Context(), db.Conn, request("k"), effect("k", "second"))
		require.NoError(t, err)
		require.True(t, second.Replayed)
		second.Replayed = false
		require.Equal(t, first, second)
		require.Equal(t, 1, effects(t, db.Conn, "k"))

		other := request("k")
		other.Hash[0]++
		_, err = idempotency.Run(t.Context(), db.Conn, other, effect("k", "other"))
		require.ErrorIs(t, err, idempotency.ErrMismatch)

		elsewhere := request("k")
		elsewhere.Scope = "another shop"
		_, err = idempotency.Run(t.Context(), db.Conn, elsewhere, effect("k", "elsewhere"))
		require.NoError(t, err)
		require.Equal(t, 2, effects(t, db.Conn, "k"))
	})
}

func TestRun_Concurrent(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, 18)
	const callers = 50
	answers := make([]string, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			answers[i] = string(persist(t.Context(), db.Conn, request("k"), effect("k", fmt.Sprint(i))).Body)
		})
	}
	wg.Wait()
	require.Equal(t, 1, effects(t, db.Conn, "k"))
	for _, answer := range answers {
		require.NotEmpty(t, answer)
		require.Equal(t, answers[0], answer)
	}
}

// persist calls until there is an answer.
func persist(
	ctx context.Context, pool idempotency.Pool, r idempotency.Request, work idempotency.Work,
) idempotency.Response {
	for ctx.Err() == nil {
		answer, err := idempotency.Run(ctx, pool, r, work)
		if err == nil {
			return answer
		}
		pause(ctx, 5*time.Millisecond)
	}
	return idempotency.Response{}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func TestRun_Refusal(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, 18)
	refuse := func(ctx context.Context, tx pgx.Tx) (idempotency.Response, error) {
		if _, err := effect("k", "w")(ctx, tx); err != nil {
			return idempotency.Response{}, err
		}
		return idempotency.Response{}, fmt.Errorf("pay: %w",
			&idempotency.RefusalError{Response: idempotency.Response{Status: 500, Body: []byte("no")}})
	}
	for _, replayed := range []bool{false, true} {
		answer, err := idempotency.Run(t.Context(), db.Conn, request("k"), refuse)
		require.NoError(t, err)
		require.Equal(t, idempotency.Response{Status: 500, Body: []byte("no"), Replayed: replayed}, answer)
	}
	require.Zero(t, effects(t, db.Conn, "k"))
}

// An error and a panic roll back and free the key at once, long before the lease ends.
func TestRun_ReleasesAfterFailure(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, 18)
	ended, cancel := context.WithCancel(t.Context())
	for _, fail := range []func() error{
		func() error { return errors.New("no") },
		func() error { panic("no") },
		func() error { cancel(); return ended.Err() },
	} {
		func() {
			defer func() { _ = recover() }()
			_, err := idempotency.Run(ended, db.Conn, request("k"),
				func(ctx context.Context, tx pgx.Tx) (idempotency.Response, error) {
					_, err := effect("k", "w")(ctx, tx)
					return idempotency.Response{}, errors.Join(err, fail())
				})
			require.Error(t, err)
		}()
		require.Zero(t, effects(t, db.Conn, "k"))
		claim, saved, err := idempotency.Acquire(t.Context(), db.Conn, request("k"))
		require.NoError(t, err)
		require.Nil(t, saved)
		require.NoError(t, claim.Release(t.Context(), db.Conn))
	}
	_, err := idempotency.Run(t.Context(), db.Conn, request("k"), effect("k", "w"))
	require.NoError(t, err)
}

// The owner outlives its lease, another takes over; only one of the two transactions can commit.
func TestRun_TakeoverFencesTheLateOwner(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		t.Parallel()
		db := newDatabase(t, major)
		short := request("k")
		short.Lease = time.Hour
		_, err := idempotency.Run(t.Context(), db.Conn, short,
			func(ctx context.Context, tx pgx.Tx) (idempotency.Response, error) {
				_, _, err := idempotency.Acquire(ctx, db.Conn, short)
				var busy *idempotency.InProgressError
				require.ErrorAs(t, err, &busy)
				require.ErrorIs(t, err, idempotency.ErrInProgress)
				require.Equal(t, time.Second, busy.RetryAfter)
				require.InDelta(t, time.Hour, busy.LeaseLeft, float64(time.Minute))

				age(t, db, "k", 2*time.Hour) // the lease is over by the server's clock
				answer, err := idempotency.Run(ctx, db.Conn, short, effect("k", "heir"))
				require.NoError(t, err)
				require.False(t, answer.Replayed)
				return effect("k", "late")(ctx, tx)
			})
		require.ErrorIs(t, err, idempotency.ErrLost)
		require.Equal(t, 1, effects(t, db.Conn, "k"))
		answer, err := idempotency.Run(t.Context(), db.Conn, short, effect("k", "again"))
		require.NoError(t, err)
		require.Equal(t, []string{"heir"}, answer.Header["X-Worker"])
	})
}

func TestClaim_LateButAloneCompletes(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, 18)
	claim, _, err := idempotency.Acquire(t.Context(), db.Conn, request("k"))
	require.NoError(t, err)
	require.Equal(t, int64(1), claim.Token)
	age(t, db, "k", time.Hour)
	require.NoError(t, claim.Extend(t.Context(), db.Conn))
	_, _, err = idempotency.Acquire(t.Context(), db.Conn, request("k"))
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	age(t, db, "k", time.Hour)
	require.NoError(t, claim.Complete(t.Context(), db.Conn, idempotency.Response{Status: 200}))
	require.ErrorIs(t, claim.Complete(t.Context(), db.Conn, idempotency.Response{Status: 201}), idempotency.ErrLost)
	require.ErrorIs(t, claim.Release(t.Context(), db.Conn), idempotency.ErrLost)
	require.ErrorIs(t, claim.Extend(t.Context(), db.Conn), idempotency.ErrLost)
}

// The token fences, also while the heir is still at work.
func TestClaim_FencedBeforeTheHeirCompletes(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, 18)
	late, _, err := idempotency.Acquire(t.Context(), db.Conn, request("k"))
	require.NoError(t, err)
	age(t, db, "k", time.Hour)
	other := request("k")
	other.Hash[0]++
	_, _, err = idempotency.Acquire(t.Context(), db.Conn, other)
	require.ErrorIs(t, err, idempotency.ErrMismatch, "also when nobody holds it")
	heir, _, err := idempotency.Acquire(t.Context(), db.Conn, request("k"))
	require.NoError(t, err)
	require.Equal(t, int64(2), heir.Token)
	require.ErrorIs(t, late.Extend(t.Context(), db.Conn), idempotency.ErrLost)
	require.ErrorIs(t, late.Release(t.Context(), db.Conn), idempotency.ErrLost)
	require.ErrorIs(t, late.Complete(t.Context(), db.Conn, idempotency.Response{Status: 200}), idempotency.ErrLost)
	require.NoError(t, heir.Complete(t.Context(), db.Conn, idempotency.Response{Status: 200}))
}

// In the caller's transaction everything stands or falls with it.
func TestRun_WithinTransaction(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, 18)
	for _, commit := range []bool{false, true} {
		outer, err := db.Conn.Begin(t.Context())
		require.NoError(t, err)
		_, err = idempotency.Run(t.Context(), outer, request("k"),
			func(context.Context, pgx.Tx) (idempotency.Response, error) {
				return idempotency.Response{}, errors.New("first try fails")
			})
		require.Error(t, err)
		answer, err := idempotency.Run(t.Context(), outer, request("k"), effect("k", "w"))
		require.NoError(t, err)
		require.False(t, answer.Replayed)
		if commit {
			require.NoError(t, outer.Commit(t.Context()))
		} else {
			require.NoError(t, outer.Rollback(t.Context()))
		}
	}
	require.Equal(t, 1, effects(t, db.Conn, "k"))
	answer, err := idempotency.Run(t.Context(), db.Conn, request("k"), effect("k", "w"))
	require.NoError(t, err)
	require.True(t, answer.Replayed)
}

func TestAcquire_DatabaseSQL(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, 18)
	handle := db.Standard(t)

	run := func() *idempotency.Response {
		claim, saved, err := idempotency.Acquire(t.Context(), tx.Std(handle), request("k"))
		require.NoError(t, err)
		if saved != nil {
			return saved
		}
		business, err := handle.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
		require.NoError(t, err)
		_, err = business.ExecContext(t.Context(), `INSERT INTO effects VALUES ('k', 'w')`)
		require.NoError(t, err)
		answer := idempotency.Response{
			Status: 402, Header: map[string][]string{"A": {"b", "c"}}, Body: []byte{0, 255, 10},
		}
		require.NoError(t, claim.Complete(t.Context(), tx.Std(business), answer))
		require.NoError(t, business.Commit())
		return &answer
	}
	first, second := run(), run()
	require.True(t, second.Replayed)
	second.Replayed = false
	require.Equal(t, first, second)
	require.Equal(t, 1, effects(t, db.Conn, "k"))
}

func TestAcquire_RefusesBadRequests(t *testing.T) {
	t.Parallel()
	for _, r := range []idempotency.Request{
		{}, {Key: strings.Repeat("k", 1025)}, {Key: "k\x00"}, {Key: "k", Scope: "\xff"}, {Key: "k", Lease: -1},
	} {
		_, _, err := idempotency.Acquire(t.Context(), nil, r)
		require.ErrorContains(t, err, "check idempotency request")
	}
}
