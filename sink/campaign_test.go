package sink

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walrelay/walrelay/checkpoint"
)

// Whatever happens to brokers and connections within a run: everything arrives once and in order.
func TestKafka_Campaign(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			c, s := campaign(t, rand.New(rand.NewPCG(seed, 0)), false)
			s.delivered(c.ListenAddrs(), "orders")
		})
	}
}

// With runs that begin anew from what is confirmed: a consumer that keeps the highest position of
// every partition gets everything once and in order.
func TestKafka_CampaignOfRuns(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			c, s := campaign(t, rand.New(rand.NewPCG(seed, 1)), true)
			s.settle()
			total := 0
			for _, p := range c.PartitionInfos("orders") {
				total += int(p.HighWatermark)
			}
			highest := map[int32]string{}
			accepted := 0
			for _, r := range consume(t, c.ListenAddrs(), total, "orders") {
				if pos, _ := header(r, headerPosition); pos > highest[r.Partition] {
					highest[r.Partition] = pos
					accepted++
				}
			}
			require.EqualValues(t, s.lsn, accepted)
		})
	}
}

func campaign(t *testing.T, r *rand.Rand, rewinds bool) (*kfake.Cluster, *session) {
	t.Helper()
	var drop, connections atomic.Int32
	c := fakeKafka(t, kfake.NumBrokers(3), kfake.SeedTopics(4, "orders"), kfake.ListenFn(
		func(network, addr string) (net.Listener, error) {
			l, err := net.Listen(network, addr)
			return lossy{l, &drop, &connections}, err
		}))
	k := start(t, c.ListenAddrs(), func(c *Config) {
		c.Timeout, c.MetadataEvery, c.BackoffMax = 300*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
		smallBatches(c)
	})
	codes := []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut,
		kerr.UnknownTopicOrPartition, kerr.KafkaStorageError,
	}
	s := begin(t, k, checkpoint.Run{})
	last := uint64(0) // of all runs: what was read once is read again
	for range 40 {
		s.some("orders", r.IntN(200))
		last = max(last, s.lsn)
		switch r.IntN(8) {
		case 0:
			require.NoError(t, c.MoveTopicPartition("orders", r.Int32N(4), r.Int32N(3)))
		case 1:
			c.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Partitions: []int32{r.Int32N(4)},
				Err: codes[r.IntN(len(codes))], Count: 1 + r.IntN(4),
			})
		case 2:
			c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				return nil, errors.New("reset"), true
			})
		case 3:
			drop.Add(1)
		case 4:
			c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, nil, true })
		case 5:
			n := len(s.settled)
			s.until("some", func() bool { return len(s.settled) > n || len(s.settled) == int(s.seq) })
		case 6:
			s.settle()
		}
		if rewinds && r.IntN(5) == 0 {
			s = s.rewind()
		}
	}
	s.some("orders", int(last-min(last, s.lsn)))
	s.settle()
	require.Eventually(t, func() bool { return len(k.Troubles()) == 0 }, patience, 10*time.Millisecond)
	return c, s
}

// rewind begins another run after what is settled without a gap.
func (s *session) rewind() *session {
	s.take()
	confirmed := s.lsn - s.seq
	for seq := uint64(1); s.settled[seq] > 0; seq++ {
		confirmed++
	}
	again := begin(s.t, s.k, checkpoint.Run{})
	again.lsn = confirmed
	return again
}
