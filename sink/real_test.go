package sink

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/testenv"
)

// These tests run against Apache Kafka itself, for what an imitation may get wrong.

func TestReal_Codecs(t *testing.T) {
	t.Parallel()
	kafka := testenv.Kafka(t)
	for codec := sarama.CompressionNone; codec <= sarama.CompressionZSTD; codec++ {
		t.Run(codec.String(), func(t *testing.T) {
			t.Parallel()
			topic := kafka.Topic(t, 3, nil)
			k := start(t, kafka.Addrs(), func(c *Config) { c.Compression = codec })
			s := begin(t, k, checkpoint.Run{})
			s.some(topic, 5000)
			s.publish(s.event(topic, "", value(nil)), s.event(topic, "a", value([]byte{})))
			k.Flush()
			s.delivered(kafka.Addrs(), topic)
		})
	}
}

// The largest record that a topic takes passes, whatever the codec makes of it; one byte more is
// found before anything is sent.
func TestReal_LargestRecord(t *testing.T) {
	t.Parallel()
	kafka := testenv.Kafka(t)
	for codec := sarama.CompressionNone; codec <= sarama.CompressionZSTD; codec++ {
		t.Run(codec.String(), func(t *testing.T) {
			t.Parallel()
			const limit = 100_000
			topic := kafka.Topic(t, 1, map[string]string{"max.message.bytes": fmt.Sprint(limit)})
			k := start(t, kafka.Addrs(), func(c *Config) { c.Compression = codec; c.OnPoison = Skip; c.BatchBytes = 1 << 20 })
			s := begin(t, k, checkpoint.Run{})
			noise := make([]byte, limit)
			_, _ = rand.Read(noise)
			size := func(ev *decoder.Event) int {
				k.mu.Lock()
				defer k.mu.Unlock()
				e, _, _ := k.record(0, ev)
				return int(e.size) + batchOverhead
			}
			largest := s.event(topic, "a", value(noise))
			for size(largest) > limit {
				largest.Payload = largest.Payload[1:]
			}
			require.Equal(t, limit, size(largest))
			larger := s.event(topic, "a", value(noise[:len(largest.Payload)+1]))
			require.Equal(t, limit+1, size(larger))
			s.publish(largest, larger)
			for range 50 {
				s.publish(s.event(topic, "a", value(noise[:9_000])))
			}
			k.Flush()
			s.until("all", func() bool { return len(s.settled) == 51 && len(s.poison) == 1 })
			require.EqualValues(t, 2, s.poison[0].Seq)
			require.Contains(t, s.poison[0].Reason, "takes 100001 bytes")
			require.NotContains(t, k.condemned, larger.Position, "the broker was not asked")
			require.Empty(t, k.condemned)
		})
	}
}

// unwelcome says how a broker comes to refuse an event of a topic for its content.
type unwelcome struct {
	config map[string]string // of the topic
	spoil  func(*decoder.Event)
}

func unwelcomes() map[string]unwelcome {
	return map[string]unwelcome{
		"timestamp ahead": {nil, func(ev *decoder.Event) {
			ev.Timestamp = time.Now().Add(3*time.Hour).UTC().AppendFormat(nil, "2006-01-02 15:04:05+00")
		}},
		"null key in a compacted topic": {
			map[string]string{"cleanup.policy": "compact"}, func(ev *decoder.Event) { ev.Key = nil },
		},
	}
}

// What the broker refuses for its content, in the middle of others.
func TestReal_RefusedRecords(t *testing.T) {
	t.Parallel()
	kafka := testenv.Kafka(t)
	for name, test := range unwelcomes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic, dead := kafka.Topic(t, 1, test.config), kafka.Topic(t, 1, nil)
			k := start(t, kafka.Addrs(), func(c *Config) { c.OnPoison, c.DeadTopic = DeadLetter, dead; smallBatches(c) })
			s := begin(t, k, checkpoint.Run{})
			for i := range 300 {
				ev := s.event(topic, "a")
				if i%100 == 49 {
					test.spoil(ev)
				}
				s.publish(ev)
			}
			k.Flush()
			s.until("all", func() bool { return len(s.settled)+len(s.poison) == 300 })
			require.Len(t, s.poison, 3)
			for _, p := range s.poison {
				require.Equal(t, checkpoint.DeadLettered, p.Action, p.Reason)
			}
			require.Equal(t, numbers(1, 300, 50, 150, 250), values(consume(t, kafka.Addrs(), 297, topic)))
			require.Len(t, consume(t, kafka.Addrs(), 3, dead), 3)
		})
	}
}

func TestReal_SequencesWrap(t *testing.T) {
	t.Parallel()
	kafka := testenv.Kafka(t)
	topic := kafka.Topic(t, 1, nil)
	k := start(t, kafka.Addrs(), smallBatches)
	s := begin(t, k, checkpoint.Run{})
	s.some(topic, 1)
	s.settle()
	// The broker accepts any first sequence of a producer that it does not know.
	k.mu.Lock()
	k.producer.id += 1_000_000
	p := k.topics[topic].partitions[0]
	p.nextSequence, p.proven = 2147483600, time.Time{}
	k.mu.Unlock()
	s.some(topic, 500)
	s.delivered(kafka.Addrs(), topic)
	require.EqualValues(t, 2147483600+500-1<<31, p.nextSequence)
}

// The next run starts in the middle of the earlier one: consumers see a contiguous repeat.
func TestReal_Rewind(t *testing.T) {
	t.Parallel()
	kafka := testenv.Kafka(t)
	topic := kafka.Topic(t, 3, nil)
	k := start(t, kafka.Addrs(), smallBatches)
	const total = 20_000
	s := begin(t, k, checkpoint.Run{})
	from := uint64(0)
	for range 4 {
		s.some(topic, 5000)
		s.until("some", func() bool { return len(s.settled) > 1000 })
		settled := s.settled
		first := s.lsn - s.seq // lsn of sequence 0
		s = begin(t, k, checkpoint.Run{})
		for from = first; settled[from-first+1] > 0; from++ { // the contiguous prefix is confirmed
		}
		s.lsn = from
	}
	s.some(topic, total-int(from))
	s.settle()
	ends, err := kafka.Admin.ListEndOffsets(t.Context(), topic)
	require.NoError(t, err)
	require.NoError(t, ends.Error())
	written := 0 // with the repeats
	ends.Each(func(o kadm.ListedOffset) { written += int(o.Offset) })
	records := consume(t, kafka.Addrs(), written, topic)
	seen := map[int32][]string{}
	all := map[string]bool{}
	for _, r := range records {
		all[string(r.Value)] = true
		pos := seen[r.Partition]
		now := string(r.Value)
		switch {
		case len(pos) == 0 || now > pos[len(pos)-1]:
			seen[r.Partition] = append(pos, now)
		default: // a repeat: it begins at something seen, and goes on from there
			at := slices.Index(pos, now)
			require.GreaterOrEqual(t, at, 0, "a first delivery that is late: %s", now)
			seen[r.Partition] = pos[:at+1]
		}
	}
	require.Len(t, all, total)
}

// The broker is killed in the middle and comes back: nothing is lost, repeated or out of order.
func TestReal_BrokerKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a broker of its own")
	}
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{})
	topic := kafka.Topic(t, 6, nil)
	k := start(t, kafka.Addrs(), func(c *Config) { c.Compression = sarama.CompressionLZ4; c.BatchBytes = 16 << 10 })
	s := begin(t, k, checkpoint.Run{})
	const total = 100_000
	for i := range 10 {
		s.some(topic, total/10)
		if i == 3 || i == 6 {
			s.until("some of it", func() bool { return len(s.settled) > i*total/10 })
			s.some(topic, 0)
			kafka.KillBroker(t, 0)
			kafka.StartBroker(t, 0)
		}
	}
	s.settle()
	records := consume(t, kafka.Addrs(), total, topic)
	require.Len(t, records, total, "no repeats within a run")
	inOrder(t, records)
	require.Eventually(t, func() bool { return len(k.Troubles()) == 0 }, patience, 10*time.Millisecond)
}

// A broker that is lost for good takes its leaderships with it; the others go on.
func TestReal_LeaderLost(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts brokers of its own")
	}
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{Brokers: 3})
	topic := kafka.Topic(t, 6, map[string]string{"min.insync.replicas": "2"})
	k := start(t, kafka.Addrs(), func(c *Config) { c.BatchBytes = 16 << 10 })
	s := begin(t, k, checkpoint.Run{})
	for i := range 6 {
		s.some(topic, 5000)
		if i == 2 {
			kafka.KillBroker(t, 1)
		}
	}
	s.delivered(kafka.Addrs(), topic)
	require.Eventually(t, func() bool { return len(k.Troubles()) == 0 }, patience, 10*time.Millisecond)
}

// A broker that freezes: the next run begins without it, and the end of the sink does not wait for a timeout.
func TestReal_BrokerFrozen(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a broker of its own")
	}
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{})
	topic := kafka.Topic(t, 6, nil)
	k, err := New(testConfig(t, kafka.Addrs(), func(c *Config) { c.BatchBytes, c.Timeout = 1<<20, 10*time.Second }))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	s := begin(t, k, checkpoint.Run{})
	s.some(topic, 1000)
	s.settle()

	kafka.PauseBroker(t, 0)
	for range 300 { // more than the socket's buffers take
		s.publish(s.event(topic, "", value(make([]byte, 200_000))))
	}
	k.Flush()
	require.Eventually(t, func() bool { return len(k.Troubles()) > 0 }, patience, 10*time.Millisecond)
	again := begin(t, k, checkpoint.Run{}) // the producer id is known: nothing has to be asked
	again.lsn = 1000
	again.some(topic, 100)
	kafka.ResumeBroker(t, 0)
	again.settle()

	kafka.PauseBroker(t, 0)
	again.some(topic, 100)
	began := time.Now()
	cancel()
	require.NoError(t, <-done)
	require.Less(t, time.Since(began), k.cfg.Timeout)
	kafka.ResumeBroker(t, 0)
}
