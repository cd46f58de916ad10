package sink

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walrelay/walrelay/checkpoint"
)

// The requests of the transaction protocol.
var protocol = []kmsg.Key{kmsg.FindCoordinator, kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.EndTxn}

// answersWith makes a cluster answer the next n requests of a kind with a code, after carrying them out
// when done says so.
func answersWith(c *kfake.Cluster, key kmsg.Key, code sarama.KError, n int) *kfake.FaultHandle {
	return c.Fault(kfake.Fault{
		Keys: []kmsg.Key{key}, TxnID: transactionalID("test", ""), Err: kerr.TypedErrorForCode(int16(code)), Count: n,
	})
}

func TestTransaction_RetriableAnswers(t *testing.T) {
	t.Parallel()
	for code := sarama.KError(-1); code < 140; code++ {
		if classifyTransaction(code).class != retry || kerr.TypedErrorForCode(int16(code)) == nil {
			continue
		}
		t.Run(fmt.Sprintf("code %d", code), func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(2, "orders"))
			k := start(t, c.ListenAddrs(), exactly)
			var faults []*kfake.FaultHandle
			for _, key := range protocol {
				faults = append(faults, answersWith(c, key, code, 2))
			}
			s := begin(t, k, checkpoint.Run{Line: line()})
			for i := range 5 {
				s.transaction("orders", 20)
				s.settle()
				faults = append(faults, answersWith(c, protocol[2+i%2], code, 2))
			}
			s.transaction("orders", 20)
			s.settle()
			s.reaches()
			for _, f := range faults[:8] {
				require.Equal(t, 2, f.Hits())
			}
			exact(t, c.ListenAddrs(), "orders", 6, 20)
			require.Empty(t, k.Troubles())
		})
	}
}

func TestTransaction_AnswersThatEndTheRun(t *testing.T) {
	t.Parallel()
	for _, code := range []sarama.KError{
		sarama.ErrInvalidProducerEpoch, sarama.ErrProducerFenced, sarama.ErrInvalidProducerIDMapping,
		sarama.ErrInvalidTxnState, sarama.ErrInvalidRequest,
	} {
		for _, key := range []kmsg.Key{kmsg.AddPartitionsToTxn, kmsg.EndTxn} {
			t.Run(fmt.Sprintf("code %d of %s", code, key.Name()), func(t *testing.T) {
				t.Parallel()
				c := fakeKafka(t, kfake.SeedTopics(2, "orders"))
				k := start(t, c.ListenAddrs(), exactly)
				s := begin(t, k, checkpoint.Run{Line: line()})
				s.transaction("orders", 20)
				s.settle()
				answersWith(c, key, code, 1)
				s.transaction("orders", 20)
				err := s.fails()
				require.ErrorIs(t, err, code)
				require.ErrorContains(t, err, classifyTransaction(code).reason)
				require.Len(t, s.settled, 20)

				s = begin(t, k, goesOn())
				for range 3 {
					s.transaction("orders", 20)
				}
				s.settle()
				s.reaches()
				exact(t, c.ListenAddrs(), "orders", 3, 20)
			})
		}
	}
}

// The coordinator refuses a time-out that is longer than it allows: the reason is named.
func TestTransaction_TimeoutThatIsTooLong(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.BrokerConfigs(map[string]string{"transaction.max.timeout.ms": "1000"}))
	k := start(t, c.ListenAddrs(), exactly)
	_, err := tryBegin(t, k, checkpoint.Run{Line: line()})
	require.ErrorIs(t, err, sarama.ErrInvalidTransactionTimeout)
	require.ErrorContains(t, err, "transaction.max.timeout.ms")
}

// lossyKafka is a cluster whose next answer gets lost for each one that is added to drop.
func lossyKafka(t *testing.T, drop *atomic.Int32, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	var connections atomic.Int32
	return fakeKafka(t, append(opts, kfake.ListenFn(func(network, addr string) (net.Listener, error) {
		l, err := net.Listen(network, addr)
		return lossy{l, drop, &connections}, err
	}))...)
}

// loses has the next request of a kind carried out and its answer lost.
func loses(c *kfake.Cluster, drop *atomic.Int32, key kmsg.Key) {
	c.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
		drop.Add(1)
		c.DropControl()
		return nil, nil, false
	})
}

func TestTransaction_LostAnswers(t *testing.T) {
	t.Parallel()
	for _, key := range append(protocol, kmsg.Produce) {
		t.Run(key.Name(), func(t *testing.T) {
			t.Parallel()
			var drop atomic.Int32
			c := lossyKafka(t, &drop, kfake.SeedTopics(2, "orders"))
			k := start(t, c.ListenAddrs(), exactly)
			loses(c, &drop, key)
			s := begin(t, k, checkpoint.Run{Line: line()})
			for range 5 {
				s.transaction("orders", 20)
				s.settle()
				loses(c, &drop, key)
			}
			s.transaction("orders", 20)
			s.settle()
			s.reaches()
			exact(t, c.ListenAddrs(), "orders", 6, 20)
		})
	}
}

// A commit is carried out, its answer is lost, and what the coordinator says next leaves that open: the
// next run reads the state and leaves out what is committed.
func TestTransaction_UnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, code := range []sarama.KError{sarama.ErrInvalidTxnState, sarama.ErrProducerFenced} {
		for _, committed := range []bool{true, false} {
			t.Run(fmt.Sprintf("code %d, committed %v", code, committed), func(t *testing.T) {
				t.Parallel()
				var drop atomic.Int32
				c := lossyKafka(t, &drop, kfake.SeedTopics(2, "orders"))
				k := start(t, c.ListenAddrs(), exactly)
				s := begin(t, k, checkpoint.Run{Line: line()})
				s.transaction("orders", 20)
				s.settle()
				s.reaches()
				if committed {
					loses(c, &drop, kmsg.EndTxn)
				} else {
					c.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
						return nil, errors.New("reset"), true
					})
				}
				ends := 0
				c.Fault(kfake.Fault{
					Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: transactionalID("test", ""), Err: kerr.TypedErrorForCode(int16(code)),
					When: func(kmsg.Request) bool { ends++; return ends > 1 || !committed },
				})
				s.transaction("orders", 20)
				require.ErrorIs(t, s.fails(), code)
				require.Len(t, s.settled, 20, "in doubt is not settled")

				s = begin(t, k, goesOn())
				s.transaction("orders", 20)
				s.transaction("orders", 20)
				s.until("what is known", func() bool { return len(s.settled) >= 20 })
				s.settle()
				s.reaches()
				exact(t, c.ListenAddrs(), "orders", 2, 20)
			})
		}
	}
}

// The coordinator forgets a transactional id that nobody used for days.
func TestTransaction_ForgottenID(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(2, "orders"))
	k := start(t, c.ListenAddrs(), exactly)
	s := begin(t, k, checkpoint.Run{Line: line()})
	s.transaction("orders", 20)
	s.settle()
	s.reaches()
	forgetAfter(t, c, "50")
	deadline := time.Now().Add(patience)
	for s.mail.Err == nil {
		require.True(t, time.Now().Before(deadline), "it is never forgotten")
		require.Never(t, func() bool { return false }, 100*time.Millisecond, 50*time.Millisecond)
		s.transaction("orders", 20)
		s.until("an outcome", func() bool { return len(s.settled) == int(s.seq) || s.mail.Err != nil })
	}
	forgetAfter(t, c, "604800000")
	require.ErrorIs(t, s.mail.Err, sarama.ErrInvalidProducerIDMapping)
	last := int(s.lsn)
	s = begin(t, k, goesOn())
	for range last {
		s.transaction("orders", 20)
	}
	s.settle()
	s.reaches()
	exact(t, c.ListenAddrs(), "orders", last, 20)
}

// forgetAfter says when a cluster's coordinators forget an id that is not used, in milliseconds.
func forgetAfter(t *testing.T, c *kfake.Cluster, after string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	require.NoError(t, err)
	defer client.Close()
	answers, err := kadm.NewClient(client).AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "transactional.id.expiration.ms", Value: &after},
	})
	require.NoError(t, err)
	require.NoError(t, answers[0].Err)
}

// What the leaders answer to batches of a transaction.
func TestTransaction_ProduceAnswers(t *testing.T) {
	t.Parallel()
	for code := sarama.KError(-1); code < 140; code++ {
		v := classify(code)
		known := kerr.TypedErrorForCode(int16(code))
		if known == nil || v.class != retry && v.class != rewind && v.class != order ||
			v == classify(sarama.KError(-1000)) {
			continue
		}
		t.Run(fmt.Sprintf("code %d", code), func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(2, "orders"))
			k := start(t, c.ListenAddrs(), exactly)
			s := begin(t, k, checkpoint.Run{Line: line()})
			s.transaction("orders", 20)
			s.settle()
			fault := c.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Partitions: []int32{0}, Err: known, Count: 1,
			})
			s.transaction("orders", 20)
			if v.class != retry {
				require.ErrorIs(t, s.fails(), code)
				require.Len(t, s.settled, 20)
				s = begin(t, k, goesOn())
				s.transaction("orders", 20)
				s.transaction("orders", 20)
			}
			s.settle()
			s.reaches()
			require.Equal(t, 1, fault.Hits())
			exact(t, c.ListenAddrs(), "orders", 2, 20)
			require.Empty(t, k.Troubles())
		})
	}
}

func TestTransaction_LeadersAndCoordinatorMove(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.NumBrokers(3), kfake.SeedTopics(3, "orders"))
	k := start(t, c.ListenAddrs(), exactly)
	s := begin(t, k, checkpoint.Run{Line: line()})
	for i := range 30 {
		s.transaction("orders", 20)
		require.NoError(t, c.MoveTopicPartition("orders", int32(i%3), int32(i%2)))
		require.NoError(t, c.MoveTopicPartition("states", k.tx.states.partition, int32(i%3)))
		if i%10 == 5 {
			c.RehashCoordinators()
		}
		s.settle()
	}
	s.reaches()
	exact(t, c.ListenAddrs(), "orders", 30, 20)
}

// The brokers end a transaction that lasts too long, here because a partition takes nothing.
func TestTransaction_EndedByTheBrokers(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), func(c *Config) { exactly(c); c.TransactionTimeout = 300 * time.Millisecond })
	s := begin(t, k, checkpoint.Run{Line: line()})
	held := c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: kerr.NotEnoughReplicas, Count: -1,
	})
	s.transaction("orders", 20)
	require.Eventually(t, func() bool { // the marker is all that gets there
		return held.Hits() > 0 && c.PartitionInfo("orders", 0).HighWatermark > 0
	}, patience, 10*time.Millisecond)
	held.Remove()
	require.ErrorContains(t, s.fails(), "produce to orders-0")
	require.Empty(t, s.settled)
	s = begin(t, start(t, c.ListenAddrs(), exactly), goesOn()) // with more time
	s.transaction("orders", 20)
	s.settle()
	s.reaches()
	exact(t, c.ListenAddrs(), "orders", 1, 20)
}

// Acknowledgements that come after a transaction was given up are nobody's: the next run must not take
// them for its own.
func TestTransaction_LateAcknowledgements(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "orders", "others"))
	require.NoError(t, c.MoveTopicPartition("orders", 0, 0))
	require.NoError(t, c.MoveTopicPartition("others", 0, 1))
	k := start(t, c.ListenAddrs(), exactly)
	s := begin(t, k, checkpoint.Run{Line: line()})
	s.transaction("others", 20)
	s.transaction("orders", 20)
	s.settle()
	s.reaches()

	held, release := make(chan struct{}), make(chan struct{})
	for topic, wake := range map[string]func(){
		"others": func() { close(held); <-release },
		"orders": func() { <-held },
	} {
		c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			if slices.ContainsFunc(batchesOf(req), func(b producedBatch) bool { return b.topic == topic }) {
				c.DropControl()
				c.SleepControl(wake)
			}
			return nil, nil, false
		})
	}
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: kerr.InvalidProducerEpoch})
	s.lsn++
	s.publish(s.part("others", 0))
	s.publish(s.part("orders", 1))
	s.k.Reached(3)
	require.ErrorIs(t, s.fails(), sarama.ErrInvalidProducerEpoch)
	require.Eventually(t, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.tx.idle == nil
	}, patience, time.Millisecond)
	close(release)
	require.Eventually(t, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.inFlight == 0
	}, patience, time.Millisecond)

	s = begin(t, k, goesOn())
	s.take()
	require.Empty(t, s.settled)
	s.transaction("others", 20)
	s.transaction("orders", 20)
	s.transaction("orders", 1)
	s.settle()
	s.reaches()
}

// The coordinator is silent: neither the end of a run nor the next Begin waits for it.
func TestTransaction_SilentCoordinator(t *testing.T) {
	t.Parallel()
	for _, key := range []kmsg.Key{kmsg.AddPartitionsToTxn, kmsg.EndTxn} {
		t.Run(key.Name(), func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
			k := start(t, c.ListenAddrs(), func(c *Config) { exactly(c); c.Timeout = 2 * patience })
			s := begin(t, k, checkpoint.Run{Line: line()})
			silent := make(chan struct{})
			c.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
				close(silent)
				return nil, nil, true
			})
			s.transaction("orders", 20)
			<-silent
			s = begin(t, k, goesOn())
			s.transaction("orders", 20)
			s.settle()
			s.reaches()
			exact(t, c.ListenAddrs(), "orders", 1, 20)
		})
	}
}

// Nothing is sent while no transaction is open, and what is sent belongs to one.
func TestTransaction_NothingIsSentOutside(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "orders"))
	open, ends := false, 0
	observe := func(key kmsg.Key, see func(kmsg.Request)) {
		c.ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
			see(req)
			return nil, nil, false
		})
	}
	var outside []producedBatch
	observe(kmsg.AddPartitionsToTxn, func(kmsg.Request) { open = true })
	observe(kmsg.EndTxn, func(kmsg.Request) { open = false; ends++ })
	observe(kmsg.Produce, func(req kmsg.Request) {
		for _, b := range batchesOf(req) {
			if !open || b.attributes&0x10 == 0 { // the bit of transactional batches
				outside = append(outside, b)
			}
		}
	})
	k := start(t, c.ListenAddrs(), func(c *Config) { exactly(c); smallBatches(c) })
	s := begin(t, k, checkpoint.Run{Line: line()})
	for range 20 {
		s.transaction("orders", 50)
		k.Flush()
		s.settle()
	}
	s.reaches()
	c.Close()
	require.Empty(t, outside)
	require.Greater(t, ends, 10)
}
