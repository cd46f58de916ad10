package consumer_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/consumer"
	"github.com/walrelay/walrelay/kit/tx"
	"github.com/walrelay/walrelay/testenv"
)

// prepare makes a database with the tables of this package and one for effects.
func prepare(t *testing.T, server *testenv.Server) *testenv.Database {
	t.Helper()
	db := server.Database(t)
	text, err := os.ReadFile("../../migrations/kit/00004_consumer.sql")
	require.NoError(t, err)
	db.Exec(t, string(text))
	db.Exec(t, string(text)) // may run again
	db.Exec(t, "CREATE TABLE effect (n bigint GENERATED ALWAYS AS IDENTITY, id text)")
	return db
}

// record is what a client might have: the topic is "t", the partition 0, the stream "s".
type record struct{ index uint32 }

func (r record) event() consumer.Event {
	at := consumer.Position{Epoch: 1, Index: r.index}
	return consumer.Event{ID: strconv.Itoa(int(r.index)), Stream: "s", Position: at}
}

func describe(r record) consumer.Record {
	e := r.event()
	return consumer.Record{Topic: "t", Headers: headers(
		pair{"id", e.ID}, pair{"walrelay-stream", e.Stream}, pair{"walrelay-position", e.Position.String()})}
}

func insert(ctx context.Context, db pgx.Tx, _ record, e consumer.Event) error {
	_, err := db.Exec(ctx, "INSERT INTO effect (id) VALUES ($1)", e.ID)
	return err
}

func records(from, to uint32) (all []record) {
	for i := from; i <= to; i++ {
		all = append(all, record{i})
	}
	return all
}

func effects(t *testing.T, db *testenv.Database) (ids []string) {
	t.Helper()
	require.NoError(t, db.QueryRow(t, "SELECT array_agg(id ORDER BY n) FROM effect").Scan(&ids))
	return ids
}

func TestMarks_InMemory(t *testing.T) {
	t.Parallel()
	marks := consumer.NewMarks("c")
	batch := marks.Batch()
	require.True(t, batch.Pass("t", 0, record{2}.event()))
	require.False(t, batch.Pass("t", 0, record{2}.event()), "repeated in the batch")
	require.False(t, batch.Pass("t", 0, record{1}.event()))
	require.True(t, batch.Pass("t", 1, record{1}.event()), "another partition")
	require.True(t, batch.Pass("u", 0, record{1}.event()), "another topic")
	other := record{1}.event()
	other.Stream = "other"
	require.True(t, batch.Pass("t", 0, other), "another stream")
	replay := consumer.Event{ID: "1", Stream: "s", Replay: true}
	require.True(t, batch.Pass("t", 0, replay))
	require.True(t, marks.Batch().Pass("t", 0, record{2}.event()), "not done")
	batch.Done()
	require.False(t, marks.Batch().Pass("t", 0, record{2}.event()))
	require.True(t, marks.Batch().Pass("t", 0, record{3}.event()))
	marks.Forget("t", 0)
	require.True(t, marks.Batch().Pass("t", 0, record{1}.event()))
	require.False(t, marks.Batch().Pass("t", 1, record{1}.event()))
}

func TestProcess(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		db := prepare(t, testenv.Postgres(t, major))
		marks := consumer.NewMarks("c")
		process := func(all []record, apply func(context.Context, pgx.Tx, record, consumer.Event) error) error {
			return consumer.Process(t.Context(), db.Conn, marks, all, describe, apply)
		}
		require.NoError(t, process(nil, insert))
		require.NoError(t, process(records(1, 3), insert))
		require.NoError(t, process(records(2, 4), insert))
		boom := errors.New("boom")
		require.ErrorIs(t, process(records(5, 6), func(ctx context.Context, db pgx.Tx, r record, e consumer.Event) error {
			return errors.Join(insert(ctx, db, r, e), boom)
		}), boom)
		require.NoError(t, process(records(4, 6), insert))
		require.Equal(t, []string{"1", "2", "3", "4", "5", "6"}, effects(t, db))

		// A new process begins where this one was committed.
		marks = consumer.NewMarks("c")
		require.ErrorIs(t, process(records(6, 7), insert), consumer.ErrStale, "was not loaded")
		require.NoError(t, marks.Load(t.Context(), db.Conn, "t", 0, 1))
		require.NoError(t, process(records(6, 7), insert))
		require.Equal(t, []string{"1", "2", "3", "4", "5", "6", "7"}, effects(t, db))
		// Another consumer has marks of its own.
		marks = consumer.NewMarks("other")
		require.NoError(t, marks.Load(t.Context(), db.Conn, "t", 0))
		require.NoError(t, process(records(7, 7), insert))
		require.Len(t, effects(t, db), 8)
	})
}

// The partition has moved; its old owner is behind the new one in commits but ahead in positions.
func TestProcess_Zombie(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	owner := func() *consumer.Marks {
		marks := consumer.NewMarks("c")
		require.NoError(t, marks.Load(t.Context(), db.Conn, "t", 0))
		return marks
	}
	process := func(marks *consumer.Marks, all []record) error {
		return consumer.Process(t.Context(), db.Conn, marks, all, describe, insert)
	}
	first := owner()
	zombie := owner()
	require.ErrorIs(t, consumer.Process(t.Context(), db.Conn, zombie, records(1, 5), describe,
		func(ctx context.Context, tx pgx.Tx, r record, e consumer.Event) error {
			if r.index == 3 { // the other one commits in the midst of this batch
				require.NoError(t, process(first, records(1, 2)))
			}
			return insert(ctx, tx, r, e)
		}), consumer.ErrStale)
	require.Equal(t, []string{"1", "2"}, effects(t, db))

	zombie = owner()
	require.NoError(t, process(first, records(3, 4)))
	require.ErrorIs(t, process(zombie, records(3, 9)), consumer.ErrStale)
	require.NoError(t, zombie.Load(t.Context(), db.Conn, "t", 0))
	require.NoError(t, process(zombie, records(3, 6)))
	require.Equal(t, []string{"1", "2", "3", "4", "5", "6"}, effects(t, db))
}

// Steps of one's own, as with database/sql.
func TestBatch_ThroughDatabaseSQL(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	handle := tx.Std(db.Standard(t))
	marks := consumer.NewMarks("c")
	require.NoError(t, marks.Load(t.Context(), handle, "t", 0))
	for i := range uint32(2) {
		batch := marks.Batch()
		require.True(t, batch.Pass("t", 0, record{i + 1}.event()))
		require.NoError(t, batch.Save(t.Context(), handle))
		batch.Done()
	}
	require.NoError(t, marks.Load(t.Context(), handle, "t", 0))
	require.False(t, marks.Batch().Pass("t", 0, record{2}.event()))
	require.True(t, marks.Batch().Pass("t", 0, record{3}.event()))
}

func TestPurge(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	for _, name := range []string{"old", "new"} {
		batch := consumer.NewMarks(name).Batch()
		batch.Pass("t", 0, record{1}.event())
		require.NoError(t, batch.Save(t.Context(), db.Conn))
	}
	db.Exec(t, "UPDATE walrelay_kit.consumer_positions SET updated_at = now() - interval '9 days' WHERE consumer = 'old'")
	removed, err := consumer.Purge(t.Context(), db.Conn, 8*24*time.Hour)
	require.NoError(t, err)
	require.EqualValues(t, 1, removed)
	_, err = consumer.Purge(t.Context(), db.Conn, 0)
	require.ErrorIs(t, err, consumer.ErrDuration)
}
