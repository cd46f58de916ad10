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
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			campaign(t, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

func campaign(t *testing.T, r *rand.Rand) {
	t.Helper()
	var drop, connections atomic.Int32
	c := fakeKafka(t, kfake.NumBrokers(3), kfake.SeedTopics(4, "orders"), kfake.ListenFn(
		func(network, addr string) (net.Listener, error) {
			l, err := net.Listen(network, addr) //nolint:noctx // the signature has none
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
	for range 60 {
		s.some("orders", r.IntN(200))
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
	}
	s.delivered(c.ListenAddrs(), "orders")
	require.Eventually(t, func() bool { return len(k.Troubles()) == 0 }, patience, 10*time.Millisecond)
}
