package inbox_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/kit/inbox"
	"github.com/walrelay/walrelay/kit/tx"
)

// Whatever is not above the mark is a repetition, in whichever part of the position they differ.
func TestHighWater_Order(t *testing.T) {
	t.Parallel()
	db, ctx := database(t, 18), t.Context()
	m := message(0)
	for _, c := range []struct {
		position inbox.Position
		want     inbox.Outcome
	}{
		{"00000001-00000001-00000000000000FF-00000000", inbox.Applied},
		{"00000001-00000001-00000000000000FF-00000000", inbox.Duplicate},
		{"00000001-00000001-00000000000000FF-00000001", inbox.Applied},
		{"00000001-00000001-0000000000000100-00000000", inbox.Applied},
		{"00000001-00000001-00000000000000FF-00000002", inbox.Duplicate}, // of a zombie
		{"00000001-00000001-000000000000A000-00000000", inbox.Applied},
		{"00000001-00000001-0000000000009000-00000000", inbox.Duplicate}, // digits before letters
		{"00000001-00000002-0000000000000001-00000000", inbox.Applied},   // a promotion
		{"00000001-00000001-FFFFFFFFFFFFFFFF-00000000", inbox.Duplicate},
		{"00000002-00000001-0000000000000001-00000000", inbox.Applied}, // a new epoch
	} {
		m.Position = c.position
		outcome, err := inbox.Do(ctx, db.Conn, inbox.HighWater{}, m, apply(m))
		require.NoError(t, err)
		require.Equal(t, c.want, outcome, c.position)
	}
	require.Equal(t, 6, effects(t, db, m))

	m.Position = "00000001-00000001-0000000000000001-00000000"
	for _, other := range []func(m *inbox.Message){
		func(m *inbox.Message) { m.Consumer = "audit" },
		func(m *inbox.Message) { m.Stream = "other" },
		func(m *inbox.Message) { m.Topic = "other" },
		func(m *inbox.Message) { m.Partition++ },
	} {
		m := m
		other(&m)
		outcome, err := inbox.Do(ctx, db.Conn, inbox.HighWater{}, m, apply(m))
		require.NoError(t, err)
		require.Equal(t, inbox.Applied, outcome, "a mark of its own")
	}
	var rows int
	require.NoError(t, db.QueryRow(t, "SELECT count(*) FROM walrelay_kit.inbox_marks").Scan(&rows))
	require.Equal(t, 5, rows, "one a partition")

	gone, err := inbox.HighWater{}.Forget(ctx, db.Conn, "billing", "shop")
	require.NoError(t, err)
	require.EqualValues(t, 3, gone)
	outcome, err := inbox.Do(ctx, db.Conn, inbox.HighWater{}, m, apply(m))
	require.NoError(t, err)
	require.Equal(t, inbox.Applied, outcome)
}

// A record without a position is not taken for a repetition, nor for a new one.
func TestHighWater_Refuses(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	m := message(0)
	for position, want := range map[inbox.Position]error{
		"": inbox.ErrNoPosition,
		inbox.Position(checkpoint.Position{}.String()):      inbox.ErrNoPosition,
		inbox.Position(strings.ToLower(string(m.Position))): inbox.ErrPosition,
		m.Position[:42]:       inbox.ErrPosition,
		m.Position + "0":      inbox.ErrPosition,
		"0" + m.Position[:42]: inbox.ErrPosition,
	} {
		m.Position = position
		outcome, err := inbox.Do(t.Context(), db.Conn, inbox.HighWater{}, m, apply(m))
		require.ErrorIs(t, err, want, position)
		require.Equal(t, inbox.Undone, outcome)
	}
	require.NoError(t, inbox.Position(checkpoint.Position{Epoch: 1, LSN: 0xABCDEF}.String()).Validate())

	// Those who write the table with other languages are held to the same.
	var collation string
	require.NoError(t, db.QueryRow(t, `SELECT collation_name FROM information_schema.columns
		WHERE table_schema = 'walrelay_kit' AND table_name = 'inbox_marks' AND column_name = 'position'`).Scan(&collation))
	require.Equal(t, "C", collation)
	_, err := db.Conn.Exec(t.Context(), `INSERT INTO walrelay_kit.inbox_marks
		(consumer, stream, topic, partition, position) VALUES ('a', 'a', 'a', 0, $1)`,
		strings.ToLower(string(message(0).Position)))
	require.ErrorContains(t, err, "inbox_marks_position_check")
}

// An old owner of the partition and the new one apply the same batch: one of them does.
func TestHighWater_ZombieBatch(t *testing.T) {
	t.Parallel()
	db, ctx := database(t, 18), t.Context()
	batch := func(last int) func(ctx context.Context, t tx.Tx) (applied int, err error) {
		return func(ctx context.Context, t tx.Tx) (applied int, err error) {
			for n := range last {
				outcome, err := inbox.Once(ctx, t, inbox.HighWater{}, message(n), apply(message(n)))
				if err != nil {
					return 0, err
				}
				if outcome == inbox.Applied {
					applied++
				}
			}
			return applied, nil
		}
	}
	zombie, err := db.Conn.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = zombie.Rollback(ctx) }()
	applied, err := batch(10)(ctx, zombie)
	require.NoError(t, err)
	require.Equal(t, 10, applied)
	done := make(chan int, 1) // the goroutine's only answer
	go func() {
		owner, err := db.Conn.Begin(ctx)
		if err != nil {
			t.Error(err)
			done <- 0
			return
		}
		applied, err := batch(12)(ctx, owner)
		if err != nil {
			t.Error(err)
		}
		if err := owner.Commit(ctx); err != nil {
			t.Error(err)
		}
		done <- applied
	}()
	require.NoError(t, zombie.Commit(ctx))
	require.Equal(t, 2, <-done)
	for n := range 12 {
		require.Equal(t, 1, effects(t, db, message(n)))
	}
}
