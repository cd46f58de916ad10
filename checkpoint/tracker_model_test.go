package checkpoint_test

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/walrelay/walrelay/checkpoint"
)

// model is the tracker as one would explain it: keep everything, recompute every answer.
type model struct {
	window   checkpoint.Window
	start    pglogrepl.LSN
	received pglogrepl.LSN
	events   []modelEvent // sequence = index + 1
	commits  []modelCommit
	open     *modelCommit
}

type modelEvent struct {
	bytes   int
	settled bool
}

type modelCommit struct {
	end        pglogrepl.LSN
	commitTime time.Time
	from, to   int // its events: [from, to)
	adopted    bool
}

func (m *model) settledUpTo(n int) bool {
	for _, e := range m.events[:n] {
		if !e.settled {
			return false
		}
	}
	return true
}

func (m *model) settled() (n uint64) {
	for _, e := range m.events {
		if !e.settled {
			break
		}
		n++
	}
	return n
}

func (m *model) passed() pglogrepl.LSN {
	if len(m.commits) == 0 {
		return m.start
	}
	return m.commits[len(m.commits)-1].end
}

func (m *model) frontier() pglogrepl.LSN {
	f := m.start
	for _, c := range m.commits {
		if m.settledUpTo(c.to) {
			f = c.end
		}
	}
	return min(f, m.received)
}

func (m *model) inFlight() (events int, bytes int64) {
	for _, e := range m.events {
		if !e.settled {
			events++
			bytes += int64(e.bytes)
		}
	}
	return events, bytes
}

func (m *model) idle() bool { return m.open == nil && m.settledUpTo(len(m.events)) }

func (m *model) full() bool {
	for i, e := range m.events {
		if !e.settled {
			_, bytes := m.inFlight()
			return len(m.events)-i >= m.window.Events || bytes >= m.window.Bytes
		}
	}
	return false
}

// oldest: a transaction with events, since an empty one is settled together with what precedes it.
func (m *model) oldest() (time.Time, bool) {
	for _, c := range m.commits {
		if !c.adopted && c.from < c.to && !m.settledUpTo(c.to) {
			return c.commitTime, true
		}
	}
	if m.open != nil {
		return m.open.commitTime, true
	}
	return time.Time{}, false
}

func TestTracker_Model(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := pglogrepl.LSN(rapid.Uint64Range(0, 1000).Draw(t, "start"))
		window := checkpoint.Window{
			Events: rapid.IntRange(1, 12).Draw(t, "window events"),
			Bytes:  rapid.Int64Range(1, 100).Draw(t, "window bytes"),
		}
		m := &model{window: window, start: start, received: start}
		tr := checkpoint.NewTracker(start, window)
		highest := start

		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				at := time.Unix(rapid.Int64Range(1, 1e6).Draw(t, "commit time"), 0)
				err := tr.Begin(at)
				if m.open != nil {
					require.ErrorIs(t, err, checkpoint.ErrOpen)
					return
				}
				require.NoError(t, err)
				m.open = &modelCommit{commitTime: at, from: len(m.events)}
			},
			"add": func(t *rapid.T) {
				// Not held back by Full: the tracker must cope with a caller who does not wait.
				bytes := rapid.IntRange(0, 40).Draw(t, "bytes")
				seq, err := tr.Add(bytes)
				if m.open == nil {
					require.ErrorIs(t, err, checkpoint.ErrNotOpen)
					return
				}
				require.NoError(t, err)
				m.events = append(m.events, modelEvent{bytes: bytes})
				require.Equal(t, uint64(len(m.events)), seq)
			},
			"commit": func(t *rapid.T) {
				end := m.passed() + pglogrepl.LSN(rapid.Uint64Range(0, 50).Draw(t, "distance"))
				if rapid.IntRange(0, 9).Draw(t, "regress") == 0 && m.passed() > 0 {
					end = m.passed() - 1
				}
				err := tr.Commit(end)
				switch {
				case m.open == nil:
					require.ErrorIs(t, err, checkpoint.ErrNotOpen)
				case end < m.passed():
					require.ErrorIs(t, err, checkpoint.ErrRegress)
				default:
					require.NoError(t, err)
					m.open.end, m.open.to = end, len(m.events)
					m.commits = append(m.commits, *m.open)
					m.open = nil
				}
			},
			"settle": func(t *rapid.T) {
				seqs := rapid.SliceOfN(rapid.Uint64Range(0, uint64(len(m.events)+1)), 0, 6).Draw(t, "seqs")
				bad := false
				for _, seq := range seqs {
					if bad = seq == 0 || seq > uint64(len(m.events)) || m.events[seq-1].settled; bad {
						break
					}
					m.events[seq-1].settled = true
				}
				if err := tr.Settle(seqs); bad {
					require.ErrorIs(t, err, checkpoint.ErrNotInFlight)
				} else {
					require.NoError(t, err)
				}
			},
			"settle all but one": func(t *rapid.T) {
				var seqs []uint64
				for i := range m.events {
					if !m.events[i].settled {
						seqs = append(seqs, uint64(i+1))
					}
				}
				if len(seqs) == 0 {
					t.Skip()
				}
				seqs = rapid.Permutation(seqs).Draw(t, "order")[1:]
				for _, seq := range seqs {
					m.events[seq-1].settled = true
				}
				require.NoError(t, tr.Settle(seqs))
			},
			"receive": func(t *rapid.T) {
				lsn := pglogrepl.LSN(rapid.Uint64Range(0, uint64(m.passed())+60).Draw(t, "lsn"))
				tr.Receive(lsn)
				m.received = max(m.received, lsn)
			},
			"keepalive": func(t *rapid.T) {
				lsn := pglogrepl.LSN(rapid.Uint64Range(0, uint64(m.received)+20).Draw(t, "lsn"))
				want := m.idle() && lsn >= m.passed() && lsn <= m.received
				require.Equal(t, want, tr.Adopt(lsn))
				if want {
					n := len(m.events)
					m.commits = append(m.commits, modelCommit{end: lsn, from: n, to: n, adopted: true})
				}
			},
			"": func(t *rapid.T) {
				require.Equal(t, m.frontier(), tr.Frontier(), "frontier")
				require.Equal(t, m.settled(), tr.Settled(), "settled")
				require.GreaterOrEqual(t, tr.Frontier(), highest, "frontier regressed")
				highest = tr.Frontier()
				require.LessOrEqual(t, highest, m.received, "frontier beyond what was received")
				require.Equal(t, m.idle(), tr.Idle(), "idle")
				require.Equal(t, m.full(), tr.Full(), "full")
				events, bytes := m.inFlight()
				gotEvents, gotBytes := tr.InFlight()
				require.Equal(t, events, gotEvents, "events in flight")
				require.Equal(t, bytes, gotBytes, "bytes in flight")
				at, ok := m.oldest()
				gotAt, gotOK := tr.Oldest()
				require.Equal(t, ok, gotOK, "oldest")
				require.True(t, at.Equal(gotAt), "oldest: %s, want %s", gotAt, at)
			},
		})
	})
}
