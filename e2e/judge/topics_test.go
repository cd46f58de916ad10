package judge_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

// The last offsets of a partition may belong to markers of transactions or to what was aborted.
func TestTopics_ReadsToTheEnd(t *testing.T) {
	t.Parallel()
	cluster := testenv.Kafka(t)
	// The last stays empty.
	topics := []string{cluster.Topic(t, 2, nil), cluster.Topic(t, 1, nil), cluster.Topic(t, 1, nil)}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(cluster.Addrs()...),
		kgo.TransactionalID(topics[0]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	require.NoError(t, err)
	defer client.Close()
	ledger := judge.NewLedger()
	produce := func(n int, topic string, partition int32) {
		r := record(n, "k", partition, func(r *kgo.Record) { r.Topic = topic })
		require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
	}
	for n := range 6 {
		topic := topics[n%2]
		require.NoError(t, client.BeginTransaction())
		produce(n, topic, 0)
		if n < 4 {
			require.NoError(t, client.EndTransaction(t.Context(), kgo.TryCommit))
			require.NoError(t, ledger.Commit(judge.Event{ID: fmt.Sprint(n), Topic: topic, Key: []byte("k"), Value: []byte("v")}))
		} else {
			require.NoError(t, client.EndTransaction(t.Context(), kgo.TryAbort))
		}
	}

	source := judge.Source{Brokers: cluster.Addrs(), Topics: topics, Committed: true}
	v, err := judge.Topics(t.Context(), source, ledger)
	require.NoError(t, err)
	require.NoError(t, v.Err())
	require.Equal(t, "committed 4 delivered 4 lost 0 phantom 0 reordered 0 duplicated 0 after-dedup 0", v.String())

	source.Committed = false
	v, err = judge.Topics(t.Context(), source, ledger)
	require.NoError(t, err)
	require.Equal(t, 2, v.Count(judge.Phantom))

	ends, err := judge.EndOffsets(t.Context(), cluster.Admin, topics...)
	require.NoError(t, err)
	require.Equal(t, int64(12), ends.Sum()) // with a marker for each transaction
}
