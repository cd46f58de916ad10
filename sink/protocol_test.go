package sink

import (
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walrelay/walrelay/checkpoint"
)

// smallBatches makes several batches of what the tests publish.
func smallBatches(c *Config) { c.BatchBytes = 2 << 10 }

// delivered requires that everything the session published is settled and in the log once, in order.
func (s *session) delivered(brokers []string, topic string) {
	s.t.Helper()
	s.settle()
	records := consume(s.t, brokers, int(s.seq), topic)
	require.Len(s.t, records, int(s.seq))
	inOrder(s.t, records)
}

func TestKafka_RetriableAnswers(t *testing.T) {
	t.Parallel()
	for code := sarama.KError(-1); code < 140; code++ {
		if v := classify(code); v.class != retry {
			continue
		}
		t.Run(fmt.Sprintf("code %d", code), func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(2, "orders"))
			k := start(t, c.ListenAddrs(), smallBatches)
			s := begin(t, k, checkpoint.Run{})
			s.some("orders", 200)
			s.settle() // the partition is proven: several batches may be in flight
			fault := c.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Partitions: []int32{0},
				Err: kerr.TypedErrorForCode(int16(code)), Count: 3,
			})
			s.some("orders", 1000)
			s.delivered(c.ListenAddrs(), "orders")
			require.Equal(t, 3, fault.Hits())
			require.Empty(t, k.Troubles())
		})
	}
}

func TestKafka_LeaderMoves(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.NumBrokers(3), kfake.SeedTopics(3, "orders"))
	k := start(t, c.ListenAddrs(), smallBatches)
	s := begin(t, k, checkpoint.Run{})
	for i := range 20 {
		s.some("orders", 300)
		require.NoError(t, c.MoveTopicPartition("orders", int32(i%3), int32(i%2)))
	}
	s.delivered(c.ListenAddrs(), "orders")
}

// A partition moves while its old leader still owes an answer: the new leader's sender has to learn
// that the answer came.
func TestKafka_LeaderMovesWhileAnAnswerIsDue(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "orders"))
	require.NoError(t, c.MoveTopicPartition("orders", 0, 0))
	k := start(t, c.ListenAddrs(), func(c *Config) { c.MetadataEvery = 20 * time.Millisecond })
	s := begin(t, k, checkpoint.Run{})
	release := make(chan struct{})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.DropControl()
		c.SleepControl(func() { <-release })
		return nil, nil, false
	})
	s.some("orders", 1)
	leads := func(id int32) func() bool {
		return func() bool {
			k.mu.Lock()
			defer k.mu.Unlock()
			topic := k.topics["orders"]
			return topic.partitions != nil && topic.partitions[0].leader == k.senders[id] && topic.partitions[0].inFlight != nil
		}
	}
	require.Eventually(t, leads(0), patience, time.Millisecond)
	require.NoError(t, c.MoveTopicPartition("orders", 0, 1))
	require.Eventually(t, leads(1), patience, time.Millisecond)
	s.some("orders", 1)
	close(release)
	s.delivered(c.ListenAddrs(), "orders")
}

func TestKafka_OneBatchUntilTheFirstAcknowledgement(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), smallBatches)
	s := begin(t, k, checkpoint.Run{})
	hold := func() chan struct{} {
		release := make(chan struct{})
		c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.DropControl()
			c.SleepControl(func() { <-release })
			return nil, nil, false
		})
		return release
	}
	inFlight := func() (n int) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if p := k.topics["orders"].partitions; p != nil {
			n = len(p[0].inFlight)
		}
		return n
	}
	release := hold()
	s.some("orders", 500)
	require.Eventually(t, func() bool { return inFlight() > 0 }, patience, time.Millisecond)
	require.Never(t, func() bool { return inFlight() > 1 }, 50*time.Millisecond, time.Millisecond)
	close(release)
	s.settle()

	release = hold()
	s.some("orders", 500)
	require.Eventually(t, func() bool { return inFlight() == maxInFlight }, patience, time.Millisecond)
	require.Never(t, func() bool { return inFlight() > maxInFlight }, 50*time.Millisecond, time.Millisecond)
	close(release)
	s.delivered(c.ListenAddrs(), "orders")
}

// The first of five batches times out although it is written, and its repeat is refused for a moment. Were others
// sent beside the repeat, the broker would no longer know the batch.
func TestKafka_RepeatIsStillKnown(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), smallBatches)
	s := begin(t, k, checkpoint.Run{})
	s.some("orders", 10)
	s.settle()
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: kerr.RequestTimedOut, Count: 1})
	release := make(chan struct{})
	first := int32(-1)
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		switch sequence := batchesOf(req)[0].sequence; {
		case first < 0:
			first = sequence
			c.SleepControl(func() { <-release })
		case sequence == first:
			c.DropControl()
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: kerr.NotEnoughReplicas, Count: 1})
		}
		return nil, nil, false
	})
	s.some("orders", 2000)
	require.Eventually(t, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.topics["orders"].partitions[0].inFlight) == maxInFlight
	}, patience, time.Millisecond)
	close(release)
	s.delivered(c.ListenAddrs(), "orders")
}

func TestKafka_AnswersThatEndTheRun(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{
		kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.ProducerFenced,
		kerr.UnsupportedForMessageFormat, kerr.UnsupportedCompressionType, kerr.InvalidRequiredAcks,
	} {
		t.Run(e.Message, func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
			log := watch(c)
			k := start(t, c.ListenAddrs(), nil)
			s := begin(t, k, checkpoint.Run{})
			s.some("orders", 10)
			s.settle()
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: e})
			s.some("orders", 10)
			require.ErrorIs(t, s.fails(), sarama.KError(e.Code))
			before := log.of(0)

			again := begin(t, k, checkpoint.Run{})
			again.lsn = s.lsn
			again.some("orders", 10)
			again.settle()
			after := log.of(0)[len(before):]
			require.NotEmpty(t, after)
			require.Equal(t, before[0].producer, after[0].producer)
			require.Equal(t, before[0].epoch+1, after[0].epoch)
			require.Zero(t, after[0].sequence)
			require.Len(t, consume(t, c.ListenAddrs(), 20, "orders"), 20)
		})
	}
}

func TestKafka_RunThatSentNothingUsesNoEpoch(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), nil)
	begin(t, k, checkpoint.Run{})
	first := k.producer
	begin(t, k, checkpoint.Run{})
	require.Equal(t, first, k.producer)
}

func TestKafka_NewProducerWhenTheEpochIsUsedUp(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), nil)
	begin(t, k, checkpoint.Run{})
	first := k.producer
	k.mu.Lock()
	k.producer.epoch, k.used = 32766, true
	k.mu.Unlock()
	s := begin(t, k, checkpoint.Run{})
	require.NotEqual(t, first.id, k.producer.id)
	require.Zero(t, k.producer.epoch)
	s.some("orders", 1)
	s.delivered(c.ListenAddrs(), "orders")
}

func TestNextSequence_Wraps(t *testing.T) {
	t.Parallel()
	require.Equal(t, int32(2147483647), nextSequence(2147483646, 1))
	require.Equal(t, int32(0), nextSequence(2147483647, 1))
	require.Equal(t, int32(4), nextSequence(2147483640, 12))
}

// A request of the earlier run is unanswered when the next begins.
func TestKafka_BeginWhileAnswersAreDue(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	log := watch(c)
	k := start(t, c.ListenAddrs(), func(c *Config) { smallBatches(c); c.Timeout = 2 * patience })
	s := begin(t, k, checkpoint.Run{})
	s.some("orders", 10)
	s.settle()
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, nil, true })
	s.some("orders", 500)
	require.Eventually(t, func() bool { return len(log.of(0)) > 1 }, patience, time.Millisecond)

	again := begin(t, k, checkpoint.Run{}) // connections are closed, answers are not waited for
	again.lsn = s.lsn
	again.some("orders", 500)
	again.settle()
	require.Empty(t, k.Troubles(), "the end of a run is no trouble")
	require.NoError(t, s.mail.Err)
}

// One partition that is refused over and over does not hold up another on the same broker.
func TestKafka_MutedPartitionDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "bad", "good"))
	k := start(t, c.ListenAddrs(), nil)
	s := begin(t, k, checkpoint.Run{})
	fault := c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: "bad", Err: kerr.NotEnoughReplicas, Count: -1,
	})
	s.some("bad", 10)
	for range 20 {
		s.some("good", 10)
		want := int(s.seq) - 10
		s.until("the good topic", func() bool { return len(s.settled) == want })
	}
	require.Len(t, k.Troubles(), 1)
	require.Equal(t, "topic bad", k.Troubles()[0].Object)
	fault.Remove()
	s.settle()
	require.Empty(t, k.Troubles())
}

// Partitions of one topic, one of them in trouble: it stays listed while the other is acknowledged.
func TestKafka_TroubleOfOnePartitionLasts(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(2, "orders"))
	k := start(t, c.ListenAddrs(), nil)
	s := begin(t, k, checkpoint.Run{})
	fault := c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Partitions: []int32{0}, Err: kerr.NotEnoughReplicas, Count: -1,
	})
	s.some("orders", 100)
	require.Eventually(t, func() bool { return fault.Hits() > 1 }, patience, time.Millisecond)
	since := k.Troubles()[0].Since
	s.some("orders", 100)
	s.until("the other partition", func() bool { return len(s.settled) > 0 })
	hits := fault.Hits()
	require.Eventually(t, func() bool { return fault.Hits() > hits+1 }, patience, time.Millisecond)
	require.Len(t, k.Troubles(), 1)
	require.Equal(t, since, k.Troubles()[0].Since)
	fault.Remove()
	s.delivered(c.ListenAddrs(), "orders")
	require.Empty(t, k.Troubles())
}

// What is not delivered when a run ends is not tried any more, though no other run begins.
func TestKafka_End(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), nil)
	require.NoError(t, k.End(t.Context())) // without a run
	s := begin(t, k, checkpoint.Run{})
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: kerr.NotEnoughReplicas, Count: -1})
	s.some("orders", 1)
	require.Eventually(t, func() bool { return fault.Hits() > 1 && len(k.Troubles()) > 0 }, patience, time.Millisecond)
	require.NoError(t, k.End(t.Context()))
	hits := fault.Hits() + 1 // one may have been on its way
	require.Empty(t, k.Troubles())
	require.Never(t, func() bool { return fault.Hits() > hits }, 10*k.cfg.BackoffMax, k.cfg.BackoffMax)
	fault.Remove()
	again := begin(t, k, checkpoint.Run{})
	again.lsn = s.lsn
	again.some("orders", 1)
	again.delivered(c.ListenAddrs(), "orders")
}
