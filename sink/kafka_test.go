package sink

import (
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

func TestKafka_DeliversInOrder(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.NumBrokers(3), kfake.SeedTopics(6, "orders", "users"))
	k := start(t, c.ListenAddrs(), nil)
	s := begin(t, k, checkpoint.Run{})
	s.some("orders", 2000)
	s.some("users", 1000)
	s.settle()
	require.Equal(t, map[string]int32{"orders": 6, "users": 6}, s.partitions)

	records := consume(t, c.ListenAddrs(), 3000, "orders", "users")
	require.Len(t, records, 3000)
	inOrder(t, records)
	java := kgo.StickyKeyPartitioner(nil).ForTopic("orders")
	for _, r := range records {
		require.EqualValues(t, java.Partition(r, 6), r.Partition)
	}
	require.Eventually(t, func() bool { return observed(k, "orders") == 2000 && observed(k, "users") == 1000 },
		patience, time.Millisecond)
	require.Empty(t, k.Troubles())
}

func TestKafka_WireFormat(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), func(c *Config) { c.Topic, _ = ParseTemplate("or{topic}") })
	s := begin(t, k, checkpoint.Run{})
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	s.publish(
		s.event("ders", "a", func(ev *decoder.Event) {
			ev.CommitTime = at
			ev.Type, ev.TraceParent = []byte("OrderPlaced"), []byte("00-4bf9-01")
			ev.Headers = []byte(`{"tenant":"x","none":null}`)
			ev.Timestamp = []byte("2026-01-01 00:00:00.5+00")
		}),
		s.event("ders", "", value(nil)),
		s.event("ders", "c", value([]byte{})),
	)
	k.Flush()
	s.settle()
	r := consume(t, c.ListenAddrs(), 3, "orders")
	require.Len(t, r, 3)

	require.Equal(t, "a", string(r[0].Key))
	require.Equal(t, "00000001", string(r[0].Value))
	require.Equal(t, []kgo.RecordHeader{
		{Key: "id", Value: []byte("id-1")},
		{Key: "walrelay-stream", Value: []byte("test")},
		{Key: "walrelay-position", Value: []byte("00000001-00000001-0000000000000001-00000000")},
		{Key: "walrelay-commit-time", Value: []byte("2026-01-02T03:04:05.678901Z")},
		{Key: "eventType", Value: []byte("OrderPlaced")},
		{Key: "traceparent", Value: []byte("00-4bf9-01")},
		{Key: "tenant", Value: []byte("x")},
		{Key: "none", Value: nil},
	}, r[0].Headers)
	require.True(t, time.Date(2026, 1, 1, 0, 0, 0, 5e8, time.UTC).Equal(r[0].Timestamp), r[0].Timestamp)

	require.Nil(t, r[1].Key)
	require.Nil(t, r[1].Value, "a tombstone")
	require.Len(t, r[1].Headers, 4)
	require.Equal(t, committed.UnixMilli(), r[1].Timestamp.UnixMilli())
	require.NotNil(t, r[2].Value, "an empty value is no tombstone")
	require.Empty(t, r[2].Value)
}

func TestPartitionOf_AgreesWithOtherClients(t *testing.T) {
	t.Parallel()
	other := sarama.NewMurmur2Partitioner("t")
	for i := range 2000 {
		key := fmt.Appendf(nil, "%0*d", i%40, i*i)
		want, err := other.Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, 7)
		require.NoError(t, err)
		require.Equal(t, want, partitionOf(key, 7), "%q", key)
	}
}
