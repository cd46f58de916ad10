package cdc

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/testenv"
)

// exactlyOnce returns a stream on PostgreSQL 18 whose delivery is exactly once.
func exactlyOnce(t *testing.T) (*testenv.Database, *Config) {
	t.Helper()
	t.Parallel()
	db, cfg := newStream(t, 18)
	cfg.Delivery = ExactlyOnce
	return db, cfg
}

func insert(t *testing.T, db *testenv.Database, ids ...int) {
	t.Helper()
	db.Exec(t, "INSERT INTO events SELECT unnest($1::int[]), 'a', 'k', 'p'", ids)
}

// hold is a sink's publish that acknowledges nothing.
func hold(checkpoint.Run, uint64, *decoder.Event) {}

func TestExactlyOnce_ConfirmsWhatAStateCovers(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		cfg.Delivery = ExactlyOnce
		r := start(t, db, cfg, &scripted{silent: true})
		r.state(StateStreaming)
		insert(t, db, 1)
		end := r.end("1")
		r.until(func() bool { return r.stream.Status().Frontier >= end })
		r.rounds()
		slot, registry := r.confirmed()
		require.Less(t, slot, end)
		require.Less(t, registry, end)

		r.sink.run().Mailbox.Reach(end)
		r.until(func() bool { slot, _ := r.confirmed(); return slot == end })
		r.rounds()
		slot, registry = r.confirmed()
		require.Equal(t, []pglogrepl.LSN{end, end}, []pglogrepl.LSN{slot, registry})
		r.stopped()
	})
}

func TestExactlyOnce_StateAheadOfTheEvents(t *testing.T) {
	db, cfg := exactlyOnce(t)
	sink := &scripted{silent: true, publish: hold}
	r := start(t, db, cfg, sink)
	r.state(StateStreaming)
	insert(t, db, 1)
	end := r.end("1")
	sink.run().Mailbox.Reach(end + 1<<20)
	r.rounds()
	slot, _ := r.confirmed()
	require.Less(t, slot, end)

	sink.run().Mailbox.Settle([]uint64{1})
	r.until(func() bool { slot, _ := r.confirmed(); return slot >= end })
	r.stopped()
}

func TestAtLeastOnce_NeedsNoState(t *testing.T) {
	t.Parallel()
	db, cfg := newStream(t, 18)
	r := start(t, db, cfg, &scripted{silent: true})
	r.state(StateStreaming)
	insert(t, db, 1)
	end := r.end("1")
	r.until(func() bool { slot, _ := r.confirmed(); return slot >= end })
	require.Zero(t, origin(t, db))
	r.stopped()
}

func TestExactlyOnce_DrainWaitsForTheState(t *testing.T) {
	db, cfg := exactlyOnce(t)
	r := start(t, db, cfg, &scripted{silent: true})
	r.state(StateStreaming)
	insert(t, db, 1)
	end := r.end("1")
	r.until(func() bool { return r.stream.Status().Frontier >= end })
	r.stop()
	r.state(StateDraining)
	r.sink.run().Mailbox.Reach(end)
	require.NoError(t, r.ended())
	slot, registry := r.confirmed()
	require.Equal(t, []pglogrepl.LSN{end, end}, []pglogrepl.LSN{slot, registry})

	again := start(t, db, cfg, &scripted{})
	again.state(StateStreaming)
	insert(t, db, 2)
	again.published("2")
	again.stopped()
}

func TestExactlyOnce_ContradictionIsFatal(t *testing.T) {
	db, cfg := exactlyOnce(t)
	r := start(t, db, cfg, &scripted{begin: func(checkpoint.Run) error {
		return fmt.Errorf("begin: %w", &checkpoint.StateError{Problem: "the state is of another line", Remedy: "run this"})
	}})
	fatal(t, r.ended(), `stream "orders": the state is of another line`, "to go on: run this")
	runs, _, _, _ := r.sink.snapshot()
	require.Equal(t, 1, runs)
	require.Zero(t, origin(t, db))
}

func TestExactlyOnce_EpochBehindIsRaised(t *testing.T) {
	db, cfg := exactlyOnce(t)
	cfg.BackoffMin, cfg.BackoffMax = time.Hour, time.Hour // the next attempt comes at once
	sink := &scripted{begin: func(run checkpoint.Run) error {
		if run.Line.Epoch <= 7 {
			return fmt.Errorf("begin: %w", &checkpoint.EpochBehindError{Found: 7})
		}
		return nil
	}}
	r := start(t, db, cfg, sink)
	r.state(StateStreaming)
	runs, _, _, _ := sink.snapshot()
	require.Equal(t, 2, runs)
	require.EqualValues(t, 8, sink.run().Line.Epoch)
	require.Zero(t, sink.run().Line.Origin)
	require.EqualValues(t, 8, origin(t, db))
	r.stopped()
}

func TestExactlyOnce_OriginIsRecordedOnce(t *testing.T) {
	db, cfg := exactlyOnce(t)
	id := 0
	// publish streams one row and returns the run's line, and what was recorded when the row came.
	publish := func() (line checkpoint.Line, recorded uint32) {
		var read error
		sink := &scripted{publish: func(run checkpoint.Run, seq uint64, _ *decoder.Event) {
			read = db.Conn.QueryRow(t.Context(), "SELECT coalesce(state_epoch, 0) FROM walrelay.streams").Scan(&recorded)
			run.Mailbox.Settle([]uint64{seq})
		}}
		r := start(t, db, cfg, sink)
		r.state(StateStreaming)
		id++
		insert(t, db, id)
		r.published(fmt.Sprint(id))
		r.stopped()
		require.NoError(t, read)
		return sink.run().Line, recorded
	}
	type epochs struct{ Epoch, Origin, Recorded uint32 }
	step := func(want epochs) {
		t.Helper()
		line, recorded := publish()
		require.Equal(t, want, epochs{line.Epoch, line.Origin, recorded})
		require.Equal(t, cfg.Slot, line.Slot)
		require.Equal(t, cfg.Routing, line.Routing)
		require.EqualValues(t, 1, line.Timeline)
		require.NotZero(t, line.Confirmed)
		left, ok := line.Left(1)
		require.True(t, ok)
		require.GreaterOrEqual(t, left, line.Confirmed)
		_, ok = line.Left(2)
		require.False(t, ok)
	}
	step(epochs{1, 0, 1})
	step(epochs{1, 1, 1})
	cfg.Routing = "r2"
	step(epochs{2, 1, 1})
	cfg.Delivery = AtLeastOnce
	step(epochs{3, 0, 0})
	step(epochs{3, 0, 0})
	cfg.Delivery = ExactlyOnce
	step(epochs{4, 0, 4})
	cfg.Delivery, cfg.Routing = AtLeastOnce, "r3"
	step(epochs{5, 0, 0})
	cfg.Delivery = ExactlyOnce
	step(epochs{6, 0, 6})
	begun, err := dial(t, cfg).Registry().NewEpoch(t.Context())
	require.NoError(t, err)
	require.Zero(t, origin(t, db))
	step(epochs{begun.Epoch, 0, begun.Epoch})
}

func TestRegistry_OriginOfAnotherEpoch(t *testing.T) {
	db, cfg := exactlyOnce(t)
	register(t, cfg)
	r := dial(t, cfg).Registry()
	require.ErrorContains(t, r.recordOrigin(t.Context(), 2), "not at epoch 2")
	require.Zero(t, origin(t, db))
	epoch, err := r.raiseEpochAbove(t.Context(), 0) // it is above already: still a new one
	require.NoError(t, err)
	require.EqualValues(t, 2, epoch)
	require.NoError(t, r.recordOrigin(t.Context(), 2))
	sum, err := r.Summary(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, sum.Origin)
}

func TestRecordedPoisonReachesTheSink(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{AtLeastOnce, ExactlyOnce} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			db, cfg := newStream(t, 18)
			cfg.Delivery = delivery
			sink := &scripted{publish: func(run checkpoint.Run, seq uint64, ev *decoder.Event) {
				run.Mailbox.PutPoison(checkpoint.Poison{
					Seq: seq, Position: ev.Position, EventID: string(ev.ID), Table: ev.Mapping.Name(), Reason: "test",
					Action: checkpoint.Skipped,
				})
			}}
			r := start(t, db, cfg, sink)
			r.state(StateStreaming)
			insert(t, db, 1)
			end := r.end("1")
			r.until(func() bool { _, _, _, recorded := sink.snapshot(); return len(recorded) == 1 })
			sum, err := dial(t, cfg).Registry().Summary(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 1, sum.DeadLetters[checkpoint.Skipped])
			r.until(func() bool { slot, _ := r.confirmed(); return slot >= end })
			r.stopped()
			_, _, _, recorded := sink.snapshot()
			require.Equal(t, []uint64{1}, recorded)
		})
	}
}

// What precedes the stuck event in its transaction is not sent, and so stays unsettled.
func TestExactlyOnce_StuckWithinATransaction(t *testing.T) {
	db, cfg := exactlyOnce(t)
	sink := &scripted{publish: func(run checkpoint.Run, seq uint64, ev *decoder.Event) {
		_, decided := run.Verdicts[ev.Position]
		switch id := string(ev.ID); {
		case id == "1", len(run.Verdicts) > 0 && !decided:
			run.Mailbox.Settle([]uint64{seq})
		case id == "3" || decided:
			poison := checkpoint.Poison{
				Seq: seq, Position: ev.Position, EventID: id, Table: ev.Mapping.Name(), Reason: "test",
				Action: checkpoint.Stopped,
			}
			if decided {
				poison.Action = checkpoint.Skipped
			}
			run.Mailbox.PutPoison(poison)
		}
	}}
	r := start(t, db, cfg, sink)
	r.state(StateStreaming)
	insert(t, db, 1)
	end := r.end("1")
	insert(t, db, 2, 3)
	r.published("1", "2", "3")
	r.state(StateStuck)
	r.stopped()
	slot, registry := r.confirmed()
	require.GreaterOrEqual(t, slot, end)
	require.Equal(t, slot, registry)

	sink.published = nil
	r = start(t, db, cfg, sink)
	r.published("2", "3")
	r.state(StateStuck)
	position := r.stream.Status().Stuck.Position
	runs, _, _, _ := sink.snapshot()
	require.NoError(t, dial(t, cfg).Registry().Release(t.Context(), position, checkpoint.VerdictSkip))
	r.until(func() bool { now, _, _, _ := sink.snapshot(); return now > runs })
	r.published("2", "3", "2", "3")
	r.until(func() bool { slot, _ := r.confirmed(); return slot > position.LSN })
	r.stopped()
}

func TestExactlyOnce_PartitionsChangedWithinATransaction(t *testing.T) {
	db, cfg := exactlyOnce(t)
	changed := &checkpoint.PartitionsChangedError{Partitions: checkpoint.Partitions{Topic: "a", Count: 6}, Recorded: 3}
	sink := &scripted{publish: func(run checkpoint.Run, seq uint64, ev *decoder.Event) {
		switch id := string(ev.ID); {
		case id == "1" || run.Partitions["a"] == 6:
			run.Mailbox.Settle([]uint64{seq})
		case id == "3":
			run.Mailbox.Fail(changed)
		}
	}}
	r := start(t, db, cfg, sink)
	r.state(StateStreaming)
	insert(t, db, 1)
	r.end("1")
	insert(t, db, 2, 3)
	r.published("1", "2", "3", "2", "3") // the farewell has confirmed the first
	line := sink.run().Line
	require.EqualValues(t, 2, line.Epoch)
	require.EqualValues(t, 1, line.Origin)
	r.stopped()
}

// The origin cannot be recorded: nothing is published, and the next attempt finds out.
func TestExactlyOnce_NothingIsPublishedBeforeTheOrigin(t *testing.T) {
	db, cfg := exactlyOnce(t)
	register(t, cfg)
	insert(t, db, 1)
	db.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE OF state_epoch ON walrelay.streams
		FOR EACH ROW WHEN (NEW.state_epoch IS NOT NULL) EXECUTE FUNCTION refuse()`)
	sink := &scripted{}
	r := start(t, db, cfg, sink)
	r.until(func() bool { return r.stream.Status().Errors["postgres"] > 1 })
	_, published, _, _ := sink.snapshot()
	require.Empty(t, published)
	require.Contains(t, r.stream.Status().LastError, "record state epoch")
	db.Exec(t, "DROP TRIGGER refuse ON walrelay.streams")
	r.published("1")
	r.stopped()
}
