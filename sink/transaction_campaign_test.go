package sink

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/testenv"
)

// visible reads what a read_committed consumer can see of topics at this moment.
func visible(t testing.TB, brokers []string, topics ...string) (records []*kgo.Record) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topics...), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.MetadataMinAge(50*time.Millisecond))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var ends kadm.ListedOffsets
	require.Eventually(t, func() bool { // a leader that has just been elected may not know
		ends, err = kadm.NewClient(client).ListCommittedOffsets(ctx, topics...)
		return err == nil && ends.Error() == nil
	}, patience, 10*time.Millisecond)
	due := map[string]int64{} // next offset to come, of partitions that have more
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			due[fmt.Sprint(o.Topic, o.Partition)] = o.Offset
		}
	})
	for len(due) > 0 {
		fetches := client.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "%v, %v", due, fetches.Errors())
		fetches.EachRecord(func(r *kgo.Record) {
			end, more := due[fmt.Sprint(r.Topic, r.Partition)]
			if more && r.Offset < end && !r.Attrs.IsControl() {
				records = append(records, r)
			}
			if r.Offset >= end-1 {
				delete(due, fmt.Sprint(r.Topic, r.Partition))
			}
		})
	}
	return records
}

// relay is a stream of transactions over several topics, and the sinks that take over from one another.
type relay struct {
	t       *testing.T
	r       *rand.Rand
	topics  []string
	brokers func() []string
	config  func(*Config)

	begun     bool
	confirmed uint64 // slot
	last      uint64 // highest transaction that was ever published
}

func sizeOf(lsn uint64) int { return 1 + int(lsn*7%12) }

// life is one sink. It begins a run, unless it is killed before, and publishes up to its end.
func (l *relay) life(transactions int, killed func(kill func())) (stop func()) {
	k, err := New(testConfig(l.t, l.brokers(), l.config))
	require.NoError(l.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	stop = func() { cancel(); require.NoError(l.t, <-done) }
	killed(cancel)
	run := checkpoint.Run{Line: line()}
	if l.begun {
		run.Line.Origin, run.Line.Confirmed = 1, pglogrepl.LSN(l.confirmed)
	}
	s, err := tryBegin(l.t, k, run)
	for deadline := time.Now().Add(patience); err != nil && ctx.Err() == nil; s, err = tryBegin(l.t, k, run) {
		var contradiction *checkpoint.StateError
		require.False(l.t, errors.As(err, &contradiction), "%v", err)
		require.True(l.t, time.Now().Before(deadline), "%v", err)
		pause(ctx, 50*time.Millisecond)
	}
	if err != nil {
		return stop
	}
	l.begun = true
	l.whole() // whoever came before is fenced
	s.lsn = l.confirmed
	goal := l.confirmed + uint64(transactions)
	for s.lsn < goal && s.mail.Err == nil && ctx.Err() == nil {
		s.lsn++
		for i := range sizeOf(s.lsn) {
			s.publish(s.part(l.topics[(int(s.lsn)+i)%len(l.topics)], i))
		}
		k.Reached(pglogrepl.LSN(s.lsn))
		l.last = max(l.last, s.lsn)
		s.take()
	}
	alive := time.NewTimer(patience)
	defer alive.Stop()
	for s.take(); s.mail.Reached < pglogrepl.LSN(s.lsn) && s.mail.Err == nil && ctx.Err() == nil; s.take() {
		select {
		case <-s.run.Mailbox.Wake():
			alive.Reset(patience)
		case <-ctx.Done():
		case <-alive.C:
			require.FailNow(l.t, "it stalls", "%d of %d, %v", s.mail.Reached, s.lsn, k.Troubles())
		}
	}
	l.confirmed = max(l.confirmed, uint64(s.mail.Reached))
	return stop
}

// whole requires that transactions are visible wholly or not at all, without a gap, once and in order.
func (l *relay) whole() (last uint64) {
	l.t.Helper()
	records := visible(l.t, l.brokers(), l.topics...)
	inOrder(l.t, records)
	events := map[uint64]int{}
	seen := map[string]bool{}
	for _, r := range records {
		id, _ := header(r, headerID)
		require.False(l.t, seen[id], "twice: %s", id)
		seen[id] = true
		var lsn uint64
		_, err := fmt.Sscanf(id, "id-%d-", &lsn)
		require.NoError(l.t, err)
		events[lsn]++
		last = max(last, lsn)
	}
	for lsn := uint64(1); lsn <= last; lsn++ {
		require.Equal(l.t, sizeOf(lsn), events[lsn], "transaction %d of %d", lsn, last)
	}
	require.GreaterOrEqual(l.t, last, l.confirmed, "nothing confirmed is missing")
	return last
}

// Sinks are killed at any moment of the protocol, or go on as zombies, and brokers are in trouble: a
// transaction over three topics is visible wholly or not at all, once.
func TestTransaction_Campaign(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 2))
			topics := []string{"a", "b", "c"}
			var drop atomic.Int32
			c := lossyKafka(t, &drop, kfake.NumBrokers(3), kfake.SeedTopics(2, topics...))
			l := &relay{t: t, r: r, topics: topics, brokers: c.ListenAddrs, config: func(c *Config) {
				exactly(c)
				c.TransactionInterval, c.Timeout = time.Millisecond, 300*time.Millisecond
				c.MetadataEvery, c.BackoffMax = 50*time.Millisecond, 50*time.Millisecond
				smallBatches(c)
			}}
			var left atomic.Int64 // requests until the kill
			var kill atomic.Pointer[func()]
			c.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				if left.Add(-1) == 0 {
					(*kill.Load())()
				}
				return nil, nil, false
			})
			var zombies []func()
			l.life(20, func(func()) { left.Store(1 << 40) })()
			for range 25 {
				misfortune(t, c, r, &drop, topics)
				stop := l.life(20+r.IntN(100), func(cancel func()) {
					kill.Store(&cancel)
					left.Store(5 + r.Int64N(150))
				})
				if r.IntN(3) == 0 {
					zombies = append(zombies, stop)
				} else {
					stop()
				}
			}
			for len(zombies) > 0 {
				zombies[0]()
				zombies = zombies[1:]
			}
			l.life(int(l.last-l.confirmed)+10, func(func()) { left.Store(1 << 40) })()
			require.EqualValues(t, l.confirmed, l.whole())
		})
	}
}

// misfortune makes brokers fail for a moment, in one of the ways that they have.
func misfortune(t *testing.T, c *kfake.Cluster, r *rand.Rand, drop *atomic.Int32, topics []string) {
	t.Helper()
	topic := topics[r.IntN(len(topics))]
	key := append([]kmsg.Key{kmsg.Produce}, protocol...)[r.IntN(5)]
	codes := []*kerr.Error{
		kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.ConcurrentTransactions, kerr.ProducerFenced,
	}
	switch r.IntN(7) {
	case 0:
		require.NoError(t, c.MoveTopicPartition(topic, r.Int32N(2), r.Int32N(3)))
	case 1:
		c.RehashCoordinators()
	case 2:
		drop.Add(r.Int32N(3))
	case 3:
		c.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, errors.New("reset"), true })
	case 4:
		c.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, nil, true })
	case 5:
		c.Fault(kfake.Fault{
			Keys: protocol, TxnID: transactionalID("test", ""), Err: codes[r.IntN(len(codes))], Count: 1 + r.IntN(3),
		})
	case 6:
		c.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicasAfterAppend, Count: 1 + r.IntN(3),
		})
	}
}

// The same on real brokers, of which one after the other is killed and started again.
func TestTransaction_RealCampaign(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts brokers of its own")
	}
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{Brokers: 3})
	var topics []string
	for range 3 {
		topics = append(topics, kafka.Topic(t, 3, map[string]string{"min.insync.replicas": "2"}))
	}
	l := &relay{
		t: t, r: rand.New(rand.NewPCG(1, 3)), topics: topics, brokers: kafka.Addrs,
		config: func(c *Config) { exactly(c); c.Replication = 3 },
	}
	killed := func(after time.Duration) func(func()) {
		return func(kill func()) { time.AfterFunc(after, kill) }
	}
	l.life(50, func(func()) {})()
	for i := range 4 {
		if i%2 == 1 {
			kafka.KillBroker(t, i/2)
		}
		stop := l.life(20_000, killed(time.Second+time.Duration(l.r.IntN(int(2*time.Second)))))
		if i%2 == 1 {
			kafka.StartBroker(t, i/2)
		}
		stop()
	}
	l.life(int(l.last-l.confirmed)+50, func(func()) {})()
	l.life(0, func(func()) {})() // its start waits until the last transaction is visible everywhere
	require.EqualValues(t, l.confirmed, l.whole())
}
