package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/walrelay/walrelay/kit/consumer"
	"github.com/walrelay/walrelay/testenv"
)

// publish writes events 1 to n as the relay would, in tails of five that are delivered so many times.
func publish(t *testing.T, cluster *testenv.Cluster, topic string, n, times int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Addrs()...), kgo.DefaultProduceTopic(topic))
	require.NoError(t, err)
	defer client.Close()
	for start := 1; start <= n; start += 5 {
		for range times {
			for n := start; n < start+5; n++ {
				position := consumer.Position{Epoch: 1, Timeline: 1, LSN: uint64(n), Index: 0}
				require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{
					Key: fmt.Append(nil, n%7), Value: fmt.Append(nil, n),
					Headers: []kgo.RecordHeader{
						{Key: consumer.HeaderID, Value: fmt.Append(nil, "id-", n)},
						{Key: consumer.HeaderStream, Value: []byte("shop")},
						{Key: consumer.HeaderPosition, Value: []byte(position.String())},
					},
				}).FirstErr())
			}
		}
	}
}

// instances runs two of a kind at once, replaces each by a new one again and again, and ends when so many events as
// wanted are done. A life lasts for some seconds, and for some events: on a busy machine a group takes long to form.
func instances(t *testing.T, run func(ctx context.Context, name string) error, done func() int, want int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	var reached atomic.Int64
	for i := range 2 {
		group.Go(func() error {
			for ctx.Err() == nil {
				life, end := context.WithCancel(ctx)
				born := reached.Load()
				aged := time.AfterFunc(time.Duration(3+2*i)*time.Second, func() {
					assertEventually(func() bool { return reached.Load() > born || life.Err() != nil }, limit)
					end()
				})
				err := run(life, fmt.Sprint(i))
				aged.Stop()
				end()
				if err != nil {
					t.Logf("instance %d: %v", i, err)
				}
			}
			return nil
		})
	}
	ok := assertEventually(func() bool {
		n := done()
		reached.Store(int64(n))
		return n >= want
	}, limit)
	cancel()
	require.NoError(t, group.Wait())
	require.True(t, ok, "not done in time")
}

const limit = 5 * time.Minute

func assertEventually(done func() bool, limit time.Duration) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline.C:
			return false
		case <-tick.C:
		}
	}
	return true
}

// A trigger notes each attempt, before the primary key could swallow it.
func TestExample_AtLeastOnceWithSavedPositions(t *testing.T) {
	t.Parallel()
	cluster := testenv.Kafka(t)
	db := prepare(t, testenv.Postgres(t, 18))
	db.Exec(t, "CREATE TABLE bill (event_id text PRIMARY KEY, position text, content text)")
	db.Exec(t, "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "+
		"'BEGIN INSERT INTO effect (id) VALUES (NEW.event_id); RETURN NEW; END'")
	db.Exec(t, "CREATE TRIGGER note BEFORE INSERT ON bill FOR EACH ROW EXECUTE FUNCTION note()")
	topic := cluster.Topic(t, 3, nil)
	const events = 200
	var group errgroup.Group
	group.Go(func() error { publish(t, cluster, topic, events, 2); return nil })
	instances(t, func(ctx context.Context, _ string) error {
		return runInbox(ctx, cluster.Addrs(), topic, db.Conn)
	}, func() (count int) {
		require.NoError(t, db.QueryRow(t, "SELECT count(*) FROM bill").Scan(&count))
		return count
	}, events)
	require.NoError(t, group.Wait())
	var applied, distinct int
	require.NoError(t, db.QueryRow(t, "SELECT count(*), count(DISTINCT id) FROM effect").Scan(&applied, &distinct))
	require.Equal(t, events, distinct)
	require.Equal(t, events, applied, "an event was applied twice")
}

func TestExample_ConsumeTransformProduce(t *testing.T) {
	t.Parallel()
	cluster := testenv.Kafka(t)
	from, to := cluster.Topic(t, 3, nil), cluster.Topic(t, 2, nil)
	const events = 200
	var group errgroup.Group
	group.Go(func() error { publish(t, cluster, from, events, 1); return nil })
	reader := cluster.ConsumeCommitted(t, to)
	var results []*kgo.Record
	instances(t, func(ctx context.Context, name string) error {
		return runTransform(ctx, cluster.Addrs(), from, to, name)
	}, func() int {
		results = append(results, reader.Rest(t, 200*time.Millisecond)...)
		return len(results)
	}, events)
	require.NoError(t, group.Wait())
	results = append(results, reader.Rest(t, 2*time.Second)...)
	var causes, want []string
	for _, r := range results {
		causes = append(causes, string(r.Headers[0].Value))
	}
	for n := range events {
		want = append(want, fmt.Sprint("id-", n+1))
	}
	slices.Sort(want)
	slices.Sort(causes)
	require.Equal(t, want, causes)
}
