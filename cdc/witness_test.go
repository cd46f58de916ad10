package cdc

import (
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
)

// history makes the timelines of a server that writes on the last of them. Each of the others was left
// at an LSN.
func history(current uint32, past ...timelineEnd) *Timelines {
	return &Timelines{current: current, past: past}
}

func TestTimelines_Fork(t *testing.T) {
	t.Parallel()
	two := history(2, timelineEnd{1, 0x500})
	for name, test := range map[string]struct {
		a, b *Timelines
		want pglogrepl.LSN
	}{
		"the same":                    {two, two, endless},
		"never promoted":              {history(1), history(1), endless},
		"promoted":                    {history(1), two, 0x500},
		"promoted twice":              {history(1), history(3, timelineEnd{1, 0x500}, timelineEnd{2, 0x700}), 0x500},
		"promoted again":              {two, history(3, timelineEnd{1, 0x500}, timelineEnd{2, 0x700}), 0x700},
		"two promotions of one":       {two, history(2, timelineEnd{1, 0x300}), 0x300},
		"the older, then its sibling": {two, history(3, timelineEnd{1, 0x600}), 0x500},
		"siblings of one point":       {two, history(3, timelineEnd{1, 0x500}), 0x500},
		"no history":                  {history(1), history(2), endless},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, test.a.fork(test.b))
			require.Equal(t, test.want, test.b.fork(test.a))
		})
	}
}

func at(timeline uint32, lsn pglogrepl.LSN, index uint32) checkpoint.Position {
	return checkpoint.Position{Epoch: 1, Timeline: timeline, LSN: lsn, Index: index}
}

// seenServer is a witness that has met a server on timeline 1 and published up to 0x450 there.
func seenServer() *witness {
	w := &witness{}
	w.meet(server(history(1), 0x800))
	for _, p := range []checkpoint.Position{
		at(1, 0x200, 0), at(1, 0x200, 1), at(1, 0x300, 0), at(1, 0x400, 0), at(1, 0x400, 1), at(1, 0x400, 2), at(1, 0x450, 0),
	} {
		w.publish(p)
	}
	for _, repeat := range []checkpoint.Position{at(1, 0x300, 0), at(1, 0x400, 0), at(1, 0x450, 0)} {
		w.publish(repeat)
	}
	return w
}

func server(t *Timelines, flushed pglogrepl.LSN) *Server {
	return &Server{SystemID: "1", Timeline: t.current, Flushed: flushed, timelines: t}
}

func TestWitness_Meet(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		to    *Server
		want  *divergence
		epoch uint32
	}{
		"the same server": {to: server(history(1), 0x900), epoch: 1},
		"had all of it":   {to: server(history(2, timelineEnd{1, 0x451}), 0x900), epoch: 1},
		"had nearly all":  {server(history(2, timelineEnd{1, 0x450}), 0x900), &divergence{1, 0x450, 0x450, 1}, 1},
		"had less":        {server(history(2, timelineEnd{1, 0x380}), 0x900), &divergence{1, 0x380, 0x450, 4}, 1},
		"had nothing":     {server(history(2, timelineEnd{1, 0x100}), 0x900), &divergence{1, 0x100, 0x450, 7}, 1},
		"promoted twice": {
			server(history(3, timelineEnd{1, 0x400}, timelineEnd{2, 0x410}), 0x900), &divergence{1, 0x400, 0x450, 4}, 1,
		},
		"its files restored": {server(history(1), 0x400), &divergence{1, 0x400, 0x450, 4}, 2},
		"another server":     {to: &Server{SystemID: "2", Flushed: 1, timelines: history(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := seenServer()
			require.Equal(t, test.want, w.meet(test.to))
			require.Equal(t, test.epoch, w.epoch)
			require.Nil(t, w.meet(test.to), "it is said once")
		})
	}
}

// A second promotion counts from what the first one brought.
func TestWitness_GoesOn(t *testing.T) {
	t.Parallel()
	w := seenServer()
	require.NotNil(t, w.meet(server(history(2, timelineEnd{1, 0x380}), 0x900)))
	w.publish(at(1, 0x300, 0)) // again
	w.publish(at(2, 0x390, 0))
	w.publish(at(2, 0x3A0, 0))
	next := history(3, timelineEnd{1, 0x380}, timelineEnd{2, 0x3A0})
	require.Equal(t, &divergence{2, 0x3A0, 0x3A0, 1}, w.meet(server(next, 0x900)))
	require.EqualValues(t, 1, w.epoch)
}

// Where the server that takes over brings rows on a timeline that is not above the published one, only
// another epoch keeps their positions above.
func TestWitness_PositionsThatDoNotCompare(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]*Timelines{
		"sibling of the same number":   history(2, timelineEnd{1, 0x3B0}),
		"sibling of a higher number":   history(3, timelineEnd{1, 0x3B0}),
		"sibling that went on from it": history(4, timelineEnd{1, 0x3B0}, timelineEnd{3, 0x3C0}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := seenServer()
			w.meet(server(history(2, timelineEnd{1, 0x380}), 0x900))
			w.publish(at(2, 0x390, 0))
			d := w.meet(server(other, 0x900))
			require.Equal(t, &divergence{2, 0x380, 0x390, 1}, d)
			require.EqualValues(t, 2, w.epoch)
		})
	}
}

func TestWitness_Outdated(t *testing.T) {
	t.Parallel()
	w := &witness{}
	require.NoError(t, w.outdated(server(history(1), 0x900)))
	w.meet(server(history(2, timelineEnd{1, 0x380}), 0x900))
	require.ErrorContains(t, w.outdated(server(history(1), 0x900)), "on timeline 1, but timeline 2 has begun")
	require.NoError(t, w.outdated(server(history(2, timelineEnd{1, 0x380}), 0x900)))
	require.NoError(t, w.outdated(server(history(3), 0x900)))
	require.NoError(t, w.outdated(&Server{SystemID: "2", Timeline: 1}), "the registry decides about another cluster")
}

// However much is published, the memory is bounded, and what was published last is counted exactly.
func TestWitness_ManyTransactions(t *testing.T) {
	t.Parallel()
	w := &witness{}
	w.meet(server(history(1), 1<<40))
	const transactions, each = 100_000, 3
	for n := range pglogrepl.LSN(transactions) {
		for i := range uint32(each) {
			w.publish(at(1, 0x1000+n, i))
		}
	}
	require.LessOrEqual(t, len(w.marks), markLimit)
	for back, off := range map[uint64]float64{1: 0, 30: 0, 1000: 0.02, 50_000: 0.02, transactions: 0.02} {
		copied := *w
		copied.marks = append([]mark(nil), w.marks...)
		fork := 0x1000 + pglogrepl.LSN(transactions-back)
		d := copied.meet(server(history(2, timelineEnd{1, fork}), 1<<40))
		require.LessOrEqual(t, d.events, back*each)
		require.InEpsilon(t, back*each, d.events, off+1e-9)
	}
}

// A process that has seen a promotion does not go back to the old primary, and says why.
func TestDial_LeftBehind(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		_, cfg := newStream(t, major)
		s := dial(t, cfg)
		w := &witness{systemID: s.SystemID, timelines: history(7)}
		_, err := dialNewer(t.Context(), cfg, w)
		require.ErrorContains(t, err, "on timeline 1, but timeline 7 has begun")
		require.False(t, Fatal(err))
		require.NotContains(t, strings.ToLower(err.Error()), "password")
	})
}
