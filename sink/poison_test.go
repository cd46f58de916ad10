package sink

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// culprit is the value that the broker of refuseCulprits does not take in the topic "orders".
const culprit = "culprit"

// refuseCulprits makes a cluster refuse batches of "orders" that hold the culprit, naming the record or not.
// What is in the same request is asked to try again.
func refuseCulprits(c *kfake.Cluster, named bool) {
	c.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.ProduceRequest)
		res := req.ResponseKind().(*kmsg.ProduceResponse)
		refused := false
		for _, t := range req.Topics {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic = t.Topic
			for _, part := range t.Partitions {
				answer := kmsg.NewProduceResponseTopicPartition()
				answer.Partition, answer.ErrorCode = part.Partition, kerr.NotEnoughReplicas.Code
				if guilty := culprits(part.Records); t.Topic == "orders" && len(guilty) > 0 {
					refused = true
					answer.ErrorCode = kerr.InvalidRecord.Code
					for _, i := range guilty {
						if named {
							e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
							e.RelativeOffset = i
							answer.ErrorRecords = append(answer.ErrorRecords, e)
						}
					}
				}
				topic.Partitions = append(topic.Partitions, answer)
			}
			res.Topics = append(res.Topics, topic)
		}
		return res, nil, refused
	})
}

func culprits(raw []byte) (indexes []int32) {
	var b kmsg.RecordBatch
	if b.ReadFrom(raw) != nil {
		return nil
	}
	records, _ := kfake.BatchRecords(b)
	for i, r := range records {
		if string(r.Value) == culprit {
			indexes = append(indexes, int32(i))
		}
	}
	return indexes
}

func modes(t *testing.T, test func(t *testing.T, c *kfake.Cluster)) {
	t.Helper()
	for _, named := range []bool{true, false} {
		t.Run(fmt.Sprintf("named %v", named), func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(1, "orders", "others", "dead"))
			refuseCulprits(c, named)
			test(t, c)
		})
	}
}

// withCulprit publishes n events to "orders" of which those numbered in bad (from 1) are culprits.
func (s *session) withCulprit(n int, bad ...int) {
	for i := 1; i <= n; i++ {
		ev := s.event("orders", fmt.Sprintf("key-%d", i%10))
		if slices.Contains(bad, i) {
			ev.Payload = []byte(culprit)
		}
		s.publish(ev)
	}
	s.k.Flush()
}

func values(records []*kgo.Record) (values []string) {
	for _, r := range records {
		values = append(values, string(r.Value))
	}
	return values
}

// numbers are the values of events from first to last, without those in but.
func numbers(first, last int, but ...int) (values []string) {
	for i := first; i <= last; i++ {
		if !slices.Contains(but, i) {
			values = append(values, fmt.Sprintf("%08d", i))
		}
	}
	return values
}

func TestPoison_Skip(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c *kfake.Cluster) {
		k := start(t, c.ListenAddrs(), func(c *Config) { c.OnPoison = Skip; smallBatches(c) })
		s := begin(t, k, checkpoint.Run{})
		s.withCulprit(300, 7, 8, 150, 300)
		s.until("the end", func() bool { return len(s.settled) == 296 && len(s.poison) == 4 })
		for i, at := range []uint64{7, 8, 150, 300} {
			p := s.poison[i]
			require.Equal(t, checkpoint.Skipped, p.Action)
			require.Equal(t, at, p.Seq)
			require.Equal(t, position(at), p.Position)
			require.Equal(t, fmt.Sprintf("id-%d", at), p.EventID)
			require.Equal(t, "orders", p.Topic)
			require.Equal(t, "public.outbox", p.Table)
			require.NotContains(t, p.Reason, culprit)
		}
		records := consume(t, c.ListenAddrs(), 296, "orders")
		require.Equal(t, numbers(1, 300, 7, 8, 150, 300), values(records))
		require.NoError(t, s.mail.Err)
	})
}

func TestPoison_Stop(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c *kfake.Cluster) {
		k := start(t, c.ListenAddrs(), func(c *Config) { c.DeadTopic = "dead"; smallBatches(c) })
		s := begin(t, k, checkpoint.Run{})
		s.withCulprit(300, 150)
		s.until("the stop", func() bool { return len(s.settled) == 149 && len(s.poison) == 1 })
		require.Equal(t, checkpoint.Stopped, s.poison[0].Action)
		require.EqualValues(t, 150, s.poison[0].Seq)
		require.NoError(t, s.mail.Err)
		s.some("others", 10) // not accepted any more
		require.Equal(t, numbers(1, 149), values(consume(t, c.ListenAddrs(), 149, "orders")))

		// The next run without a verdict does not offer the event again.
		s = begin(t, k, checkpoint.Run{})
		s.lsn = 149
		s.publish(s.event("orders", "key-0", value([]byte(culprit))), s.event("orders", "key-1"))
		s.until("the stop", func() bool { return len(s.poison) == 1 })
		require.Empty(t, s.settled)

		s = begin(t, k, judged(150, checkpoint.VerdictRetry))
		s.lsn = 149
		s.publish(s.event("orders", "key-0", value([]byte("mended"))), s.event("orders", "key-1"))
		k.Flush()
		s.settle()
		want := append(numbers(1, 149), "mended", "00000151")
		require.Equal(t, want, values(consume(t, c.ListenAddrs(), 151, "orders")))
	})
}

func TestPoison_Verdicts(t *testing.T) {
	t.Parallel()
	for verdict, action := range map[checkpoint.Verdict]checkpoint.Action{
		checkpoint.VerdictSkip: checkpoint.Skipped, checkpoint.VerdictDeadLetter: checkpoint.DeadLettered,
	} {
		t.Run(string(verdict), func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(1, "orders", "dead"))
			refuseCulprits(c, true)
			k := start(t, c.ListenAddrs(), func(c *Config) { c.DeadTopic = "dead" })
			for _, restarted := range []bool{false, true} {
				if restarted { // another process carries the verdict out, and has not seen the refusal
					k = start(t, c.ListenAddrs(), func(c *Config) { c.DeadTopic = "dead" })
				} else {
					s := begin(t, k, checkpoint.Run{})
					s.withCulprit(20, 10)
					s.until("the stop", func() bool { return len(s.poison) == 1 })
				}
				s := begin(t, k, judged(10, verdict))
				s.withCulprit(20, 10)
				s.until("the verdict", func() bool { return len(s.settled) == 19 && len(s.poison) == 1 })
				require.Equal(t, action, s.poison[0].Action)
			}
		})
	}
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), nil)
	_, err := tryBegin(t, k, judged(10, checkpoint.VerdictDeadLetter))
	require.ErrorContains(t, err, "none is configured")
}

func TestPoison_DeadLetter(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c *kfake.Cluster) {
		k := start(t, c.ListenAddrs(), func(c *Config) { c.OnPoison, c.DeadTopic = DeadLetter, "dead"; smallBatches(c) })
		held := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "dead", Err: kerr.NotEnoughReplicas, Count: -1})
		s := begin(t, k, checkpoint.Run{})
		s.withCulprit(300, 150)
		s.until("the others", func() bool { return len(s.settled) == 299 })
		require.Eventually(t, func() bool { return held.Hits() > 0 }, patience, time.Millisecond)
		s.take()
		require.Empty(t, s.poison, "reported only once the dead-letter topic has it")
		held.Remove()
		s.until("the dead letter", func() bool { return len(s.poison) == 1 })
		require.Equal(t, checkpoint.DeadLettered, s.poison[0].Action)
		require.Equal(t, numbers(1, 300, 150), values(consume(t, c.ListenAddrs(), 299, "orders")))

		letter := consume(t, c.ListenAddrs(), 1, "dead")[0]
		require.Equal(t, culprit, string(letter.Value))
		require.Equal(t, "key-0", string(letter.Key))
		for name, want := range map[string]string{
			"id": "id-150", headerSourcePosition: position(150).String(),
			headerDeadTopic: "orders", headerDeadReason: s.poison[0].Reason,
		} {
			got, ok := header(letter, name)
			require.True(t, ok, name)
			require.Equal(t, want, got)
		}
		_, ok := header(letter, headerPosition)
		require.False(t, ok, "a dead letter is outside the order of positions")
	})
}

func TestPoison_FollowKey(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c *kfake.Cluster) {
		k := start(t, c.ListenAddrs(), func(c *Config) {
			c.OnPoison, c.DeadTopic, c.FollowKey = DeadLetter, "dead", true
			c.BatchBytes = 4 << 10 // so that a batch holds events of the key before and after the culprit
		})
		s := begin(t, k, checkpoint.Run{})
		s.withCulprit(100, 50) // key-0, as every tenth
		s.until("all", func() bool { return len(s.settled)+len(s.poison) == 100 })
		s.publish(s.event("orders", "key-0"), s.event("orders", "key-1"))
		k.Flush()
		s.until("all", func() bool { return len(s.settled) == 95 && len(s.poison) == 7 })
		require.Equal(t, append(numbers(1, 100, 50, 60, 70, 80, 90, 100), "00000102"),
			values(consume(t, c.ListenAddrs(), 95, "orders")))
		require.Equal(t, []string{culprit, "00000060", "00000070", "00000080", "00000090", "00000100", "00000101"},
			values(consume(t, c.ListenAddrs(), 7, "dead")))

		// The session remembers the key for the next run.
		dead := map[checkpoint.DeadKey]struct{}{{Topic: "orders", KeyDigest: [32]byte(s.poison[0].KeyDigest)}: {}}
		again := begin(t, k, checkpoint.Run{DeadKeys: dead})
		again.lsn = s.lsn
		again.publish(again.event("orders", "key-0"), again.event("orders", "key-1"))
		k.Flush()
		again.until("all", func() bool { return len(again.settled) == 1 && len(again.poison) == 1 })
		require.Len(t, dead, 1, "the session's map is its own")
	})
}

func TestPoison_Unfit(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t)
	require.NoError(t, c.CreateTopic("orders", 1, map[string]string{"max.message.bytes": "1000"}))
	require.NoError(t, c.CreateTopic("dead", 1, map[string]string{"max.message.bytes": "2000"}))
	k := start(t, c.ListenAddrs(), func(c *Config) { c.OnPoison, c.DeadTopic = DeadLetter, "dead" })
	s := begin(t, k, checkpoint.Run{})
	s.publish(s.event("orders", "a"), s.event("orders", "a", value(make([]byte, 1000))),
		s.event("orders", "a", value(make([]byte, 2000))), s.event("orders", "a"))
	k.Flush()
	s.until("all", func() bool { return len(s.settled) == 2 && len(s.poison) == 2 })
	actions := map[uint64]checkpoint.Action{} // in no particular order: the limit is read again first
	for _, p := range s.poison {
		actions[p.Seq] = p.Action
	}
	require.Equal(t, map[uint64]checkpoint.Action{2: checkpoint.DeadLettered, 3: checkpoint.Unfit}, actions)
	require.Len(t, consume(t, c.ListenAddrs(), 1, "dead")[0].Value, 1000)
}

// judged is a run with a verdict about one event.
func judged(lsn uint64, v checkpoint.Verdict) checkpoint.Run {
	return checkpoint.Run{Verdicts: map[checkpoint.Position]checkpoint.Verdict{position(lsn): v}}
}

// A limit that was lowered while we run: only what is too large is affected, and batches shrink.
func TestPoison_LimitLowered(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), func(c *Config) { c.OnPoison = Skip; c.BatchBytes = 32 << 10 })
	s := begin(t, k, checkpoint.Run{})
	s.some("orders", 100)
	s.settle()
	setLimit(t, c, "orders", "4000")
	s.publish(s.event("orders", "a", value(make([]byte, 5000))))
	s.some("orders", 1000)
	s.until("all", func() bool { return len(s.settled) == 1100 && len(s.poison) == 1 })
	require.EqualValues(t, 101, s.poison[0].Seq)
	require.Equal(t, numbers(1, 1101, 101), values(consume(t, c.ListenAddrs(), 1100, "orders")))
	limit := func() int {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.topics["orders"].limit
	}
	require.Eventually(t, func() bool { return limit() == 4000 }, patience, time.Millisecond)
}

// A limit that was raised since it was read binds no longer: not for what is too large by the old one,
// and what follows that stays behind it.
func TestPoison_LimitRaised(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t)
	require.NoError(t, c.CreateTopic("orders", 1, map[string]string{"max.message.bytes": "4000"}))
	k := start(t, c.ListenAddrs(), func(c *Config) { c.OnPoison = Skip })
	s := begin(t, k, checkpoint.Run{})
	s.some("orders", 100)
	s.publish(s.event("orders", "a", value(make([]byte, 5000))))
	s.until("the first", func() bool { return len(s.settled) == 100 && len(s.poison) == 1 })
	setLimit(t, c, "orders", "8000")
	s.publish(s.event("orders", "a", value(make([]byte, 5000))))
	s.some("orders", 100)
	s.publish(s.event("orders", "a", value(make([]byte, 9000))))
	s.some("orders", 100)
	s.until("all", func() bool { return len(s.settled) == 301 && len(s.poison) == 2 })
	require.EqualValues(t, 101, s.poison[0].Seq)
	require.EqualValues(t, 203, s.poison[1].Seq)
	require.Contains(t, s.poison[1].Reason, "is 8000")
	records := consume(t, c.ListenAddrs(), 301, "orders")
	require.Len(t, records[100].Value, 5000)
	require.Equal(t, slices.Concat(numbers(103, 202), numbers(204, 303)), values(records[101:]))
}

func setLimit(t *testing.T, c *kfake.Cluster, topic, bytes string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	require.NoError(t, err)
	defer client.Close()
	answers, err := kadm.NewClient(client).AlterTopicConfigs(context.Background(),
		[]kadm.AlterConfig{{Name: "max.message.bytes", Value: &bytes}}, topic)
	require.NoError(t, err)
	require.NoError(t, answers[0].Err)
}

// Neighbours of a refused record are delivered although something else has ended what is accepted.
func TestPoison_RefusedAfterTheStop(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders", "others"))
	k := start(t, c.ListenAddrs(), func(c *Config) { c.OnPoison = Skip })
	s := begin(t, k, checkpoint.Run{})
	s.some("orders", 1)
	s.settle()
	refuseCulprits(c, true)
	for i := range 20 {
		ev := s.event("orders", "a")
		if i == 10 {
			ev.Payload = []byte(culprit)
		}
		s.publish(ev)
	}
	k.mu.Lock()
	k.stop()
	k.mu.Unlock()
	s.until("all", func() bool { return len(s.settled) == 20 && len(s.poison) == 1 })
}

// What cannot be a record at all.
func TestPoison_Faults(t *testing.T) {
	t.Parallel()
	faults := map[string]func(*decoder.Event){
		"topic":         func(ev *decoder.Event) { ev.Route[0] = []byte("no topic") },
		"no topic":      func(ev *decoder.Event) { ev.Route[0] = nil },
		"headers":       func(ev *decoder.Event) { ev.Headers = []byte(`{"a":`) },
		"reserved":      func(ev *decoder.Event) { ev.Headers = []byte(`{"walrelay-position":"x"}`) },
		"timestamp":     func(ev *decoder.Event) { ev.Timestamp = []byte("infinity") },
		"span context":  func(ev *decoder.Event) { ev.SpanContext = []byte(`traceparent=\u12`) },
		"span reserved": func(ev *decoder.Event) { ev.SpanContext = []byte(`walrelay-stream=x`) },
		"span nameless": func(ev *decoder.Event) { ev.SpanContext = []byte(`=x`) },
		"fault":         func(ev *decoder.Event) { ev.Fault, ev.Route = fmt.Errorf("column id is NULL"), nil },
		"partial":       func(ev *decoder.Event) { ev.Fault, ev.Partial = fmt.Errorf("column key is missing"), true },
	}
	for name, spoil := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(1, "orders", "dead"))
			k := start(t, c.ListenAddrs(), func(c *Config) { c.OnPoison, c.DeadTopic = DeadLetter, "dead" })
			s := begin(t, k, checkpoint.Run{})
			s.publish(s.event("orders", "a"), s.event("orders", "a", spoil), s.event("orders", "a"))
			k.Flush()
			s.until("all", func() bool { return len(s.settled) == 2 && len(s.poison) == 1 })
			require.Equal(t, checkpoint.DeadLettered, s.poison[0].Action)
			letter := consume(t, c.ListenAddrs(), 1, "dead")[0]
			require.Equal(t, "00000002", string(letter.Value))
			require.Equal(t, committed.UnixMilli(), letter.Timestamp.UnixMilli())
			if name == "headers" || name == "reserved" {
				raw, _ := header(letter, headerDeadHeaders)
				require.True(t, bytes.HasPrefix([]byte(raw), []byte(`{`)))
			}
			_, raw := header(letter, headerDeadRaw)
			require.Equal(t, name == "partial", raw, "it is not to be published")
			back, err := lettersOf(t, k).Read(t.Context(), s.poison[0].Position)
			require.NoError(t, err)
			require.Equal(t, raw, back.Fault != nil)
			if strings.HasPrefix(name, "span") {
				require.Contains(t, s.poison[0].Reason, "span context: ")
				raw, _ := header(letter, headerDeadTracing)
				require.Regexp(t, `^(traceparent=\\u12|walrelay-stream=x|=x)$`, raw)
			}

			stopping := start(t, c.ListenAddrs(), nil)
			s = begin(t, stopping, checkpoint.Run{})
			s.publish(s.event("orders", "a"), s.event("orders", "a", spoil), s.event("orders", "a"))
			stopping.Flush()
			s.until("the stop", func() bool { return len(s.settled) == 1 && len(s.poison) == 1 })
			require.Equal(t, checkpoint.Stopped, s.poison[0].Action)
			require.NotContains(t, s.poison[0].Reason, "infinity")
		})
	}
}

func TestBegin_NeedsTheDeadLetterTopic(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), func(c *Config) { c.OnPoison, c.DeadTopic = DeadLetter, "dead" })
	_, err := tryBegin(t, k, checkpoint.Run{})
	require.ErrorContains(t, err, "dead-letter topic dead")
	require.NoError(t, c.CreateTopic("dead", 1, nil))
	begin(t, k, checkpoint.Run{})
}
