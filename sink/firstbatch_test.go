package sink

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// A broker that holds no state for a producer id accepts any first sequence (KAFKA-15591). So if the first
// batch of several is refused and what it was refused for ends before the second one is looked at, the
// second one is written first. These tests bring that about in Apache Kafka itself, many times: when the
// producer starts, after rewinds, and when the broker has dropped the state meanwhile.
func TestReal_FirstBatch(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts brokers of its own")
	}
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{Brokers: 3, Settings: map[string]string{
		"producer.id.expiration.check.interval.ms": "20",
		"quota.window.num":                         "2", "quota.window.size.seconds": "1",
	}})
	const partitions = 12
	config := map[string]string{"min.insync.replicas": "2"}
	moved := firstBatches{t: t, kafka: kafka, topic: kafka.Topic(t, partitions, config)}
	held := firstBatches{t: t, kafka: kafka, topic: kafka.Topic(t, partitions, config)}
	forgotten := firstBatches{t: t, kafka: kafka, topic: kafka.Topic(t, partitions, config)}

	t.Run("leaders move", func(t *testing.T) {
		moved.try(t, 2, func(s *session) *session {
			for range 2 {
				moved.publish(s, 300)
				moved.moveLeaders(partitions)
				moved.publish(s, 300)
				s.until("some", func() bool { return len(s.settled) > 0 })
				s = s.rewind()
				moved.published(s)
			}
			return s
		})
	})

	kafka.StopBroker(t, 2)
	held.slowDown()
	t.Run("too few replicas", func(t *testing.T) {
		held.try(t, 2, func(s *session) *session {
			held.hold()
			held.publish(s, 600)
			held.awaitTrouble(s)
			held.resume()
			return s
		})
	})
	// What a broker knows of a producer expires by the timestamps of its records, however often it produces.
	// So it is gone when the batches come, and again and again while they are tried.
	t.Run("forgotten", func(t *testing.T) {
		forgotten.old = 48 * time.Hour
		forgotten.try(t, 2, func(s *session) *session {
			forgotten.publish(s, 200)
			s.settle()
			forgotten.awaitForgotten(s)
			forgotten.hold()
			forgotten.publish(s, 600)
			forgotten.awaitTrouble(s)
			forgotten.resume()
			return s
		})
	})
}

// firstBatches is a topic, and how to disturb it.
type firstBatches struct {
	t      *testing.T
	kafka  *testenv.Cluster
	topic  string
	old    time.Duration // age of the events
	ledger *judge.Ledger
	last   uint64 // event of the ledger
	from   uint64 // event before the next sink's first
}

// try runs a scenario n times, each with a producer id of its own, and judges what the topic then holds.
func (f *firstBatches) try(t *testing.T, n int, scenario func(*session) *session) {
	t.Helper()
	if f.ledger == nil {
		f.ledger = judge.NewLedger()
	}
	for i := range n {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			k := start(t, f.kafka.Addrs(), func(c *Config) {
				smallBatches(c)
				c.Timeout = patience // what is given up may yet arrive, and nobody knows the producer then
				c.BackoffMin, c.BackoffMax = 5*time.Millisecond, 20*time.Millisecond
			})
			s := begin(t, k, checkpoint.Run{})
			s.lsn = f.from
			s = scenario(s)
			if again := f.last - s.lsn; again > 0 {
				f.publish(s, int(again))
			}
			s.settle()
			f.from = s.lsn
		})
	}
	v, err := judge.Topics(t.Context(), judge.Source{Brokers: f.kafka.Addrs(), Topics: []string{f.topic}}, f.ledger)
	require.NoError(t, err)
	t.Log(v)
	require.NoError(t, v.Err())
}

// publish hands n events over, of which those count as committed that are new.
func (f *firstBatches) publish(s *session, n int) {
	for range n {
		ev := s.event(f.topic, fmt.Sprintf("key-%d", s.lsn%97), func(ev *decoder.Event) {
			ev.CommitTime = ev.CommitTime.Add(-f.old)
		})
		if s.lsn > f.last {
			f.last = s.lsn
			require.NoError(s.t, f.ledger.Commit(judge.Event{
				ID: string(ev.ID), Topic: f.topic, Key: ev.Key, Value: ev.Payload,
			}))
		}
		s.publish(ev)
	}
	s.k.Flush()
}

// published does again what was published before the rewind.
func (f *firstBatches) published(s *session) { f.publish(s, int(f.last-s.lsn)) }

// moveLeaders gives every partition another leader.
func (f *firstBatches) moveLeaders(partitions int32) {
	ctx := f.t.Context()
	topics, err := f.kafka.Admin.ListTopics(ctx, f.topic)
	require.NoError(f.t, err)
	var assignment kadm.AlterPartitionAssignmentsReq
	var elect kadm.TopicsSet
	for id := range partitions {
		replicas := topics[f.topic].Partitions[id].Replicas
		assignment.Assign(f.topic, id, append(replicas[1:], replicas[0]))
		elect.Add(f.topic, id)
	}
	_, err = f.kafka.Admin.AlterPartitionAssignments(ctx, assignment)
	require.NoError(f.t, err)
	_, err = f.kafka.Admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, elect)
	require.NoError(f.t, err)
}

// slowDown makes the brokers pause after each request of a producer that sends more than the quota: what it
// has sent behind that waits for a part of a second, so that a refusal may end between both.
func (f *firstBatches) slowDown() {
	_, err := f.kafka.Admin.AlterClientQuotas(f.t.Context(), []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "client-id"}}, // any
		Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 40_000}},
	}})
	require.NoError(f.t, err)
}

// hold makes the brokers refuse every batch, for now: one of three is down. It waits until those that are left know.
func (f *firstBatches) hold() {
	f.minInSync("3")
	request := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, f.topic
	resource.ConfigNames = []string{"min.insync.replicas"}
	request.Resources = append(request.Resources, resource)
	client, err := kgo.NewClient(kgo.SeedBrokers(f.kafka.Addrs()...))
	require.NoError(f.t, err)
	defer client.Close()
	for _, alive := range []int{0, 1} {
		require.Eventually(f.t, func() bool {
			answer, err := request.RequestWith(f.t.Context(), client.Broker(int(f.kafka.NodeID(alive))))
			return err == nil && *answer.Resources[0].Configs[0].Value == "3"
		}, patience, 5*time.Millisecond)
	}
}

// resume ends hold.
func (f *firstBatches) resume() { f.minInSync("2") }

func (f *firstBatches) minInSync(n string) {
	f.answered(f.kafka.Admin.AlterTopicConfigs(f.t.Context(), []kadm.AlterConfig{{
		Op: kadm.SetConfig, Name: "min.insync.replicas", Value: &n,
	}}, f.topic))
}

func (f *firstBatches) answered(answers kadm.AlterConfigsResponses, err error) {
	require.NoError(f.t, err)
	for _, a := range answers {
		require.NoError(f.t, a.Err)
	}
}

func (f *firstBatches) awaitTrouble(s *session) {
	require.Eventually(f.t, func() bool { return len(s.k.Troubles()) > 0 }, patience, time.Millisecond)
}

// awaitForgotten waits until no broker knows the session's producer.
func (f *firstBatches) awaitForgotten(s *session) {
	var topics kadm.TopicsSet
	topics.Add(f.topic)
	require.Eventually(f.t, func() bool {
		described, err := f.kafka.Admin.DescribeProducers(f.t.Context(), topics)
		producers, unknown := 0, err != nil
		described.EachPartition(func(p kadm.DescribedProducersPartition) { unknown = unknown || p.Err != nil })
		described.EachProducer(func(d kadm.DescribedProducer) {
			if d.ProducerID == s.k.producer.id {
				producers++
			}
		})
		return !unknown && producers == 0
	}, patience, 5*time.Millisecond)
}
