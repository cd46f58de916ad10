package sink

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walrelay/walrelay/checkpoint"
)

func TestTopic_MissingIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "others"))
	k := start(t, c.ListenAddrs(), nil)
	s := begin(t, k, checkpoint.Run{})
	s.some("orders", 100)
	s.some("others", 100)
	s.until("the topic that exists", func() bool { return len(s.settled) == 100 })
	require.Eventually(t, func() bool { return len(k.Troubles()) == 1 }, patience, time.Millisecond)
	require.Equal(t, "topic orders", k.Troubles()[0].Object)
	s.never(500*time.Millisecond, func() bool { return len(s.settled)+len(s.poison) > 100 || s.mail.Err != nil })
	require.NoError(t, c.CreateTopic("orders", 3, nil))
	s.settle()
	require.Empty(t, k.Troubles())
	inOrder(t, consume(t, c.ListenAddrs(), 200, "orders", "others"))
}

// Topics met later need not wait as long as one that stays missing.
func TestTopic_MissingDelaysNoOther(t *testing.T) {
	t.Parallel()
	const others = 30
	c := fakeKafka(t)
	for n := range others {
		require.NoError(t, c.CreateTopic(fmt.Sprint("other-", n), 1, nil))
	}
	var looks atomic.Int32
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		looks.Add(1)
		return nil, nil, false
	})
	k := start(t, c.ListenAddrs(), func(c *Config) { c.BackoffMax = longestPause })
	s := begin(t, k, checkpoint.Run{})
	s.some("orders", 1)
	require.Eventually(t, func() bool { return looks.Load() > 12 }, patience, time.Millisecond, "the longest pause")
	// One that is met right after a look, and had to wait for the next one at the missing topic, would have to for
	// half of the longest pause at least. On a machine that is busy elsewhere, some take that long all the same.
	soon := false
	for n := 0; !soon && n < others; n++ {
		began := time.Now()
		s.some(fmt.Sprint("other-", n), 1)
		s.until("the other topic", func() bool { return len(s.settled) == n+1 })
		soon = n > 0 && time.Since(began) < longestPause/2
	}
	require.True(t, soon)
}

func TestTopic_MissingIsCreated(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t)
	k := start(t, c.ListenAddrs(), func(c *Config) { c.CreateTopics, c.Partitions = true, 4 })
	s := begin(t, k, checkpoint.Run{})
	s.some("orders", 100)
	s.settle()
	require.Equal(t, map[string]int32{"orders": 4}, s.partitions)
	require.Empty(t, k.Troubles())
}

func TestTopic_MissingIsPoison(t *testing.T) {
	t.Parallel()
	for policy, action := range map[Policy]checkpoint.Action{
		Skip: checkpoint.Skipped, DeadLetter: checkpoint.DeadLettered,
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(1, "dead"))
			k := start(t, c.ListenAddrs(), func(c *Config) { c.OnPoison, c.DeadTopic = policy, "dead" })
			s := begin(t, k, checkpoint.Run{})
			s.some("orders", 10)
			s.until("the policy", func() bool { return len(s.poison) == 10 })
			s.some("orders", 10) // at once by now
			s.until("the policy", func() bool { return len(s.poison) == 20 })
			for _, p := range s.poison {
				require.Equal(t, action, p.Action)
				require.Equal(t, "orders", p.Topic)
			}
			require.NoError(t, c.CreateTopic("orders", 1, nil))
			require.Eventually(t, func() bool { s.some("orders", 1); s.take(); return len(s.settled) > 0 },
				patience, 10*time.Millisecond)
		})
	}
}

func TestTopic_LeaderlessPartitionIsTrouble(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "orders"))
	require.NoError(t, c.MoveTopicPartition("orders", 0, 0))
	require.NoError(t, c.MoveTopicPartition("orders", 1, 1))
	k := start(t, c.ListenAddrs(), nil)
	s := begin(t, k, checkpoint.Run{})
	s.some("orders", 100)
	s.settle()
	k.mu.Lock()
	topic := k.topics["orders"]
	k.lookout.apply(topic, finding{info: &topicInfo{leaders: []int32{0, -1}}})
	troubles := k.trouble.list() // the next refresh may come at once
	k.mu.Unlock()
	require.Len(t, troubles, 1)
	// The next refresh finds the leader again, without anything being produced.
	require.Eventually(t, func() bool { return len(k.Troubles()) == 0 }, patience, 10*time.Millisecond)
	s.some("orders", 100)
	s.delivered(c.ListenAddrs(), "orders")
}

func TestTopic_PartitionsGrow(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(2, "orders"))
	k := start(t, c.ListenAddrs(), func(c *Config) { c.MetadataEvery = 20 * time.Millisecond })
	s := begin(t, k, checkpoint.Run{Partitions: map[string]int32{"orders": 2}})
	s.some("orders", 100)
	s.settle()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	require.NoError(t, err)
	defer client.Close()
	for range 100 { // held back in open batches, since nobody says that the input has run dry
		s.publish(s.event("orders", "a"))
	}
	_, err = kadm.NewClient(client).CreatePartitions(context.Background(), 1, "orders")
	require.NoError(t, err)
	var changed *checkpoint.PartitionsChangedError
	require.ErrorAs(t, s.fails(), &changed)
	require.Equal(t, checkpoint.Partitions{Topic: "orders", Count: 3}, changed.Partitions)
	require.EqualValues(t, 2, changed.Recorded)
	accepted := int(s.seq)
	require.Len(t, s.settled, accepted, "settled before the run has ended")
	s.some("orders", 100) // dropped
	require.Len(t, consume(t, c.ListenAddrs(), accepted, "orders"), accepted)

	again := begin(t, k, checkpoint.Run{Partitions: map[string]int32{"orders": 3}})
	again.lsn = s.lsn
	again.some("orders", 100)
	again.settle()
}

func TestTopic_RecordedCountDiffers(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(3, "orders"))
	log := watch(c)
	k := start(t, c.ListenAddrs(), func(c *Config) { c.MetadataEvery = 20 * time.Millisecond })
	s := begin(t, k, checkpoint.Run{Partitions: map[string]int32{"orders": 2}})
	s.some("orders", 100)
	var changed *checkpoint.PartitionsChangedError
	require.ErrorAs(t, s.fails(), &changed)
	require.Never(t, func() bool { return len(log.of(0))+len(log.of(1))+len(log.of(2)) > 0 },
		200*time.Millisecond, 10*time.Millisecond)
	require.Empty(t, s.settled)
}
