package sink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/testenv"
)

// exactly configures exactly-once delivery, with transactions of a few events.
func exactly(c *Config) {
	c.ExactlyOnce, c.StateTopic = true, "states"
	c.TransactionInterval, c.TransactionTimeout = 10*time.Millisecond, time.Minute
	c.TransactionEvents, c.TransactionBytes = 100, 1<<20
}

// line is that of a stream whose first state is yet to be written.
func line() checkpoint.Line {
	return checkpoint.Line{
		Epoch: 1, SystemID: "42", Slot: "walrelay", Routing: "r", Timeline: 1,
		Left: func(timeline uint32) (pglogrepl.LSN, bool) { return 1 << 40, timeline == 1 },
	}
}

// goesOn is the run after one that began a line.
func goesOn() checkpoint.Run {
	l := line()
	l.Origin = 1
	return checkpoint.Run{Line: l}
}

// transaction publishes a PostgreSQL transaction of n events, and its end unless it stays open.
func (s *session) transaction(topic string, n int, open ...bool) {
	s.lsn++
	for i := range n {
		s.publish(s.part(topic, i))
	}
	if len(open) == 0 {
		s.k.Reached(pglogrepl.LSN(s.lsn))
	}
}

// part is the event at an index of the present transaction.
func (s *session) part(topic string, index int) *decoder.Event {
	s.lsn--
	ev := s.event(topic, fmt.Sprintf("key-%d", index%7))
	ev.Position.Index = uint32(index)
	ev.ID = fmt.Appendf(nil, "id-%d-%d", s.lsn, index)
	return ev
}

// reaches waits until a state is written that reaches the last transaction.
func (s *session) reaches() {
	s.t.Helper()
	s.until("a state", func() bool { return s.mail.Reached >= pglogrepl.LSN(s.lsn) || s.mail.Err != nil })
	require.NoError(s.t, s.mail.Err)
}

// sees waits for what a read_committed consumer has to see of a topic, since a commit is answered before its markers
// are written, and requires that it is this and no more.
func sees(t testing.TB, brokers []string, topic string, want []string) {
	t.Helper()
	require.Equal(t, want, committedOf(t, brokers, topic, len(want)))
}

// committedOf are the ids that a read_committed consumer sees of a topic once there are n of them, or more.
func committedOf(t testing.TB, brokers []string, topic string, n int) (ids []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	records := visible(t, brokers, topic)
	for len(records) < n && pause(ctx, 50*time.Millisecond) {
		records = visible(t, brokers, topic)
	}
	for _, r := range records {
		id, _ := header(r, headerID)
		ids = append(ids, id)
	}
	return ids
}

// exact requires that the topic holds every event of n transactions of size events once.
func exact(t testing.TB, brokers []string, topic string, n, size int) {
	t.Helper()
	var want []string
	for lsn := 1; lsn <= n; lsn++ {
		for i := range size {
			want = append(want, fmt.Sprintf("id-%d-%d", lsn, i))
		}
	}
	got := committedOf(t, brokers, topic, len(want))
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(t, want, got)
}

func TestTransaction_Delivers(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.NumBrokers(3), kfake.SeedTopics(3, "orders"))
	k := start(t, c.ListenAddrs(), exactly)
	s := begin(t, k, checkpoint.Run{Line: line()})
	for range 30 {
		s.transaction("orders", 20)
	}
	s.settle()
	s.reaches()
	exact(t, c.ListenAddrs(), "orders", 30, 20)
	require.Empty(t, k.Troubles())

	// What the next run gets again is not delivered again.
	s = begin(t, k, goesOn())
	for range 35 {
		s.transaction("orders", 20)
	}
	s.settle()
	s.reaches()
	exact(t, c.ListenAddrs(), "orders", 35, 20)
}

func TestTransaction_Real(t *testing.T) {
	t.Parallel()
	kafka := testenv.Kafka(t)
	topic := kafka.Topic(t, 3, nil)
	config := func(c *Config) {
		exactly(c)
		c.Stream, c.StateTopic = topic, "states-of-"+topic
	}
	first := start(t, kafka.Addrs(), config)
	s := begin(t, first, checkpoint.Run{Line: line()})
	for range 100 {
		s.transaction(topic, 20)
	}
	s.settle()
	s.transaction(topic, 20, true)
	before := s

	// Another instance takes over and fences the first, in the middle of a transaction.
	second := start(t, kafka.Addrs(), config)
	s = begin(t, second, goesOn())
	before.k.Reached(101)
	require.ErrorContains(t, before.fails(), "another instance took over")
	for range 110 {
		s.transaction(topic, 20)
	}
	s.settle()
	s.reaches()
	exact(t, kafka.Addrs(), topic, 110, 20)
}

// A transaction that is larger than a Kafka transaction may be is split, and taken up again in its
// middle; a smaller one stays whole.
func TestTransaction_Large(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(2, "orders"))
	k := start(t, c.ListenAddrs(), exactly)
	s := begin(t, k, checkpoint.Run{Line: line()})
	s.transaction("orders", 20)
	s.settle()
	s.transaction("orders", 90, true)
	s.k.Flush()
	s.take()
	require.Len(t, s.settled, 20, "it may still be whole")
	for i := 90; i < 250; i++ {
		s.publish(s.part("orders", i))
	}
	s.until("the first parts", func() bool { return len(s.settled) >= 120 })
	require.Less(t, s.mail.Reached, pglogrepl.LSN(2))

	s = begin(t, k, goesOn())
	s.transaction("orders", 20)
	s.transaction("orders", 430)
	s.settle()
	s.reaches()
	ids := committedOf(t, c.ListenAddrs(), "orders", 450)
	require.Len(t, ids, 450)
	slices.Sort(ids)
	require.Len(t, slices.Compact(ids), 450)
}

func TestTransaction_PositionsWithoutEvents(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(2, "orders"))
	k := start(t, c.ListenAddrs(), exactly)
	s := begin(t, k, checkpoint.Run{Line: line()})
	require.Zero(t, s.mail.Reached)
	k.Reached(lazyBytes - 1)
	s.take()
	require.Zero(t, s.mail.Reached, "a small step")
	k.Reached(lazyBytes)
	s.until("a state without events", func() bool { return s.mail.Reached == lazyBytes })
}

func TestTransaction_Contradictions(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(2, "orders"))
	k := start(t, c.ListenAddrs(), exactly)
	var contradiction *checkpoint.StateError
	_, err := tryBegin(t, k, goesOn())
	require.ErrorAs(t, err, &contradiction)
	require.Contains(t, contradiction.Problem, "no state is found")

	s := begin(t, k, checkpoint.Run{Line: line()})
	s.transaction("orders", 1)
	s.settle()
	copied := goesOn()
	copied.Line.Left = func(uint32) (pglogrepl.LSN, bool) { return 0, true }
	clone := start(t, c.ListenAddrs(), exactly)
	_, err = tryBegin(t, clone, copied)
	require.ErrorAs(t, err, &contradiction)
	s.transaction("orders", 1)
	s.settle() // the copy has fenced nobody

	var behind *checkpoint.EpochBehindError
	_, err = tryBegin(t, clone, checkpoint.Run{Line: line()})
	require.ErrorAs(t, err, &behind)
	require.False(t, errors.As(err, &contradiction))
}
