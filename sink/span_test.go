package sink

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/testenv"
)

// spans records what the sink of a test makes. At the test's end each that began has ended.
type spans struct {
	t testing.TB
	*tracetest.SpanRecorder
}

func record(t testing.TB) spans {
	t.Helper()
	return spans{t, tracetest.NewSpanRecorder()}
}

// trace is a change to the configuration, on top of another; nil: none.
func (s spans) trace(change func(*Config)) func(*Config) {
	return func(c *Config) {
		if change != nil {
			change(c)
		}
		c.ClientID = "relay"
		c.Tracing = &Tracing{
			Provider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s)), MaxLinks: 128,
			Attributes: []attribute.KeyValue{attribute.String("walrelay.slot", "a_slot")},
		}
	}
}

// ended waits for the end of every span that has begun, and returns them in the order of their ends.
func (s spans) ended() []sdktrace.ReadOnlySpan {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return len(s.Ended()) == len(s.Started()) }, patience, time.Millisecond)
	return s.Ended()
}

// attributes of a span, as text.
func attributes(span sdktrace.ReadOnlySpan) map[string]string {
	found := map[string]string{}
	for _, a := range span.Attributes() {
		found[string(a.Key)] = a.Value.String()
	}
	return found
}

// linked are the contexts that a span links to, as traceparents.
func linked(span sdktrace.ReadOnlySpan) (parents []string) {
	for _, l := range span.Links() {
		parents = append(parents, traceParent(l.SpanContext))
	}
	return parents
}

func traceParent(sc trace.SpanContext) string {
	return fmt.Sprintf("00-%s-%s-%s", sc.TraceID(), sc.SpanID(), sc.TraceFlags())
}

// parent is the n-th trace context of these tests.
func parent(n int) string { return fmt.Sprintf("00-%032x-%016x-01", n, n) }

func tracedBy(text string) func(*decoder.Event) {
	return func(ev *decoder.Event) { ev.TraceParent = []byte(text) }
}

// together makes what is published to a topic for the first time wait for the release, so that it leaves in one batch.
func together(c *kfake.Cluster) (release func()) {
	held := make(chan struct{})
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case <-held: // kfake hangs when it is closed while a request sleeps
			c.DropControl()
		default:
			c.SleepControl(func() { <-held })
		}
		return nil, nil, false
	})
	return func() { close(held) }
}

func TestSpan_DescribesItsBatch(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	rec := record(t)
	k := start(t, c.ListenAddrs(), rec.trace(nil))
	s := begin(t, k, checkpoint.Run{})
	release := together(c)
	s.publish(
		s.event("orders", "a-key", tracedBy(parent(1))),
		s.event("orders", "a-key", tracedBy(parent(1))),
		s.event("orders", "a-key", tracedBy("garbage")),
		s.event("orders", "a-key", func(ev *decoder.Event) { ev.Headers = []byte(`{"traceparent": "` + parent(2) + `"}`) }),
		s.event("orders", "a-key", func(ev *decoder.Event) { ev.SpanContext = []byte("traceparent=" + parent(3)) }),
		s.event("orders", "a-key"),
	)
	k.Flush()
	release()
	s.settle()

	require.Len(t, rec.ended(), 1)
	span := rec.ended()[0]
	require.Equal(t, "send orders", span.Name())
	require.Equal(t, trace.SpanKindProducer, span.SpanKind())
	require.Equal(t, codes.Unset, span.Status().Code)
	require.False(t, span.Parent().IsValid())
	require.Equal(t, []string{parent(1), parent(2), parent(3)}, linked(span))
	found := attributes(span)
	require.NotEmpty(t, found["walrelay.batch.bytes"])
	require.Equal(t, "127.0.0.1", found["server.address"])
	require.Equal(t, c.ListenAddrs()[0], "127.0.0.1:"+found["server.port"])
	for _, measured := range []string{"walrelay.batch.bytes", "server.address", "server.port"} {
		delete(found, measured)
	}
	require.Equal(t, map[string]string{
		"messaging.system": "kafka", "messaging.operation.name": "send", "messaging.operation.type": "send",
		"messaging.client.id": "relay", "messaging.destination.name": "orders",
		"messaging.destination.partition.id": "0", "messaging.batch.message_count": "6",
		"walrelay.stream": "test", "walrelay.slot": "a_slot", "walrelay.batch.attempts": "1",
		"walrelay.batch.base_offset": "0",
		"walrelay.position.first":    position(1).String(), "walrelay.position.last": position(6).String(),
	}, found)
	require.Contains(t, span.InstrumentationScope().SchemaURL, "https://opentelemetry.io/schemas/")
}

// However often a batch has to be sent, it is one span.
func TestSpan_RetriedBatchIsOne(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*kfake.Cluster){
		"by the broker": func(c *kfake.Cluster) {
			c.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Partitions: []int32{0},
				Err: kerr.NotEnoughReplicas, Count: 3,
			})
		},
		"by the connection": func(c *kfake.Cluster) {
			left := 3
			c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				if left--; left >= 0 {
					c.KeepControl()
					return nil, errors.New("reset"), true
				}
				return nil, nil, false
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
			rec := record(t)
			k := start(t, c.ListenAddrs(), rec.trace(nil))
			s := begin(t, k, checkpoint.Run{})
			fail(c)
			s.publish(s.event("orders", "a", tracedBy(parent(1))))
			k.Flush()
			s.settle()

			require.Len(t, rec.ended(), 1)
			span := rec.ended()[0]
			require.Equal(t, codes.Unset, span.Status().Code)
			require.Equal(t, "4", attributes(span)["walrelay.batch.attempts"])
			require.NotContains(t, attributes(span), "error.type")
			require.Equal(t, []string{parent(1)}, linked(span))
			require.Len(t, span.Events(), 3)
			require.Equal(t, "retry", span.Events()[0].Name)
		})
	}
}

// The span of a batch in which the broker refuses a record says that; what is left of it has spans of its own.
func TestSpan_RefusedBatch(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c *kfake.Cluster) {
		rec := record(t)
		k := start(t, c.ListenAddrs(), rec.trace(func(c *Config) { c.OnPoison = Skip }))
		s := begin(t, k, checkpoint.Run{})
		release := together(c)
		s.publish(s.event("orders", "a"), s.event("orders", "a", value([]byte(culprit))), s.event("orders", "a"))
		k.Flush()
		release()
		s.until("all", func() bool { return len(s.settled) == 2 && len(s.poison) == 1 })

		delivered := 0
		for _, span := range rec.ended() {
			if span.Status().Code == codes.Error {
				require.Equal(t, errorPoison, attributes(span)["error.type"])
				require.Equal(t, classify(sarama.ErrInvalidRecord).reason, span.Status().Description)
			} else {
				delivered += messages(t, span)
			}
		}
		require.Equal(t, 2, delivered)
		require.Equal(t, codes.Error, rec.ended()[0].Status().Code)
	})
}

// messages is how many a span's batch has.
func messages(t *testing.T, span sdktrace.ReadOnlySpan) int {
	t.Helper()
	n, err := strconv.Atoi(attributes(span)["messaging.batch.message_count"])
	require.NoError(t, err)
	return n
}

// A run that ends leaves no span open: neither of what waits to be repeated nor of what is in flight.
func TestSpan_RunEnds(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(2, "orders"))
	rec := record(t)
	k := start(t, c.ListenAddrs(), rec.trace(nil))
	s := begin(t, k, checkpoint.Run{})
	c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Partitions: []int32{0}, Err: kerr.NotEnoughReplicas, Count: -1,
	})
	s.some("orders", 100)
	delivered := 0
	for n := range 97 { // as many keys
		if partitionOf(fmt.Appendf(nil, "key-%d", n), 2) == 1 {
			delivered++
		}
		if n < 3 && partitionOf(fmt.Appendf(nil, "key-%d", n), 2) == 1 {
			delivered++
		}
	}
	s.until("partition 1", func() bool { return len(s.settled) == delivered })
	require.NoError(t, k.End(t.Context()))
	first := rec.ended()
	abandoned := 0
	for _, span := range first {
		if attributes(span)["messaging.destination.partition.id"] == "1" {
			require.Equal(t, codes.Unset, span.Status().Code)
			continue
		}
		abandoned++
		require.Equal(t, codes.Error, span.Status().Code)
		require.Equal(t, errorAbandoned, attributes(span)["error.type"])
	}
	require.Positive(t, abandoned)

	// What another answer ends.
	s = begin(t, k, checkpoint.Run{})
	c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Partitions: []int32{1}, Err: kerr.UnknownProducerID, Count: 1,
	})
	s.some("orders", 100)
	require.ErrorIs(t, s.fails(), sarama.ErrUnknownProducerID)
	begin(t, k, checkpoint.Run{})
	for _, span := range rec.ended()[len(first):] {
		require.Equal(t, codes.Error, span.Status().Code)
		if attributes(span)["messaging.destination.partition.id"] == "1" {
			require.Equal(t, classify(sarama.ErrUnknownProducerID).reason, span.Status().Description)
		}
	}
}

// In exactly-once delivery a span lasts until its transaction is committed, and fails with it.
func TestSpan_ExactlyOnce(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	rec := record(t)
	k := start(t, c.ListenAddrs(), rec.trace(exactly))
	s := begin(t, k, checkpoint.Run{Line: line()})
	committed := make(chan time.Time, 1)
	c.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		committed <- time.Now()
		return nil, nil, false
	})
	s.transaction("orders", 20)
	s.settle()
	s.reaches()
	require.Len(t, rec.ended(), 1, "the states have none")
	span := rec.ended()[0]
	require.Equal(t, codes.Unset, span.Status().Code)
	require.Equal(t, "20", attributes(span)["messaging.batch.message_count"])
	require.Len(t, span.Events(), 1)
	require.Equal(t, "acknowledged", span.Events()[0].Name)
	require.False(t, span.EndTime().Before(<-committed))

	answersWith(c, kmsg.EndTxn, sarama.ErrInvalidTxnState, 1)
	s.transaction("orders", 20)
	require.ErrorIs(t, s.fails(), sarama.ErrInvalidTxnState)
	span = rec.ended()[1]
	require.Equal(t, codes.Error, span.Status().Code)
	require.Equal(t, errorAbandoned, attributes(span)["error.type"])
	require.Contains(t, span.Status().Description, "not committed")
}

// Against the real thing, under load: each event is in one span, and nothing of an event is in any.
func TestSpan_Real(t *testing.T) {
	t.Parallel()
	kafka := testenv.Kafka(t)
	for name, mode := range map[string]func(*Config){"at least once": smallBatches, "exactly once": exactly} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic, states := kafka.Topic(t, 3, nil), kafka.Topic(t, 1, map[string]string{"cleanup.policy": "compact"})
			rec := record(t)
			k := start(t, kafka.Addrs(), rec.trace(func(c *Config) {
				mode(c)
				c.Stream, c.StateTopic = "spans-"+topic, states
			}))
			s := begin(t, k, checkpoint.Run{Line: line()})
			const events = 3000
			for i := range events {
				s.publish(s.event(topic, fmt.Sprintf("secret-key-%d", i%97), tracedBy(parent(i+1)), func(ev *decoder.Event) {
					ev.ID, ev.Payload = fmt.Appendf(nil, "secret-id-%d", i), []byte("secret-payload")
					ev.Headers = []byte(`{"secret-header": "secret-too"}`)
				}))
				k.Reached(pglogrepl.LSN(s.lsn))
			}
			k.Flush()
			s.settle()

			count, links := 0, map[string]bool{}
			for _, span := range rec.ended() {
				require.Equal(t, codes.Unset, span.Status().Code)
				n := messages(t, span)
				count += n
				require.Len(t, span.Links(), min(n, 128))
				for _, l := range linked(span) {
					require.False(t, links[l], "linked twice")
					links[l] = true
				}
				for _, text := range append(linked(span), span.Name(), fmt.Sprint(attributes(span)), fmt.Sprint(span.Events())) {
					require.NotContains(t, text, "secret")
				}
			}
			require.Equal(t, events, count)
		})
	}
}
