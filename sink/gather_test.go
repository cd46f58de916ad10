package sink

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/walrelay/walrelay/checkpoint"
)

// gathering is a run that has begun, with what its next transaction is made of.
func gathering(t *testing.T, found checkpoint.State) (*gather, *Config) {
	t.Helper()
	c := testConfig(t, []string{"127.0.0.1:1"}, exactly)
	c.TransactionInterval = time.Hour
	g := newGather(line(), &found)
	g.commit(&g.state)
	return g, &c
}

func at(lsn uint64, index uint32) checkpoint.Position {
	p := position(lsn)
	p.Index = index
	return p
}

// Without room for more, and nothing whole, a transaction of PostgreSQL is divided; once more has come
// there was room.
func TestGather_Full(t *testing.T) {
	t.Parallel()
	g, c := gathering(t, checkpoint.State{})
	g.add(at(1, 0), 10, c)
	g.full = true
	next, due, _ := g.due(c, false)
	require.True(t, due && next.Partial, "no room, and nothing whole")
	require.Equal(t, at(1, 0), next.Position)

	g.add(at(1, 1), 10, c)
	_, due, again := g.due(c, false)
	require.False(t, due)
	require.Zero(t, again)
}

// A session says that its window is full before it has read what a commit has just settled.
func TestTransaction_FullBeforeTheMail(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), exactly)
	s := begin(t, k, checkpoint.Run{Line: line()})
	s.transaction("orders", 10)
	require.Eventually(t, s.run.Mailbox.Unread, patience, time.Millisecond)
	full := func() bool {
		k.Full()
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.run.gather.full
	}
	require.False(t, full())
	s.settle()
	s.transaction("orders", 2, true)
	require.True(t, full())
	s.until("the first part", func() bool { return len(s.settled) == 12 })
}

// Whoever waits for the time to write a position has to be woken when there is one.
func TestGather_WakesForAPosition(t *testing.T) {
	t.Parallel()
	g, c := gathering(t, checkpoint.State{Reached: 100})
	_, due, again := g.due(c, false)
	require.False(t, due)
	require.Zero(t, again)
	require.True(t, g.reach(200, c))
	_, due, again = g.due(c, false)
	require.False(t, due)
	require.WithinDuration(t, now().Add(lazyInterval), again, lazyInterval/2)
	require.False(t, g.reach(300, c), "the time is known")
	require.True(t, g.reach(100+lazyBytes, c))
}

// A large transaction whose last event has left in a part of it still has to end.
func TestGather_EndOfALargeTransaction(t *testing.T) {
	t.Parallel()
	g, c := gathering(t, checkpoint.State{})
	for i := range uint32(100) {
		large := g.add(at(1, i), 10, c)
		require.Equal(t, i == 99, large)
	}
	next, due, _ := g.due(c, false)
	require.True(t, due && next.Partial)
	g.sealed(&next)
	g.commit(&next)
	_, due, again := g.due(c, false)
	require.False(t, due)
	require.Zero(t, again)
	require.True(t, g.reach(1, c))
	next, due, again = g.due(c, false)
	require.False(t, due || next.Partial)
	require.WithinDuration(t, g.written.Add(c.TransactionInterval), again, 0)
	require.Equal(t, at(1, 99), next.Position)
}

// No transaction passes a poison event that is not written down.
func TestGather_Unrecorded(t *testing.T) {
	t.Parallel()
	g, c := gathering(t, checkpoint.State{})
	c.TransactionInterval = time.Nanosecond
	g.add(at(1, 0), 10, c)
	g.reach(1, c)
	g.unrecorded[2] = at(2, 0)
	g.add(at(2, 0), 10, c)
	_, due, _ := g.due(c, false)
	require.True(t, due, "it lies behind")
	g.reach(2, c)
	_, due, again := g.due(c, false)
	require.False(t, due)
	require.Zero(t, again, "only its record matters")
	delete(g.unrecorded, 2)
	_, due, _ = g.due(c, false)
	require.True(t, due)
}
