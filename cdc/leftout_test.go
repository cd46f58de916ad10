package cdc

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
)

// keeper returns one for a stream that has confirmed everything.
func (cfg *Config) keeper(t *testing.T) *SlotKeeper {
	t.Helper()
	k, err := OpenSlotKeeper(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { k.Close(context.Background()) })
	return k
}

// current is the end of the log.
func (k *SlotKeeper) current(t *testing.T) pglogrepl.LSN {
	t.Helper()
	report, err := k.Report(t.Context())
	require.NoError(t, err)
	return report.Current
}

// leftOut is what the registry has.
func (k *SlotKeeper) leftOut(t *testing.T) *LeftOut {
	t.Helper()
	sum, err := k.Registry().Summary(t.Context())
	require.NoError(t, err)
	return sum.LeftOut
}

// A crash between the note and the advance, or behind that, keeps no start from going on; what somebody else does
// to the slot is found as ever.
func TestLeftOut_Crashes(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		register(t, cfg)
		k := cfg.keeper(t)
		resumes := func() (warnings []string) {
			t.Helper()
			reg, err := dial(t, cfg).Claim(t.Context())
			require.NoError(t, err)
			return reg.Warnings
		}
		resumes()
		db.Exec(t, "INSERT INTO events VALUES (1, 'k')")
		_, _, err := k.leaveOut(t.Context(), advanced, k.current(t))
		require.NoError(t, err)
		require.Contains(t, resumes()[0], "are not streamed: role \"postgres\" left them out with `walrelay slot advance`")
		require.Empty(t, resumes(), "once")
		db.Exec(t, "SELECT pg_replication_slot_advance($1, $2::text::pg_lsn)", cfg.Slot,
			pglogrepl.LSN(k.leftOut(t).To).String())
		require.Empty(t, resumes())

		db.Exec(t, "INSERT INTO events VALUES (2, 'k')")
		db.Exec(t, "SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())", cfg.Slot)
		_, err = dial(t, cfg).Claim(t.Context())
		require.ErrorContains(t, err, "advanced by somebody else")
	})
}

// A slot that cannot be moved leaves no note; one that moves over what was confirmed leaves out nothing.
func TestLeftOut_NotDone(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		register(t, cfg)
		k := cfg.keeper(t)
		covered := func() (at string) {
			require.NoError(t, db.QueryRow(t, "SELECT covered_since::text FROM walrelay.streams").Scan(&at))
			return at
		}
		before := covered()
		holder := dial(t, cfg)
		require.NoError(t, holder.StartReplication(t.Context(), 0))
		report, err := k.Report(t.Context())
		require.NoError(t, err)
		_, err = k.Advance(t.Context(), report.Current)
		require.ErrorContains(t, err, "is in use")
		require.ErrorContains(t, k.Drop(t.Context(), report), "is in use")
		require.Nil(t, k.leftOut(t))
		require.Equal(t, before, covered())

		holder.Close(t.Context())
		require.NoError(t, k.Registry().Confirm(t.Context(), report.Current, 1, time.Time{}))
		require.Eventually(t, func() bool {
			_, err = k.Advance(t.Context(), report.Current)
			return err == nil
		}, time.Minute, 20*time.Millisecond)
		require.Nil(t, k.leftOut(t))
	})
}

// Gaps that follow each other are one until they are closed, and that takes all of a replay.
func TestLeftOut_Republished(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		register(t, cfg)
		k := cfg.keeper(t)
		leave := func() {
			t.Helper()
			db.Exec(t, "SELECT pg_logical_emit_message(true, 'x', 'y')")
			_, err := k.Advance(t.Context(), k.current(t))
			require.NoError(t, err)
		}
		leave()
		first := *k.leftOut(t)
		leave()
		both := *k.leftOut(t)
		require.Equal(t, []any{first.From, first.Since}, []any{both.From, both.Since})
		require.Greater(t, both.To, first.To)
		require.True(t, both.Until.After(first.Until))

		closes := func(name, begun string, since, until time.Time) bool {
			t.Helper()
			db.Exec(t, `INSERT INTO walrelay.replays (stream, name, selection, state, started_at)
				VALUES ('orders', $1, '{}', 'done', now() + $2::text::interval)`, name, begun)
			require.NoError(t, k.Registry().Republished(t.Context(), name, since, until))
			return k.leftOut(t) == nil
		}
		var open time.Time
		require.False(t, closes("before", "-1 hour", open, open))
		require.False(t, closes("late", "0", both.Since.Add(time.Second), open))
		require.False(t, closes("short", "0", open, both.Until.Add(-time.Second)))
		require.True(t, closes("range", "0", both.Since, both.Until))
	})
}

// A slot that is dropped keeps the stream from starting, until it is created on purpose; the gap ends there.
func TestLeftOut_Dropped(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		register(t, cfg)
		k := cfg.keeper(t)
		report, err := k.Report(t.Context())
		require.NoError(t, err)
		require.NoError(t, k.Drop(t.Context(), report))
		require.True(t, k.leftOut(t).Dropped())
		_, err = dial(t, cfg).Register(t.Context())
		require.ErrorContains(t, err, "left them out with `walrelay slot drop`")
		require.ErrorContains(t, err, "walrelay slot create")
		require.Contains(t, found(t, examine(t, cfg), "slot").Found, "left them out")

		_, err = k.Registry().NewEpoch(t.Context())
		require.NoError(t, err)
		db.Exec(t, "INSERT INTO events VALUES (1, 'k')")
		made, err := dial(t, cfg).Register(t.Context())
		require.NoError(t, err)
		require.Equal(t, made.Created, pglogrepl.LSN(k.leftOut(t).To))
		require.False(t, k.leftOut(t).Dropped())
		claimed, err := dial(t, cfg).Claim(t.Context())
		require.NoError(t, err)
		require.Len(t, claimed.Warnings, 1)
	})
}

// A slot that was given up for its budget is no slot that somebody dropped.
func TestLeftOut_GivenUp(t *testing.T) {
	t.Parallel()
	db, cfg := newStream(t, 18)
	register(t, cfg)
	db.Exec(t, `UPDATE walrelay.streams SET given_up = jsonb_build_object('at', now(), 'since', now(),
		'confirmed_lsn', confirmed_lsn, 'until_lsn', pg_current_wal_lsn(), 'retained_bytes', 42)`)
	db.Exec(t, "SELECT pg_drop_replication_slot($1)", cfg.Slot)
	_, err := dial(t, cfg).Register(t.Context())
	for _, part := range []string{
		"is gone: the slot was dropped at 20", "since it kept 42 bytes", "WALRELAY_WAL_BUDGET",
		"walrelay stream new-epoch orders",
	} {
		require.ErrorContains(t, err, part)
	}
}
