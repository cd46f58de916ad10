package cdc

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
)

func TestRegistry_Pause(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		_, cfg := newStream(t, major)
		r := dial(t, cfg).Registry()
		fatal(t, r.Pause(t.Context(), "me", ""), `stream "orders": is not registered`)
		fatal(t, r.Resume(t.Context()), `stream "orders": is not registered`)
		pause, err := r.Paused(t.Context())
		require.NoError(t, err)
		require.Nil(t, pause)

		register(t, cfg)
		fatal(t, r.Of("others").Pause(t.Context(), "me", ""), `stream "others": is not registered`)
		require.NoError(t, r.Resume(t.Context())) // is no fault
		require.NoError(t, r.Pause(t.Context(), "me", "first"))
		first, err := r.Paused(t.Context())
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), first.Since, time.Minute)
		require.NoError(t, r.Pause(t.Context(), "you", ""))
		second, err := r.Paused(t.Context())
		require.NoError(t, err)
		require.Equal(t, &Pause{Since: first.Since, By: "you"}, second)
		require.Equal(t, "paused since "+first.Since.UTC().Format(time.RFC3339)+" by you", second.String())
		require.NoError(t, r.Resume(t.Context()))
		pause, err = r.Paused(t.Context())
		require.NoError(t, err)
		require.Nil(t, pause)
	})
}

// A stream that is paused confirms what it has delivered, and delivers the rest once it is resumed.
func TestStream_Pause(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		r := start(t, db, cfg, &scripted{})
		r.state(StateStreaming)
		insert(t, db, 1)
		end := r.end("1")
		registry := dial(t, cfg).Registry()
		require.NoError(t, registry.Pause(t.Context(), "me", "a test"))
		r.state(StatePaused)
		require.Contains(t, r.stream.Status().Reason, " by me: a test")
		slot, recorded := r.confirmed()
		require.GreaterOrEqual(t, slot, end)
		require.Equal(t, slot, recorded)
		require.Zero(t, slotOf(t, dial(t, cfg)).ActivePID)

		insert(t, db, 2)
		r.rounds()
		again := start(t, db, cfg, &scripted{}) // finds it paused at the start
		again.state(StatePaused)
		again.rounds()
		again.stopped()
		runs, _, _, _ := again.sink.snapshot()
		require.Zero(t, runs)
		r.published("1")

		require.NoError(t, registry.Resume(t.Context()))
		r.published("1", "2")
		require.Equal(t, 1, r.sink.ends)
		r.stopped()
	})
}

// An outage of the brokers holds a pause up for the shutdown time, or at the start not at all.
func TestStream_PauseWithoutBrokers(t *testing.T) {
	t.Parallel()
	db, cfg := newStream(t, 18)
	cfg.ShutdownTimeout = 100 * time.Millisecond
	r := start(t, db, cfg, &scripted{publish: hold})
	r.state(StateStreaming)
	insert(t, db, 1)
	r.published("1")
	registry := dial(t, cfg).Registry()
	require.NoError(t, registry.Pause(t.Context(), "me", ""))
	r.state(StatePaused)
	r.stopped()

	away := start(t, db, cfg, &scripted{begin: func(checkpoint.Run) error { return errSink }})
	away.state(StatePaused)
	require.NoError(t, registry.Resume(t.Context()))
	away.state(StateConnecting)
	require.NoError(t, registry.Pause(t.Context(), "me", ""))
	away.state(StatePaused)
	away.stopped()

	require.NoError(t, registry.Resume(t.Context()))
	back := start(t, db, cfg, &scripted{})
	back.published("1")
	back.stopped()
}

// unfinished is a backfill that comes to no end, but for its second attempt.
type unfinished struct{ runs int }

func (*unfinished) Plan(context.Context) error { return nil }

func (b *unfinished) Due(context.Context) (bool, error) { return b.runs < 2, nil }

func (b *unfinished) Run(ctx context.Context, _ string, _ func(done, total int64)) error {
	if b.runs++; b.runs == 2 {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// A backfill may take hours: it rests too.
func TestStream_PauseDuringABackfill(t *testing.T) {
	t.Parallel()
	db, cfg := newStream(t, 18)
	backfill := &unfinished{}
	cfg.Backfill = backfill
	r := start(t, db, cfg, &scripted{})
	r.state(StateBackfilling)
	registry := dial(t, cfg).Registry()
	require.NoError(t, registry.Pause(t.Context(), "me", ""))
	r.state(StatePaused)
	require.NoError(t, registry.Resume(t.Context()))
	r.state(StateStreaming)
	r.stopped()
	require.Equal(t, 2, backfill.runs)
	require.Zero(t, r.stream.Status().Errors["postgres"])
}
