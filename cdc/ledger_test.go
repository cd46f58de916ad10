package cdc

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/testenv"
)

func TestRegistry_Verdicts(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		_, cfg := newStream(t, major)
		r, ctx := dial(t, cfg).Registry(), t.Context()
		p := checkpoint.Position{Epoch: 1, Timeline: 1, LSN: 0xABCDEF, Index: 3}
		q := checkpoint.Position{Epoch: 1, Timeline: 1, LSN: 0xABCDEF, Index: 4}
		require.NoError(t, r.Release(ctx, p, checkpoint.VerdictRetry))
		require.NoError(t, r.Release(ctx, p, checkpoint.VerdictSkip))
		require.NoError(t, r.Release(ctx, q, checkpoint.VerdictDeadLetter))
		verdicts, err := r.Releases(ctx)
		require.NoError(t, err)
		require.Equal(t, map[checkpoint.Position]checkpoint.Verdict{
			p: checkpoint.VerdictSkip, q: checkpoint.VerdictDeadLetter,
		}, verdicts)
		require.NoError(t, r.ConsumeRelease(ctx, p))
		verdicts, err = r.Releases(ctx)
		require.NoError(t, err)
		require.Len(t, verdicts, 1)
		require.Error(t, r.Release(ctx, p, "perhaps"))
	})
}

func TestRegistry_Poison(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		_, cfg := newStream(t, major)
		register(t, cfg)
		r, ctx := dial(t, cfg).Registry(), t.Context()
		digest := bytes.Repeat([]byte{7}, 32)
		poison := []checkpoint.Poison{
			{
				Position: checkpoint.Position{Epoch: 1, LSN: 1}, EventID: "1", Table: `"public"."events"`, Topic: "a",
				KeyDigest: digest, Size: 5, Reason: "too large", Action: checkpoint.DeadLettered,
			},
			{Position: checkpoint.Position{Epoch: 1, LSN: 2}, EventID: "a\x00b", Action: checkpoint.Unfit},
		}
		require.NoError(t, r.RecordPoison(ctx, poison, true))
		require.NoError(t, r.RecordPoison(ctx, poison, true), "as after a crash")
		keys, err := r.DeadKeys(ctx)
		require.NoError(t, err)
		require.Equal(t, map[checkpoint.DeadKey]struct{}{{Topic: "a", KeyDigest: [32]byte(digest)}: {}}, keys)

		sum, err := r.Summary(ctx)
		require.NoError(t, err)
		require.Equal(t, map[checkpoint.Action]int64{checkpoint.DeadLettered: 1, checkpoint.Unfit: 1}, sum.DeadLetters)
		letters, err := r.Letters(ctx, false)
		require.NoError(t, err)
		require.Equal(t, "a\uFFFDb", letters[1].EventID, "a message's id may have what text cannot")

		all := []checkpoint.Poison{
			{Position: checkpoint.Position{Epoch: 1, LSN: 3}, Action: checkpoint.Skipped},
			{Position: checkpoint.Position{Epoch: 1, LSN: 4}, Action: checkpoint.Stopped}, // refused: nothing was done
		}
		require.Error(t, r.RecordPoison(ctx, all, false))
		sum, err = r.Summary(ctx)
		require.NoError(t, err)
		require.Zero(t, sum.DeadLetters[checkpoint.Skipped], "all or none")
	})
}

// A row that a replay cannot publish is one letter, whoever meets it how often.
func TestRegistry_Refused(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		_, cfg := newStream(t, major)
		register(t, cfg)
		r, ctx := dial(t, cfg).Registry(), t.Context()
		letters := func() (all []string) {
			found, err := r.Letters(ctx, false)
			require.NoError(t, err)
			for _, l := range found {
				all = append(all, fmt.Sprintf("%d %s %s %s", l.Position.Epoch, l.EventID, l.Action, l.Reason))
			}
			return all
		}
		refused := func(id, reason string) checkpoint.Poison {
			return checkpoint.Poison{EventID: id, Table: "public.events", Reason: reason, Action: checkpoint.Refused}
		}
		met := checkpoint.Poison{
			Position: checkpoint.Position{Epoch: 1, LSN: 7}, EventID: "1", Table: "public.events", Reason: "met",
			Action: checkpoint.Unfit,
		}
		require.NoError(t, r.RecordRefused(ctx, nil))
		require.NoError(t, r.RecordPoison(ctx, []checkpoint.Poison{met}, false))
		all := []checkpoint.Poison{
			refused("1", "a"), refused("2", "a"), refused("", "a"), refused("2", "a"), refused("3", "a"),
		}
		require.NoError(t, r.RecordRefused(ctx, all))
		require.NoError(t, r.RecordRefused(ctx, []checkpoint.Poison{refused("1", "b"), refused("3", "b")}))
		require.ElementsMatch(t, []string{"1 1 unfit met", "0 2 refused a", "0 3 refused b"}, letters())

		t.Log("the stream meets one of them")
		met.Position.LSN, met.EventID, met.Action = 8, "2", checkpoint.Skipped
		for range 2 {
			require.NoError(t, r.RecordPoison(ctx, []checkpoint.Poison{met}, false))
			require.ElementsMatch(t, []string{"1 1 unfit met", "1 2 skipped met", "0 3 refused b"}, letters())
		}

		t.Log("one that was redriven is refused again")
		require.NoError(t, r.RecordRedriven(ctx, checkpoint.RowPosition("public.events", "3")))
		require.Len(t, letters(), 2)
		require.NoError(t, r.RecordRefused(ctx, []checkpoint.Poison{refused("3", "c")}))
		require.Contains(t, letters(), "0 3 refused c")
		met.Position.LSN, met.EventID = 9, "4"
		require.NoError(t, r.RecordPoison(ctx, []checkpoint.Poison{met}, false))
		require.NoError(t, r.RecordRedriven(ctx, met.Position))
		require.NoError(t, r.RecordRefused(ctx, []checkpoint.Poison{refused("4", "c")}))
		require.Contains(t, letters(), "0 4 refused c")
	})
}

func TestRegistry_RowRetained(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		db.Exec(t, `INSERT INTO events VALUES (7, 'a', 'k', 'p')`)
		r := dial(t, cfg).Registry()
		for id, want := range map[string]bool{"7": true, "8": false} {
			found, err := r.RowRetained(t.Context(), &cfg.Mappings[0], id)
			require.NoError(t, err)
			require.Equal(t, want, found)
		}
		_, err := r.RowRetained(t.Context(), &cfg.Mappings[0], "7; DROP TABLE events")
		require.Error(t, err)
		db.Exec(t, "DROP TABLE events")
		found, err := r.RowRetained(t.Context(), &cfg.Mappings[0], "7")
		require.NoError(t, err)
		require.False(t, found)
	})
}

func TestRegistry_EpochAndPositions(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		_, cfg := newStream(t, major)
		r, ctx := dial(t, cfg).Registry(), t.Context()
		_, err := r.Summary(ctx)
		fatal(t, err, "is not registered")
		require.ErrorContains(t, r.Confirm(ctx, 1, 1, time.Time{}), "not registered")

		reg := register(t, cfg)
		require.NoError(t, r.RecordPartitions(ctx, map[string]int32{"a": 3, "b": 1}))
		epoch, err := r.RaiseEpoch(ctx, map[string]int32{"a": 6})
		require.NoError(t, err)
		require.EqualValues(t, 2, epoch)
		epoch, err = r.RaiseEpoch(ctx, nil)
		require.NoError(t, err)
		require.EqualValues(t, 3, epoch)
		for _, floor := range []uint32{2, 3} {
			epoch, err = r.keepEpoch(ctx, floor)
			require.NoError(t, err)
			require.EqualValues(t, 3, epoch)
		}
		sum, err := r.Summary(ctx)
		require.NoError(t, err)
		require.Equal(t, map[string]int32{"a": 6, "b": 1}, sum.Partitions)

		epoch, err = r.keepEpoch(ctx, 4_000_000_000)
		require.NoError(t, err)
		require.EqualValues(t, uint32(4_000_000_000), epoch)

		require.NoError(t, r.Confirm(ctx, reg.Created+100, 1, time.Time{}))
		require.NoError(t, r.Confirm(ctx, reg.Created+50, 2, time.Time{}), "never back")
		sum, err = r.Summary(ctx)
		require.NoError(t, err)
		require.Equal(t, reg.Created+100, sum.Confirmed)
		require.EqualValues(t, 2, sum.Timeline)
		require.Equal(t, cfg.Slot, sum.Slot)
	})
}

// TestRegistry_Standby: a synchronous standby that is away holds up the epoch, not the stream.
func TestRegistry_Standby(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		server := testenv.StartPostgres(t, major, testenv.Config{})
		db, cfg := streamOn(t, server)
		reg := register(t, cfg)
		r := dial(t, cfg).Registry()
		loseStandby(t, db)
		require.NoError(t, r.Confirm(t.Context(), reg.Created+1, 1, time.Time{}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.RaiseEpoch(ctx, map[string]int32{"a": 1})
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// loseStandby makes commits wait for a synchronous standby that never comes.
func loseStandby(t *testing.T, db *testenv.Database) {
	t.Helper()
	db.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'away'")
	db.Exec(t, "SELECT pg_reload_conf()")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { // commits until one waits
		var err error
		for err == nil {
			_, err = db.Conn.Exec(ctx, "INSERT INTO events SELECT count(*), 'a' FROM events")
		}
		done <- err
	}()
	require.Eventually(t, func() bool {
		var waits bool
		require.NoError(t, db.QueryRow(t, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event = 'SyncRep')`).Scan(&waits))
		return waits
	}, time.Minute, 10*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// TestRegistry_BeginOnce: whoever comes second finds a stream that may be further already.
func TestRegistry_BeginOnce(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		_, cfg := newStream(t, major)
		reg := register(t, cfg)
		s := dial(t, cfg)
		require.NoError(t, s.Registry().Confirm(t.Context(), reg.Created+100, 1, time.Time{}))
		require.NoError(t, s.Registry().begin(t.Context(), s, reg.Created, reg.Publication, true))
		sum, err := s.Registry().Summary(t.Context())
		require.NoError(t, err)
		require.Equal(t, reg.Created+100, sum.Confirmed)
	})
}

func TestRegistry_Letters(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		_, cfg := newStream(t, major)
		register(t, cfg)
		r, ctx := dial(t, cfg).Registry(), t.Context()
		at := func(lsn uint64) checkpoint.Position {
			return checkpoint.Position{Epoch: 1, Timeline: 1, LSN: pglogrepl.LSN(lsn)}
		}
		one, other := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
		require.NoError(t, r.RecordPoison(ctx, []checkpoint.Poison{
			{Position: at(30), EventID: "3", Topic: "a", KeyDigest: one, Action: checkpoint.DeadLettered},
			{
				Position: at(10), EventID: "1", Topic: "a", KeyDigest: one, PayloadDigest: other, Action: checkpoint.DeadLettered,
				Reason: "why", Size: 7,
			},
			{Position: at(20), EventID: "2", Topic: "a", KeyDigest: other, Action: checkpoint.Unfit},
		}, true))
		letters, err := r.Letters(ctx, false)
		require.NoError(t, err)
		var ids []string
		for _, l := range letters {
			ids = append(ids, l.EventID)
			require.True(t, l.Redriven.IsZero())
		}
		require.Equal(t, []string{"1", "2", "3"}, ids, "oldest first")
		require.Equal(t, "why", letters[0].Reason)
		require.EqualValues(t, 7, letters[0].Size)
		require.Equal(t, one, letters[0].KeyDigest)
		require.Equal(t, other, letters[0].PayloadDigest)

		require.NoError(t, r.RecordRedriven(ctx, at(10)))
		require.NoError(t, r.RecordRedriven(ctx, at(20)))
		letters, err = r.Letters(ctx, false)
		require.NoError(t, err)
		require.Len(t, letters, 1)
		letters, err = r.Letters(ctx, true)
		require.NoError(t, err)
		require.Len(t, letters, 3)
		require.WithinDuration(t, time.Now(), letters[0].Redriven, time.Hour)
		require.NotEmpty(t, letters[0].RedrivenBy)

		keys, err := r.ReleaseKeys(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 1, keys, "the one of which nothing is left")
		dead, err := r.DeadKeys(ctx)
		require.NoError(t, err)
		require.Equal(t, map[checkpoint.DeadKey]struct{}{{Topic: "a", KeyDigest: [32]byte(one)}: {}}, dead)

		held, err := r.HoldLetters(ctx)
		require.NoError(t, err)
		require.True(t, held)
		second := dial(t, cfg).Registry()
		held, err = second.HoldLetters(ctx)
		require.NoError(t, err)
		require.False(t, held)
		require.NoError(t, r.FreeLetters(ctx))
		held, err = second.HoldLetters(ctx)
		require.NoError(t, err)
		require.True(t, held)
	})
}
