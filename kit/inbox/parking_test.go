package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/inbox"
	"github.com/walrelay/walrelay/kit/tx"
	"github.com/walrelay/walrelay/testenv"
)

var errBroken = errors.New("broken")

func broken(m inbox.Message) inbox.Effect {
	return func(ctx context.Context, t tx.Tx) error { return errors.Join(apply(m)(ctx, t), errBroken) }
}

func attempts(t *testing.T, db *testenv.Database, m inbox.Message) (n int) {
	t.Helper()
	err := db.QueryRow(t, "SELECT attempts FROM walrelay_kit.inbox_attempts WHERE message_id = $1", m.ID).Scan(&n)
	if errors.Is(err, pgx.ErrNoRows) {
		return -1
	}
	require.NoError(t, err)
	return n
}

func TestParking_Do(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		db, ctx, parking := database(t, major), t.Context(), inbox.Parking{After: 3}
		forRecorders(t, func(t *testing.T, r inbox.Recorder, message func(n int) inbox.Message) {
			m := message(1)
			m.Body = []byte("\x00body")
			for n := 1; n < 3; n++ {
				outcome, err := parking.Do(ctx, db.Conn, r, m, broken(m))
				require.ErrorIs(t, err, errBroken)
				require.Equal(t, inbox.Undone, outcome)
				require.Equal(t, n, attempts(t, db, m))
			}
			for range 3 {
				outcome, err := parking.Do(ctx, db.Conn, r, m, broken(m))
				require.NoError(t, err)
				require.Equal(t, inbox.Parked, outcome)
				require.Equal(t, 3, attempts(t, db, m))
			}
			next := message(2)
			for _, want := range []inbox.Outcome{inbox.Applied, inbox.Duplicate} {
				outcome, err := parking.Do(ctx, db.Conn, r, next, apply(next))
				require.NoError(t, err)
				require.Equal(t, want, outcome)
				require.Equal(t, -1, attempts(t, db, next), "no count is left")
			}

			// It fails once more, and then it is applied, once, with all that it had.
			retry := func(effect inbox.Effect) (got inbox.Message, outcome inbox.Outcome, err error) {
				outcome, err = parking.Retry(ctx, db.Conn, r, m.Consumer, m.ID,
					func(ctx context.Context, t tx.Tx, m inbox.Message) error {
						got = m
						return effect(ctx, t)
					})
				return got, outcome, err
			}
			_, outcome, err := retry(broken(m))
			require.ErrorIs(t, err, errBroken)
			require.Equal(t, inbox.Undone, outcome)
			require.Equal(t, 4, attempts(t, db, m))
			got, outcome, err := retry(apply(m))
			require.NoError(t, err)
			require.Equal(t, inbox.Applied, outcome)
			require.WithinDuration(t, m.Time, got.Time, 0)
			got.Time = m.Time
			require.Equal(t, m, got)
			_, outcome, err = retry(apply(m))
			require.ErrorIs(t, err, inbox.ErrNotParked)
			require.Equal(t, inbox.Undone, outcome)
			outcome, err = parking.Do(ctx, db.Conn, r, m, apply(m))
			require.NoError(t, err)
			require.Equal(t, inbox.Duplicate, outcome)
			require.Equal(t, 1, effects(t, db, m))
		})
	})
}

// dying is a database of a consumer that dies in its transaction: it says nothing to the server any more.
type dying struct{ *pgxpool.Pool }

var errDied = errors.New("died")

func (d dying) BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error) { panic(errDied) }

// A message that kills its consumer is counted all the same.
func TestParking_Crash(t *testing.T) {
	t.Parallel()
	db, ctx, parking := database(t, 18), t.Context(), inbox.Parking{After: 2}
	forRecorders(t, func(t *testing.T, r inbox.Recorder, message func(n int) inbox.Message) {
		m, applied := message(2), message(1)
		outcome, err := inbox.Do(ctx, db.Conn, r, applied, apply(applied))
		require.NoError(t, err)
		require.Equal(t, inbox.Applied, outcome)
		for _, m := range []inbox.Message{m, applied} {
			for range 2 {
				require.PanicsWithValue(t, errDied, func() {
					_, _ = parking.Do(ctx, dying{db.Conn}, r, m, apply(m))
				})
			}
		}
		outcome, err = parking.Do(ctx, db.Conn, r, applied, apply(applied))
		require.NoError(t, err)
		require.Equal(t, inbox.Duplicate, outcome, "a duplicate is never parked")
		require.Equal(t, 1, effects(t, db, applied))
		outcome, err = parking.Do(ctx, db.Conn, r, m, apply(m))
		require.NoError(t, err)
		require.Equal(t, inbox.Parked, outcome)
		require.Zero(t, effects(t, db, m))
	})
}

// A connection that is killed in the effect counts: the message may be what kills it.
func TestParking_Killed(t *testing.T) {
	t.Parallel()
	db, ctx, m := database(t, 18), t.Context(), message(1)
	outcome, err := inbox.Parking{After: 1}.Do(ctx, db.Conn, inbox.Table{}, m, func(ctx context.Context, t tx.Tx) error {
		_, err := t.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
		return err
	})
	require.NoError(t, err)
	require.Equal(t, inbox.Parked, outcome)
	parked, err := inbox.Parking{}.List(ctx, db.Conn, m.Consumer, 10)
	require.NoError(t, err)
	require.Len(t, parked, 1)
	require.Contains(t, parked[0].Reason, "57P01")
}

func TestParking_WhatCounts(t *testing.T) {
	t.Parallel()
	db, parking := database(t, 18), inbox.Parking{After: 2}
	run := func(m inbox.Message, effect inbox.Effect) (inbox.Outcome, error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		return parking.Do(ctx, db.Conn, inbox.Table{}, m, func(ctx context.Context, t tx.Tx) error {
			if effect == nil {
				cancel()
				return ctx.Err()
			}
			return effect(ctx, t)
		})
	}
	m := message(1)
	for range 3 {
		_, err := run(m, nil)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, attempts(t, db, m), "the consumer was stopped")
		_, err = run(m, func(context.Context, tx.Tx) error { return fmt.Errorf("call bank: %w", inbox.ErrTransient) })
		require.ErrorIs(t, err, inbox.ErrTransient)
		require.Zero(t, attempts(t, db, m))
	}
	outcome, err := run(m, apply(m))
	require.NoError(t, err)
	require.Equal(t, inbox.Applied, outcome)

	m = message(2)
	outcome, err = run(m, func(context.Context, tx.Tx) error {
		return fmt.Errorf("decode \x00%s: %w", strings.Repeat("ä", 2000), inbox.ErrPoison)
	})
	require.NoError(t, err)
	require.Equal(t, inbox.Parked, outcome, "at once")
	require.Equal(t, 1, attempts(t, db, m))

	m = message(3)
	m.Time = time.Now().Add(100 * day)
	for range 3 {
		_, err = parking.Do(t.Context(), db.Conn, partitions(), m, apply(m))
		require.ErrorIs(t, err, inbox.ErrNoPartition)
		require.Zero(t, attempts(t, db, m))
	}
	_, err = inbox.Parking{}.Do(t.Context(), db.Conn, inbox.Table{}, m, apply(m))
	require.ErrorIs(t, err, inbox.ErrAttempts)
}

func TestParking_ReleaseAndDiscard(t *testing.T) {
	t.Parallel()
	db, ctx, parking := database(t, 18), t.Context(), inbox.Parking{After: 1}
	park := func(m inbox.Message) {
		outcome, err := parking.Do(ctx, db.Conn, inbox.Table{}, m, broken(m))
		require.NoError(t, err)
		require.Equal(t, inbox.Parked, outcome)
	}
	hook := inbox.Webhook("stripe", "evt_1", []byte("{}"))
	park(hook)
	require.NoError(t, parking.Release(ctx, db.Conn, hook.Consumer, hook.ID))
	require.ErrorIs(t, parking.Release(ctx, db.Conn, hook.Consumer, hook.ID), inbox.ErrNotParked)
	outcome, err := parking.Do(ctx, db.Conn, inbox.Table{}, hook, apply(hook))
	require.NoError(t, err)
	require.Equal(t, inbox.Applied, outcome)

	m := message(1)
	park(m)
	require.ErrorIs(t, parking.Release(ctx, db.Conn, m.Consumer, m.ID), inbox.ErrPassed)
	require.NoError(t, parking.Discard(ctx, db.Conn, inbox.Table{}, m.Consumer, m.ID))
	require.ErrorIs(t, parking.Discard(ctx, db.Conn, inbox.Table{}, m.Consumer, m.ID), inbox.ErrNotParked)
	outcome, err = parking.Do(ctx, db.Conn, inbox.Table{}, m, apply(m))
	require.NoError(t, err)
	require.Equal(t, inbox.Duplicate, outcome)
	require.Zero(t, effects(t, db, m))

	old := message(2)
	old.Time = time.Now().Add(-100 * day)
	outcome, err = parking.Do(ctx, db.Conn, partitions(), old, apply(old))
	require.NoError(t, err)
	require.Equal(t, inbox.Parked, outcome)
	require.ErrorIs(t, parking.Discard(ctx, db.Conn, partitions(), old.Consumer, old.ID), inbox.ErrTooOld)
	require.NoError(t, parking.Discard(ctx, db.Conn, nil, old.Consumer, old.ID))
	require.Equal(t, -1, attempts(t, db, old))
}

// Parked messages stay, counts of messages that never came again go.
func TestParking_Expire(t *testing.T) {
	t.Parallel()
	db, ctx := database(t, 18), t.Context()
	db.Exec(t, `INSERT INTO walrelay_kit.inbox_attempts (consumer, message_id, attempts, started_at, parked_at, reason)
		VALUES ('a', 'old', 1, now() - interval '3 days', NULL, NULL), ('a', 'new', 1, now(), NULL, NULL),
			('a', 'parked', 1, now() - interval '3 days', now() - interval '3 days', 'broken')`)
	deleted, err := inbox.Parking{}.Expire(ctx, db.Conn, keep(2, day).Retention, 10)
	require.NoError(t, err)
	require.EqualValues(t, 1, deleted)
	require.Equal(t, -1, attempts(t, db, inbox.Message{ID: "old"}))
	require.Equal(t, 1, attempts(t, db, inbox.Message{ID: "parked"}))
}
