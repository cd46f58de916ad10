package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// traceParent is the n-th trace context of these tests.
func traceParent(n int) string { return fmt.Sprintf("00-%032x-%016x-01", n, n) }

// insertTraced writes one event with a trace context, if it has one.
func (s *setup) insertTraced(n int, parent string) {
	s.t.Helper()
	s.db.Exec(s.t, `INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload, traceparent)
		VALUES ($1, 'orders', $2, 'created', $3, nullif($4, ''))`,
		eventID(n), keyMark, `"`+payloadMark+`"`, parent)
}

// traced is a setup whose table has a column for it.
func traced(t *testing.T, s *setup) *collector {
	t.Helper()
	s.db.Exec(t, "ALTER TABLE public.outbox ADD traceparent text")
	return newCollector(t, s)
}

// Each batch is a span that links to the contexts of its rows, says what became of it, and nothing of an event.
func TestTracing_Links(t *testing.T) {
	t.Parallel()
	for name, start := range deliveries() {
		t.Run(name, func(t *testing.T) {
			s := start(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 3)
			c := traced(t, s)
			s.set("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
			relay := s.relay()
			consumer := s.consume(s.topic)
			const events = 100
			for n := range events {
				switch n {
				case 10:
					s.insertTraced(n, "")
				case 20:
					s.insertTraced(n, "00-not-a-context")
				default:
					s.insertTraced(n, traceParent(n+1))
				}
			}
			records := consumer.WaitFor(t, events, wait)
			require.Eventually(t, func() bool { return messages(c.received()) == events }, wait, tick)

			var want, got []string
			for _, r := range records {
				if parent := judge.Header(r, "traceparent"); strings.HasPrefix(parent, "00-0") {
					want = append(want, parent)
				}
			}
			for _, span := range c.received() {
				require.Equal(t, "send "+s.topic, span.Name)
				require.Equal(t, tracepb.Span_SPAN_KIND_PRODUCER, span.Kind)
				require.Equal(t, tracepb.Status_STATUS_CODE_UNSET, span.Status.GetCode())
				require.Equal(t, s.slot, textOf(span, "walrelay.slot"))
				require.Equal(t, s.slot, textOf(span, "walrelay.stream"))
				require.Less(t, span.StartTimeUnixNano, span.EndTimeUnixNano)
				got = append(got, linked(span)...)
				require.Contains(t, positions(records), textOf(span, "walrelay.position.first"))
				require.Contains(t, positions(records), textOf(span, "walrelay.position.last"))
			}
			slices.Sort(want)
			slices.Sort(got)
			require.Len(t, want, events-2)
			require.Equal(t, want, got)
			require.Equal(t, "walrelay", c.resource["service.name"])
			require.Equal(t, "test", c.resource["deployment.environment.name"])
			require.Eventually(t, func() bool {
				return s.metric("walrelay_spans_exported_total", "") == float64(len(c.received()))
			}, wait, tick)
			s.stop(relay)
			keepsSecrets(t, append(c.sent(), relay.Log())...)
		})
	}
}

// positions of records, as their headers tell.
func positions(records []*kgo.Record) (all []string) {
	for _, r := range records {
		all = append(all, judge.Header(r, "walrelay-position"))
	}
	return all
}

// A batch whose answers get lost is one span, however often it is sent.
func TestTracing_RetriedBatchIsOneSpan(t *testing.T) {
	t.Parallel()
	cluster, way := wiredKafka(t)
	s := halfOpen(t, testenv.Postgres(t, lastMajor()), cluster)
	s.set("WALRELAY_KAFKA_BROKERS", cluster.ListenerAddrs()[0])
	c := traced(t, s)
	relay := s.relay()
	consumer := s.consume(s.topic)
	s.insertTraced(1, traceParent(1))
	consumer.WaitFor(t, 1, wait)
	way.swallow(t, []string{"downstream"})
	s.insertTraced(2, traceParent(2))
	relay.WaitForLog(t, "delivery is held up", wait)
	way.heal()
	consumer.WaitFor(t, 1, wait)
	s.caughtUp()
	s.insertTraced(3, traceParent(3))
	require.Eventually(t, func() bool { return len(c.received()) == 3 }, wait, tick)
	for i, span := range c.received() {
		require.Equal(t, tracepb.Status_STATUS_CODE_UNSET, span.Status.GetCode())
		require.Equal(t, []string{traceParent(i + 1)}, linked(span))
		// A slow machine may have the others retried too.
		require.Equal(t, number(span, "walrelay.batch.attempts") > 1, len(span.Events) > 0)
	}
	require.Greater(t, number(c.received()[1], "walrelay.batch.attempts"), int64(1))
	require.Equal(t, "retry", c.received()[1].Events[0].Name)
}

// linked are the contexts that a span links to, as traceparents.
func linked(span *tracepb.Span) (parents []string) {
	for _, l := range span.Links {
		parents = append(parents, fmt.Sprintf("00-%x-%x-%02x", l.TraceId, l.SpanId, l.Flags&0xff))
	}
	return parents
}

// Without a collector events are delivered all the same, the log says so once, and once more when it is back.
func TestTracing_CollectorAway(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
	c := traced(t, s)
	s.set("OTEL_BSP_EXPORT_TIMEOUT", "10000") // milliseconds, after which spans are given up; none when it answers
	relay := s.relay()
	consumer := s.consume(s.topic)
	deliver := func(n int) {
		s.insertTraced(n, traceParent(n))
		consumer.WaitFor(t, 1, wait)
	}
	deliver(1)
	require.Eventually(t, func() bool { return len(c.received()) == 1 }, wait, tick)
	c.Close()
	n := 2
	for ; n < 7; n++ { // no more than the queue has room for
		deliver(n)
	}
	s.reaches("walrelay_spans_lost_total", `reason="export"`, 5)
	const away, back = "spans cannot be exported", "spans are exported again"
	require.Equal(t, 1, strings.Count(relay.Log(), away))
	require.NotContains(t, relay.Log(), back)
	s.ready(200, "streaming")

	c.listen(t)
	deliver(n)
	relay.WaitForLog(t, back, wait)
	require.Equal(t, 1, strings.Count(relay.Log(), away))
	require.Equal(t, 1, strings.Count(relay.Log(), back))
	require.Eventually(t, func() bool { // behind what waited meanwhile
		return slices.Contains(linked(c.received()[len(c.received())-1]), traceParent(n))
	}, wait, tick)

	// It refuses, and repeats what it was sent.
	s.stop(relay)
	s.set("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20"+collectorSecret+"-but-wrong")
	relay = s.relay()
	deliver(n + 1)
	relay.WaitForLog(t, away, wait)
	require.Contains(t, relay.Log(), "401 Unauthorized")
	s.stop(relay)
	require.NotContains(t, relay.Log(), collectorSecret)
}

// A collector that never answers holds up neither events nor, for longer than draining may take, the stop.
func TestTracing_CollectorHangs(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
	traced(t, s)
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + silence(t), "OTEL_BSP_MAX_QUEUE_SIZE": "10",
		"OTEL_BSP_EXPORT_TIMEOUT": "600000", "OTEL_EXPORTER_OTLP_TIMEOUT": "600000", // milliseconds
		"WALRELAY_SHUTDOWN_TIMEOUT": "1s",
	} {
		s.set(name, value)
	}
	relay := s.relay()
	consumer := s.consume(s.topic)
	n := 1
	for ; s.metric("walrelay_spans_lost_total", `reason="queue"`) == 0; n++ {
		s.insertTraced(n, traceParent(n))
		consumer.WaitFor(t, 1, wait)
	}
	s.caughtUp() // so that only spans are left to wait for
	s.stop(relay)
	require.Contains(t, relay.Log(), "spans were not exported before the stop")
	s.relay()
	s.insertTraced(n, traceParent(n))
	require.Equal(t, []string{eventID(n)}, delivered(consumer.WaitFor(t, 1, wait)), "nothing repeats")
}

// silence is the address of a server that takes requests and never answers one.
func silence(t *testing.T) string {
	t.Helper()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	return server.Listener.Addr().String()
}

// What cannot be meant is said at the start, without its value, and the stream goes on.
func TestTracing_Warnings(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
	c := traced(t, s)
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": collectorSecret, "OTEL_EXPORTER_OTLP_HEADERS": collectorSecret,
		"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
	} {
		s.set(name, value)
	}
	relay := s.relay()
	s.insertTraced(1, traceParent(1))
	s.consume(s.topic).WaitFor(t, 1, wait)
	for _, part := range []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT must be", "OTEL_EXPORTER_OTLP_HEADERS must be", "OTEL_EXPORTER_OTLP_PROTOCOL must be",
	} {
		require.Contains(t, relay.Log(), part)
	}
	require.Empty(t, c.received())
	s.stop(relay)
	require.NotContains(t, relay.Log(), collectorSecret)
}
