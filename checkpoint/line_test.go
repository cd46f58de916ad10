package checkpoint_test

import (
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
)

// line is a stream on timeline 2, which left timeline 1 at 0/500 and has written up to 0/900.
func line() *checkpoint.Line {
	return &checkpoint.Line{
		Epoch: 3, Origin: 2, SystemID: "42", Slot: "walrelay", Routing: "r", Timeline: 2, Confirmed: 0x600,
		Left: func(timeline uint32) (pglogrepl.LSN, bool) {
			at, ok := map[uint32]pglogrepl.LSN{1: 0x500, 2: 0x900}[timeline]
			return at, ok
		},
	}
}

func state() *checkpoint.State {
	return &checkpoint.State{
		Epoch: 3, Origin: 2, SystemID: "42", Timeline: 2, Slot: "walrelay", Routing: "r", Reached: 0x700,
		Position: checkpoint.Position{Epoch: 3, Timeline: 2, LSN: 0x6f0, Index: 4},
	}
}

func TestLine_Check(t *testing.T) {
	t.Parallel()
	type both struct {
		*checkpoint.Line
		s *checkpoint.State
	}
	for name, c := range map[string]struct {
		change func(b *both)
		want   string // part of the problem; empty: none
	}{
		"as written":         {change: func(*both) {}},
		"older epoch":        {change: func(b *both) { b.s.Epoch = 2 }},
		"changed routing":    {change: func(b *both) { b.s.Routing = "old" }},
		"confirmed up to it": {change: func(b *both) { b.Confirmed = 0x700 }},
		"before a promotion": {change: func(b *both) {
			b.s.Timeline, b.s.Reached, b.s.Position.LSN, b.Confirmed = 1, 0x500, 0x4f0, 0x400
		}},
		"missing":          {change: func(b *both) { b.s = nil }, want: "no state is found"},
		"other origin":     {change: func(b *both) { b.s.Origin = 1 }, want: "epoch 1"},
		"other server":     {change: func(b *both) { b.s.SystemID = "43" }, want: "system identifier 43"},
		"other slot":       {change: func(b *both) { b.s.Slot = "s" }, want: `slot "s"`},
		"newer epoch":      {change: func(b *both) { b.s.Epoch = 4 }, want: "epoch 4"},
		"confirmed beyond": {change: func(b *both) { b.Confirmed = 0x701 }, want: "only reaches 0/700"},
		"beyond the log":   {change: func(b *both) { b.s.Reached = 0x901 }, want: "0/901 of timeline 2"},
		"event beyond":     {change: func(b *both) { b.s.Position.LSN = 0x901 }, want: "0/901 of timeline 2"},
		"lost by a promotion": {
			change: func(b *both) { b.s.Timeline, b.s.Reached, b.Confirmed = 1, 0x501, 0x400 }, want: "of timeline 1",
		},
		"other branch": {change: func(b *both) { b.s.Timeline = 7 }, want: "timeline 7"},
		"routing within a transaction": {
			change: func(b *both) { b.s.Partial, b.s.Routing = true, "old" }, want: "middle of the transaction at 0/6F0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &both{line(), state()}
			c.change(b)
			err := b.Check(b.s)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			var contradiction *checkpoint.StateError
			require.ErrorAs(t, err, &contradiction)
			require.Contains(t, contradiction.Problem, c.want)
			require.NotEmpty(t, contradiction.Remedy)
		})
	}
}

func TestLine_FirstState(t *testing.T) {
	t.Parallel()
	l := line()
	l.Origin = 0
	require.NoError(t, l.Check(nil))
	older := state()
	older.Epoch = 2
	require.NoError(t, l.Check(older), "of an earlier line")
	var behind *checkpoint.EpochBehindError
	require.ErrorAs(t, l.Check(state()), &behind)
	require.EqualValues(t, 3, behind.Found)

	first := l.Begin()
	l.Origin = l.Epoch
	require.NoError(t, l.Check(first))
	require.False(t, first.Covers(checkpoint.Position{Epoch: 1, Timeline: 1, LSN: 1}))
}

func TestState_Covers(t *testing.T) {
	t.Parallel()
	s := state()
	at := s.Position
	require.True(t, s.Covers(at))
	at.Epoch = 9
	require.True(t, s.Covers(at), "a raised epoch renames the rest")
	at.Index++
	require.False(t, s.Covers(at))
	at = s.Position
	at.Timeline, at.LSN = 3, 1
	require.False(t, s.Covers(at))
}

func TestState_Text(t *testing.T) {
	t.Parallel()
	s := state()
	s.Partial = true
	text, err := s.Marshal()
	require.NoError(t, err)
	back, err := checkpoint.ParseState(text)
	require.NoError(t, err)
	require.Equal(t, s, back)

	// What an older or a newer version writes.
	back, err = checkpoint.ParseState([]byte(
		`{"version":1,"epoch":1,"origin":1,"system_identifier":"42","timeline":1,"slot":"s","routing":"r",` +
			`"reached":"0/10","new":{}}`))
	require.NoError(t, err)
	require.Equal(t, &checkpoint.State{
		Epoch: 1, Origin: 1, SystemID: "42", Timeline: 1, Slot: "s", Routing: "r", Reached: 0x10,
	}, back)
	_, err = checkpoint.ParseState([]byte(strings.Replace(string(text), `"version":1`, `"version":2`, 1)))
	require.ErrorIs(t, err, checkpoint.ErrStateVersion)
	for _, bad := range []string{"", "{", `{"version":1,"reached":"x"}`, `{"version":1,"position":"x","reached":"0/1"}`} {
		_, err = checkpoint.ParseState([]byte(bad))
		require.Error(t, err, bad)
	}
}
