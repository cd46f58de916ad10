package cdc

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func TestTimelines_At(t *testing.T) {
	t.Parallel()
	past, err := parseHistory([]byte("# comment\n1\t0/3000148\tno recovery target specified\n\n" +
		"2\t0/5000000\tbefore 2000-01-01 00:00:00+00\n4\t1/0\treason with spaces\n"))
	require.NoError(t, err)
	timelines := Timelines{current: 5, past: past}
	for lsn, want := range map[pglogrepl.LSN]uint32{
		1: 1, 0x3000147: 1, 0x3000148: 2, 0x4FFFFFF: 2, 0x5000000: 4, 0xFFFFFFFF: 4, 1 << 32: 5,
	} {
		require.Equal(t, want, timelines.At(lsn), lsn.String())
	}
	require.EqualValues(t, 1, (&Timelines{current: 1}).At(42))
	for timeline, want := range map[uint32]pglogrepl.LSN{1: 0x3000148, 2: 0x5000000, 3: 0, 4: 1 << 32, 5: 0} {
		at, ok := timelines.Left(timeline)
		require.Equal(t, want, at)
		require.Equal(t, want != 0, ok)
	}
}

func TestParseHistory_Malformed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1\n", "x\t0/1\n", "1\tzzz\n", "2\t0/1\n1\t0/2\n", "1\t0/2\n2\t0/1\n"} {
		_, err := parseHistory([]byte(text))
		require.Error(t, err, text)
	}
}

// TestTimelines_Promotion promotes the server that has the slot, so that everything is still there
// and only the timeline is new.
func TestTimelines_Promotion(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		server := testenv.StartPostgres(t, major, testenv.Config{})
		db, cfg := streamOn(t, server)
		reg := register(t, cfg)
		db.Exec(t, "INSERT INTO events VALUES (1, 'a', 'k', 'p')")
		advance(t, db, cfg.Slot) // as if the registry's last word had not reached the standby
		db.Exec(t, "CHECKPOINT") // otherwise the position need not survive
		_, err := dial(t, cfg).Register(t.Context())
		fatal(t, err, "created again or advanced")

		server.Stop(t, testenv.Immediate)
		require.NoError(t, os.WriteFile(filepath.Join(server.Dir, "standby.signal"), nil, 0o600))
		server.Start(t)
		_, err = Dial(t.Context(), cfg)
		require.ErrorIs(t, err, pgconn.ErrReadOnlyConnection)
		require.False(t, Fatal(err))
		server.Exec(t, "SELECT pg_promote()")
		db.Conn.Reset()

		s := dial(t, cfg)
		require.EqualValues(t, 2, s.Timeline)
		require.EqualValues(t, 2, s.Timelines().Current())
		require.EqualValues(t, 1, s.Timelines().At(reg.Created))
		require.EqualValues(t, 2, s.Timelines().At(1<<40))
		after, err := s.Register(t.Context())
		require.NoError(t, err)
		require.Len(t, after.Warnings, 1)
		require.Contains(t, after.Warnings[0], "did not reach the promoted server")

		advance(t, db, cfg.Slot) // beyond the end of timeline 1: by somebody else
		_, err = s.Register(t.Context())
		fatal(t, err, "created again or advanced", "new-epoch orders")
		require.NoError(t, s.Registry().Confirm(t.Context(), slotOf(t, s).ConfirmedFlush, s.Timeline, time.Time{}))
		_, err = s.Register(t.Context())
		require.NoError(t, err)
	})
}
