package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/idempotency"
)

func TestRetention_Validate(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	for _, good := range []idempotency.Retention{
		{}, {Keep: day}, {RetryWindow: time.Hour, Keep: time.Hour}, {RetryWindow: 7 * day}, {RetryWindow: day, Keep: 9 * day},
	} {
		require.NoError(t, good.Validate())
	}
	for _, bad := range []idempotency.Retention{
		{Keep: day - 1}, {RetryWindow: 7 * day, Keep: day}, {Keep: -1}, {RetryWindow: -1}, {Batch: -1},
	} {
		require.Error(t, bad.Validate())
		_, err := idempotency.Purge(t.Context(), nil, bad)
		require.Error(t, err)
	}
}

func TestPurge(t *testing.T) {
	t.Parallel()
	for _, compact := range []bool{false, true} {
		db := newDatabase(t, 18)
		for _, key := range []string{"old-1", "old-2", "old-3", "young"} {
			_, err := idempotency.Run(t.Context(), db.Conn, request(key), effect(key, "w"))
			require.NoError(t, err)
		}
		for _, key := range []string{"old-abandoned", "abandoned"} {
			_, _, err := idempotency.Acquire(t.Context(), db.Conn, request(key))
			require.NoError(t, err)
		}
		for _, key := range []string{"old-1", "old-2", "old-3", "old-abandoned"} {
			age(t, db, key, 25*time.Hour)
		}
		retention := idempotency.Retention{Compact: compact, Batch: 2}
		rows, err := idempotency.Purge(t.Context(), db.Conn, retention)
		require.NoError(t, err)
		require.Equal(t, int64(4), rows)
		rows, err = idempotency.Purge(t.Context(), db.Conn, retention)
		require.NoError(t, err)
		require.Zero(t, rows)

		_, err = idempotency.Run(t.Context(), db.Conn, request("abandoned"), effect("abandoned", "w"))
		require.ErrorIs(t, err, idempotency.ErrInProgress)
		again, err := idempotency.Run(t.Context(), db.Conn, request("young"), effect("young", "w"))
		require.NoError(t, err)
		require.True(t, again.Replayed)

		repeat, err := idempotency.Run(t.Context(), db.Conn, request("old-1"), effect("old-1", "w"))
		if !compact {
			require.NoError(t, err)
			require.False(t, repeat.Replayed)
			require.Equal(t, 2, effects(t, db.Conn, "old-1"), "the promise has ended with the row")
			continue
		}
		require.ErrorIs(t, err, idempotency.ErrCompacted)
		require.Equal(t, 1, effects(t, db.Conn, "old-1"))
		other := request("old-1")
		other.Hash[0]++
		_, err = idempotency.Run(t.Context(), db.Conn, other, effect("old-1", "w"))
		require.ErrorIs(t, err, idempotency.ErrMismatch)
	}
}

func TestCompactedError_Was(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, 18)
	answer := idempotency.Response{Status: 200, Body: []byte("paid")}
	work := func(context.Context, pgx.Tx) (idempotency.Response, error) { return answer, nil }
	_, err := idempotency.Run(t.Context(), db.Conn, request("k"), work)
	require.NoError(t, err)
	age(t, db, "k", 25*time.Hour)
	_, err = idempotency.Purge(t.Context(), db.Conn, idempotency.Retention{Compact: true})
	require.NoError(t, err)
	_, err = idempotency.Run(t.Context(), db.Conn, request("k"), work)
	var gone *idempotency.CompactedError
	require.ErrorAs(t, err, &gone)
	require.True(t, gone.Was(answer))
	require.False(t, gone.Was(idempotency.Response{Status: 402, Body: []byte("paid")}))
	require.WithinDuration(t, time.Now().Add(-25*time.Hour), gone.CompletedAt, time.Minute)
}

// A late owner whose key was purged in the meantime commits nothing.
func TestPurge_FencesTheOwner(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, 18)
	_, err := idempotency.Run(t.Context(), db.Conn, request("k"),
		func(ctx context.Context, tx pgx.Tx) (idempotency.Response, error) {
			age(t, db, "k", 48*time.Hour)
			rows, err := idempotency.Purge(ctx, db.Conn, idempotency.Retention{})
			require.NoError(t, err)
			require.Equal(t, int64(1), rows)
			return effect("k", "w")(ctx, tx)
		})
	require.ErrorIs(t, err, idempotency.ErrLost)
	require.Zero(t, effects(t, db.Conn, "k"))
}
