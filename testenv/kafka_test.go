package testenv_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/testenv"
)

// produce writes n records and waits until each is acknowledged.
func produce(t *testing.T, c *testenv.Cluster, topic string, n int, opts ...kgo.Opt) {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.Addrs()...), kgo.DefaultProduceTopic(topic),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(time.Second),
		kgo.RequestTimeoutOverhead(3*time.Second), kgo.ProduceRequestTimeout(3*time.Second))...)
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var records []*kgo.Record
	for i := range n {
		records = append(records, kgo.StringRecord(fmt.Sprint(i)))
	}
	require.NoError(t, client.ProduceSync(ctx, records...).FirstErr())
}

func TestKafka_ProduceAndConsume(t *testing.T) {
	t.Parallel()
	kafka := testenv.Kafka(t)
	topic := kafka.Topic(t, 1, map[string]string{"cleanup.policy": "delete"})
	produce(t, kafka, topic, 100)

	consumer := kafka.Consume(t, topic)
	for i, record := range consumer.WaitFor(t, 100, 30*time.Second) {
		require.Equal(t, fmt.Sprint(i), string(record.Value))
	}
	require.Empty(t, consumer.Rest(t, 500*time.Millisecond))

	kafka.AddPartitions(t, topic, 1)
	produce(t, kafka, topic, 1, kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(
		func(string) func(*kgo.Record, int) int { return func(_ *kgo.Record, n int) int { return n - 1 } })))
	require.EqualValues(t, 1, consumer.WaitFor(t, 1, 30*time.Second)[0].Partition)
}

func TestConsumer_Isolation(t *testing.T) {
	t.Parallel()
	kafka := testenv.Kafka(t)
	topic := kafka.Topic(t, 1, nil)
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Addrs()...), kgo.DefaultProduceTopic(topic),
		kgo.TransactionalID(topic))
	require.NoError(t, err)
	defer client.Close()
	for value, end := range map[string]kgo.TransactionEndTry{"aborted": kgo.TryAbort, "committed": kgo.TryCommit} {
		require.NoError(t, client.BeginTransaction())
		require.NoError(t, client.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr())
		require.NoError(t, client.EndTransaction(t.Context(), end))
	}
	kafka.Consume(t, topic).WaitFor(t, 2, 30*time.Second)
	committed := kafka.ConsumeCommitted(t, topic)
	require.Equal(t, "committed", string(committed.WaitFor(t, 1, 30*time.Second)[0].Value))
	require.Empty(t, committed.Rest(t, 300*time.Millisecond))
}
