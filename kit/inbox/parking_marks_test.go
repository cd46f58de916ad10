package inbox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/inbox"
	"github.com/walrelay/walrelay/kit/tx"
)

// stalled is a database of a consumer to which something happens between two of its transactions: after the
// first n that begin, the one that counts attempts not among them.
type stalled struct {
	*pgxpool.Pool

	begun, after int
	once         sync.Once
	meanwhile    func()
}

func (s *stalled) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	if s.begun == s.after {
		s.once.Do(s.meanwhile)
	}
	s.begun++
	return s.Pool.BeginTx(ctx, options)
}

func (s *stalled) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if s.begun == s.after {
		s.once.Do(s.meanwhile)
	}
	return s.Pool.Exec(ctx, sql, args...)
}

// An old owner of the partition finds that the mark has passed its message, which the new one has parked.
func TestParking_OldOwnerKeepsWhatIsParked(t *testing.T) {
	t.Parallel()
	db, ctx, parking := database(t, 18), t.Context(), inbox.Parking{After: 2}
	m, next := message(1), message(2)
	old := &stalled{Pool: db.Conn, meanwhile: func() {
		outcome, err := parking.Do(ctx, db.Conn, inbox.HighWater{}, m, broken(m))
		require.NoError(t, err)
		require.Equal(t, inbox.Parked, outcome)
		outcome, err = parking.Do(ctx, db.Conn, inbox.HighWater{}, next, apply(next))
		require.NoError(t, err)
		require.Equal(t, inbox.Applied, outcome)
	}}
	outcome, err := parking.Do(ctx, old, inbox.HighWater{}, m, apply(m))
	require.NoError(t, err)
	require.Equal(t, inbox.Parked, outcome)
	require.Zero(t, effects(t, db, m))
	outcome, err = parking.Retry(ctx, db.Conn, &inbox.HighWater{}, m.Consumer, m.ID,
		func(ctx context.Context, t tx.Tx, m inbox.Message) error { return apply(m)(ctx, t) })
	require.NoError(t, err)
	require.Equal(t, inbox.Applied, outcome)
	require.Equal(t, 1, effects(t, db, m))
}

// What was parked is passed by the mark at once: an old owner that is still at it cannot apply it as well.
func TestParking_OldOwnerAppliesNothingParked(t *testing.T) {
	t.Parallel()
	db, ctx, parking := database(t, 18), t.Context(), inbox.Parking{After: 2}
	m := message(1)
	old := &stalled{Pool: db.Conn, meanwhile: func() {
		outcome, err := parking.Do(ctx, db.Conn, inbox.HighWater{}, m, broken(m))
		require.NoError(t, err)
		require.Equal(t, inbox.Parked, outcome)
	}}
	outcome, err := parking.Do(ctx, old, inbox.HighWater{}, m, apply(m))
	require.NoError(t, err)
	require.Equal(t, inbox.Parked, outcome)
	require.Zero(t, effects(t, db, m))
	require.Equal(t, 2, attempts(t, db, m))
}

// A message that one consumer has failed at and another has applied meanwhile is not parked under a count of
// its next delivery: Retry could not tell.
func TestParking_AppliedMeanwhile(t *testing.T) {
	t.Parallel()
	db, ctx, parking := database(t, 18), t.Context(), inbox.Parking{After: 3}
	m := message(1)
	failing := &stalled{Pool: db.Conn, after: 1, meanwhile: func() {
		outcome, err := parking.Do(ctx, db.Conn, inbox.HighWater{}, m, apply(m))
		require.NoError(t, err)
		require.Equal(t, inbox.Applied, outcome)
		require.PanicsWithValue(t, errDied, func() {
			_, _ = parking.Do(ctx, dying{db.Conn}, inbox.HighWater{}, m, apply(m))
		})
	}}
	outcome, err := parking.Do(ctx, failing, inbox.HighWater{}, m, func(context.Context, tx.Tx) error {
		return fmt.Errorf("decode: %w", inbox.ErrPoison)
	})
	require.NoError(t, err)
	require.Equal(t, inbox.Duplicate, outcome)
	_, err = parking.Retry(ctx, db.Conn, inbox.HighWater{}, m.Consumer, m.ID,
		func(ctx context.Context, t tx.Tx, m inbox.Message) error { return apply(m)(ctx, t) })
	require.ErrorIs(t, err, inbox.ErrNotParked)
	require.Equal(t, 1, effects(t, db, m))
}

// Waiting too long for another transaction is not the message's fault.
func TestParking_LockTimeout(t *testing.T) {
	t.Parallel()
	db, ctx, m := database(t, 18), t.Context(), message(1)
	other, err := db.Conn.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = other.Rollback(context.Background()) }()
	_, err = inbox.Once(ctx, other, inbox.Table{}, m, apply(m))
	require.NoError(t, err)
	config := db.Conn.Config()
	config.ConnConfig.RuntimeParams["lock_timeout"] = "20ms"
	hasty, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	defer hasty.Close()
	outcome, err := inbox.Parking{After: 1}.Do(ctx, hasty, inbox.Table{}, m, apply(m))
	require.ErrorContains(t, err, "55P03")
	require.Equal(t, inbox.Undone, outcome)
	require.Zero(t, attempts(t, db, m))
}
