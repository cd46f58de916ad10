package sink

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	logs "go.uber.org/zap/zaptest/observer"

	"github.com/walrelay/walrelay/checkpoint"
)

// writer produces to the topic of states as somebody else, in transactions.
type writer struct {
	t      *testing.T
	client *kgo.Client
}

func newWriter(t *testing.T, brokers []string, id string) *writer {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID(id),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return &writer{t, client}
}

// write opens a transaction and writes a record to the stream's partition.
func (w *writer) write(k *Kafka, key, value string) {
	w.t.Helper()
	require.NoError(w.t, w.client.BeginTransaction())
	record := &kgo.Record{
		Topic: "states", Partition: k.tx.states.partition, Key: []byte(key), Value: []byte(value),
	}
	require.NoError(w.t, w.client.ProduceSync(context.Background(), record).FirstErr())
}

func (w *writer) end(how kgo.TransactionEndTry) {
	w.t.Helper()
	require.NoError(w.t, w.client.EndTransaction(context.Background(), how))
}

// stateAt is the document of a state of the tests' line.
func stateAt(t *testing.T, reached uint64) string {
	t.Helper()
	l := line()
	state := l.Begin()
	state.Reached = pglogrepl.LSN(reached)
	text, err := state.Marshal()
	require.NoError(t, err)
	return string(text)
}

// begun is a sink whose stream has a state.
func begun(t *testing.T, c *kfake.Cluster) *Kafka {
	t.Helper()
	k := start(t, c.ListenAddrs(), exactly)
	s := begin(t, k, checkpoint.Run{Line: line()})
	s.transaction("orders", 1)
	s.settle()
	s.reaches()
	return k
}

func (k *Kafka) latest(t *testing.T) (found, open *checkpoint.State) {
	t.Helper()
	found, open, err := k.tx.states.read(context.Background())
	require.NoError(t, err)
	return found, open
}

func TestStates_Read(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "orders"))
	k := begun(t, c)
	found, open := k.latest(t)
	require.EqualValues(t, 1, found.Reached)
	require.Nil(t, open)

	// Somebody else's open transaction, with a record of another stream, hides nothing.
	other := newWriter(t, c.ListenAddrs(), "other")
	other.write(k, "another stream", "{}")
	one := newWriter(t, c.ListenAddrs(), "one")
	one.write(k, "test", stateAt(t, 100))
	found, open = k.latest(t)
	require.EqualValues(t, 1, found.Reached)
	require.EqualValues(t, 100, open.Reached)
	one.end(kgo.TryCommit)
	found, open = k.latest(t)
	require.EqualValues(t, 100, found.Reached)
	require.Nil(t, open)

	// What is aborted never was.
	one.write(k, "test", stateAt(t, 200))
	one.end(kgo.TryAbort)
	found, open = k.latest(t)
	require.EqualValues(t, 100, found.Reached)
	require.Nil(t, open)
	other.end(kgo.TryCommit)

	// The leader moves.
	partition := k.tx.states.partition
	require.NoError(t, c.MoveTopicPartition("states", partition, 1-c.LeaderFor("states", partition)))
	found, _ = k.latest(t)
	require.EqualValues(t, 100, found.Reached)

	// A record without a value deletes.
	plain, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer plain.Close()
	record := &kgo.Record{Topic: "states", Partition: k.tx.states.partition, Key: []byte("test")}
	require.NoError(t, plain.ProduceSync(t.Context(), record).FirstErr())
	found, open = k.latest(t)
	require.Nil(t, found)
	require.Nil(t, open)
}

// Whatever order transactions of several producers end in, the latest committed record counts.
func TestStates_Interleaved(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := begun(t, c)
	a, b := newWriter(t, c.ListenAddrs(), "a"), newWriter(t, c.ListenAddrs(), "b")
	a.write(k, "test", stateAt(t, 100))
	b.write(k, "test", stateAt(t, 200))
	b.end(kgo.TryCommit)
	a.end(kgo.TryCommit)
	found, open := k.latest(t)
	require.EqualValues(t, 200, found.Reached)
	require.Nil(t, open)

	// A marker that was compacted away: what lies before the last stable offset is committed.
	h := &history{pending: map[int64]*version{1: {offset: 5, text: []byte("a")}, 2: {offset: 9, text: []byte("b")}}}
	h.close(9)
	require.Equal(t, "a", string(h.committed.text))
	require.Equal(t, "b", string(h.undecided().text))
}

// The last transaction of a predecessor is committed, but its markers are not written when the next
// begins: that is no contradiction.
func TestStates_MarkersThatAreLate(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprintf("commits %v", commits), func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
			k := begun(t, c)
			late := newWriter(t, c.ListenAddrs(), "late")
			late.write(k, "test", stateAt(t, 100))
			c.ControlKey(int16(kmsg.InitProducerID), func(kmsg.Request) (kmsg.Response, error, bool) {
				c.DropControl()
				c.SleepControl(func() { _ = late.client.EndTransaction(context.Background(), kgo.TransactionEndTry(commits)) })
				return nil, nil, false
			})
			run := goesOn()
			run.Line.Confirmed = 100
			_, err := tryBegin(t, k, run)
			if commits {
				require.NoError(t, err)
				return
			}
			var contradiction *checkpoint.StateError
			require.ErrorAs(t, err, &contradiction)
		})
	}
}

func TestStates_Refusals(t *testing.T) {
	t.Parallel()
	refusal := func(t *testing.T, k *Kafka, run checkpoint.Run) *checkpoint.StateError {
		t.Helper()
		_, err := tryBegin(t, k, run)
		var refused *checkpoint.StateError
		require.ErrorAs(t, err, &refused)
		return refused
	}
	t.Run("newer version", func(t *testing.T) {
		t.Parallel()
		c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
		k := begun(t, c)
		w := newWriter(t, c.ListenAddrs(), "newer")
		w.write(k, "test", `{"version":2}`)
		w.end(kgo.TryCommit)
		require.Contains(t, refusal(t, k, goesOn()).Problem, "a newer version of walrelay wrote it")
	})
	t.Run("no state", func(t *testing.T) {
		t.Parallel()
		c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
		k := begun(t, c)
		w := newWriter(t, c.ListenAddrs(), "garbage")
		w.write(k, "test", "garbage")
		w.end(kgo.TryCommit)
		_, err := tryBegin(t, k, goesOn())
		require.ErrorContains(t, err, fmt.Sprintf("read states-%d: read state", k.tx.states.partition))
	})
	for _, policy := range []string{"delete", "compact,delete"} {
		t.Run("policy "+policy, func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t)
			require.NoError(t, c.CreateTopic("states", 4, map[string]string{"cleanup.policy": policy}))
			k := start(t, c.ListenAddrs(), exactly)
			require.Contains(t, refusal(t, k, checkpoint.Run{Line: line()}).Problem, "cleanup.policy="+policy)
		})
	}
	t.Run("fewer partitions", func(t *testing.T) {
		t.Parallel()
		c := fakeKafka(t)
		require.NoError(t, c.CreateTopic("states", 4, map[string]string{"cleanup.policy": "compact"}))
		k := start(t, c.ListenAddrs(), exactly)
		run := checkpoint.Run{Line: line(), Partitions: map[string]int32{"states": 5}}
		require.Contains(t, refusal(t, k, run).Problem, "has 4 partitions, of 5")
	})
}

// The partition stays the one that was chosen, however many there are later.
func TestStates_MorePartitions(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	require.NoError(t, c.CreateTopic("states", 5, map[string]string{"cleanup.policy": "compact"}))
	k := start(t, c.ListenAddrs(), exactly)
	s := begin(t, k, checkpoint.Run{Line: line()})
	s.take()
	require.EqualValues(t, 5, s.partitions["states"])
	chosen := k.tx.states.partition
	require.Equal(t, partitionOf([]byte("test"), 5), chosen)
	require.NotEqual(t, partitionOf([]byte("test"), 16), chosen, "the test says nothing")

	admin, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	require.NoError(t, err)
	defer admin.Close()
	req := kmsg.NewPtrCreatePartitionsRequest()
	topic := kmsg.NewCreatePartitionsRequestTopic()
	topic.Topic, topic.Count = "states", 16
	req.Topics = append(req.Topics, topic)
	_, err = req.RequestWith(t.Context(), admin)
	require.NoError(t, err)

	run := goesOn()
	run.Partitions = map[string]int32{"states": 5}
	s = begin(t, k, run)
	require.Equal(t, chosen, k.tx.states.partition)
	s.transaction("orders", 3)
	s.settle()
	s.reaches()
	s.take()
	require.NotContains(t, s.partitions, "states")
}

func TestStates_TopicIsCreated(t *testing.T) {
	t.Parallel()
	for _, others := range []bool{false, true} {
		c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
		core, lines := logs.New(zap.InfoLevel)
		begin(t, start(t, c.ListenAddrs(), func(c *Config) {
			exactly(c)
			c.CreateTopics, c.Logger = others, zap.New(core)
		}), checkpoint.Run{Line: line()})
		require.Len(t, c.PartitionInfos("states"), statePartitions)
		require.Equal(t, "compact", *c.TopicInfo("states").Configs["cleanup.policy"])
		require.Len(t, lines.FilterMessage("topic created").All(), 1)
	}
}

// Without the right to create or to read it, the error names the topic and the right.
func TestStates_Rights(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		key   kmsg.Key
		right string
		topic bool
	}{
		"create":   {kmsg.CreateTopics, "CREATE", false},
		"describe": {kmsg.Metadata, "DESCRIBE", true},
		"read":     {kmsg.Fetch, "READ", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t)
			if test.topic {
				require.NoError(t, c.CreateTopic("states", 1, map[string]string{"cleanup.policy": "compact"}))
				w := start(t, c.ListenAddrs(), exactly)
				begin(t, w, checkpoint.Run{Line: line()}) // so that there is something to read
			}
			c.Fault(kfake.Fault{Keys: []kmsg.Key{test.key}, Topic: "states", Err: kerr.TopicAuthorizationFailed, Count: -1})
			k := start(t, c.ListenAddrs(), exactly)
			_, err := tryBegin(t, k, goesOn())
			require.ErrorContains(t, err, "states")
			require.ErrorContains(t, err, test.right)
		})
	}
}
