package kit_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/testenv"
)

// BenchmarkKafka compares producers that wait for all in-sync replicas of three brokers: without anything, with
// sequence numbers, and with a transaction for each batch. See BenchmarkPatterns.
func BenchmarkKafka(b *testing.B) {
	cluster := testenv.StartKafka(b, testenv.KafkaConfig{Brokers: 3})
	topic := cluster.Topic(b, 1, nil)
	open := func(options ...kgo.Opt) *kgo.Client {
		client, err := kgo.NewClient(append(options, kgo.SeedBrokers(cluster.Addrs()...), kgo.DefaultProduceTopic(topic),
			kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0))...)
		require.NoError(b, err)
		b.Cleanup(client.Close)
		return client
	}
	plain, idempotent := open(kgo.DisableIdempotentWrite()), open()
	transactional := open(kgo.TransactionalID("kit-bench"))
	for _, size := range []int{10, 1000} {
		produce := func(client *kgo.Client) func(ctx context.Context, _ *testenv.Cluster, n int) error {
			return func(ctx context.Context, _ *testenv.Cluster, _ int) error {
				records := make([]*kgo.Record, size)
				for i := range records {
					records[i] = &kgo.Record{Value: make([]byte, 265)}
				}
				return client.ProduceSync(ctx, records...).FirstErr()
			}
		}
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			compare(b, cluster, []contender[*testenv.Cluster]{
				{name: "plain", base: "plain", run: produce(plain)},
				{name: "idempotent", base: "plain", run: produce(idempotent)},
				{name: "transaction", base: "plain", run: func(ctx context.Context, c *testenv.Cluster, n int) error {
					if err := transactional.BeginTransaction(); err != nil {
						return err
					}
					if err := produce(transactional)(ctx, c, n); err != nil {
						return err
					}
					return transactional.EndTransaction(ctx, kgo.TryCommit)
				}},
			}, nil)
		})
	}
}
