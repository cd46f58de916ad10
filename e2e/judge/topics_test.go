package judge_test

import (
	"fmt"
	"testing"
	"time"

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

	require.Eventually(t, func() bool { // with a marker for each transaction, which may come after the answer
		ends, err := judge.EndOffsets(t.Context(), cluster.Admin, topics...)
		return err == nil && ends.Sum() == 12
	}, time.Minute, 20*time.Millisecond)

	source := judge.Source{Brokers: cluster.Addrs(), Topics: topics, Committed: true}
	v, err := judge.Topics(t.Context(), source, ledger)
	require.NoError(t, err)
	require.NoError(t, v.Err())
	require.Equal(t, "committed 4 delivered 4 lost 0 phantom 0 reordered 0 duplicated 0 after-dedup 0", v.String())

	source.Committed = false
	v, err = judge.Topics(t.Context(), source, ledger)
	require.NoError(t, err)
	require.Equal(t, 2, v.Count(judge.Phantom))
}

// Two streams in one partition: the same ids and keys, and positions that tell nothing of each other.
func TestStreams(t *testing.T) {
	t.Parallel()
	cluster := testenv.Kafka(t)
	topic := cluster.Topic(t, 1, nil)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Addrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer client.Close()
	produce := func(stream string, n int) {
		r := record(n, "k", 0, header(1, stream), func(r *kgo.Record) { r.Topic = topic })
		require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
	}
	one, two := judge.NewLedger(), judge.NewLedger()
	for n := range 3 {
		event := judge.Event{ID: fmt.Sprint(n), Topic: topic, Key: []byte("k"), Value: []byte("v")}
		require.NoError(t, one.Commit(event))
		require.NoError(t, two.Commit(event))
	}
	for _, r := range []struct {
		stream string
		n      int
	}{{"one", 0}, {"one", 1}, {"one", 2}, {"two", 0}, {"two", 1}, {"one", 2}, {"two", 0}, {"two", 1}, {"two", 2}} {
		produce(r.stream, r.n)
	}

	source := judge.Source{Brokers: cluster.Addrs(), Topics: []string{topic}}
	verdicts, err := judge.Streams(t.Context(), source, map[string]*judge.Ledger{"one": one, "two": two})
	require.NoError(t, err)
	for stream, duplicates := range map[string]int{"one": 1, "two": 2} {
		require.NoError(t, verdicts[stream].Err())
		require.Equal(t, duplicates, verdicts[stream].Duplicates)
	}
	v, err := judge.Topics(t.Context(), source, one)
	require.NoError(t, err)
	require.Equal(t, 5, v.Count(judge.StreamChanged))

	_, err = judge.Streams(t.Context(), source, map[string]*judge.Ledger{"one": one})
	require.ErrorContains(t, err, `stream "two" has no ledger`)
	produce("two", 0)
	produce("two", 2) // as no process does that is alone
	verdicts, err = judge.Streams(t.Context(), source, map[string]*judge.Ledger{"one": one, "two": two})
	require.NoError(t, err)
	require.NoError(t, verdicts["one"].Err())
	require.Equal(t, []judge.Kind{judge.GapInRepeat}, verdicts["two"].Kinds())
}
