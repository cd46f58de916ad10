package sink

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	kafkaevents "github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// cloudEvent reads a record as the official SDK does.
func cloudEvent(t *testing.T, r *kgo.Record) (*event.Event, binding.Encoding) {
	t.Helper()
	m := &sarama.ConsumerMessage{Topic: r.Topic, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, &sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
	}
	message := kafkaevents.NewMessageFromConsumerMessage(m)
	ev, err := binding.ToEvent(context.Background(), message)
	require.NoError(t, err)
	require.NoError(t, ev.Validate())
	return ev, message.ReadEncoding()
}

func TestCloudEvents_AreValid(t *testing.T) {
	t.Parallel()
	const document = ` {"b":1.10, "a" : 12345678901234567890,"a":[ ] , "é":"\u00e9"} `
	for _, c := range []struct {
		contentType string
		payload     []byte
		structured  []byte // what the SDK finds in the document
	}{
		{"application/json", []byte(document), []byte(document[1 : len(document)-1])},
		{"application/vnd.shop+json; charset=utf-8", []byte(`{"a":"é"}`), []byte(`{"a":"é"}`)},
		{"application/json; charset=utf-8", []byte(`{"a":"é"}`), []byte(`{"a":"é"}`)},
		{"application/json", []byte(`"text"`), []byte(`"text"`)},
		{"application/json", []byte(`null`), []byte(`null`)},
		{"application/json", nil, nil},
		{"text/plain", []byte(`no "JSON"`), []byte(`no "JSON"`)},
		{"application/avro", []byte("\x00\x00\x00\x00\x07\xff\x02"), []byte("\x00\x00\x00\x00\x07\xff\x02")},
		{"application/protobuf", []byte{}, []byte{}},
	} {
		for _, structured := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %q %t", c.contentType, c.payload, structured), func(t *testing.T) {
				t.Parallel()
				cluster := fakeKafka(t, kfake.SeedTopics(1, "orders"))
				k := start(t, cluster.ListenAddrs(), func(cfg *Config) {
					cfg.CloudEvents = &CloudEvents{Structured: structured, Source: "//shop/a?b=c", ContentType: c.contentType}
				})
				s := begin(t, k, checkpoint.Run{})
				typed := func(ev *decoder.Event) { ev.Type, ev.Payload = []byte(`Order "Paid" é`), c.payload }
				full := s.event("orders", `k"ü\`, typed, func(ev *decoder.Event) {
					ev.Headers, ev.TraceParent = []byte(`{"tenant": "t"}`), []byte("00-1-2-01")
				})
				bare := s.event("orders", "", typed, func(ev *decoder.Event) {
					ev.Timestamp = []byte("2026-01-02 12:04:05.123456+01")
				})
				s.publish(full, bare)
				k.Flush()
				s.settle()

				records := consume(t, cluster.ListenAddrs(), 2, "orders")
				ev, encoding := cloudEvent(t, records[0])
				want := binding.EncodingBinary
				if structured {
					want = binding.EncodingStructured
				}
				require.Equal(t, want, encoding)
				require.Equal(t, []string{"1.0", "id-1", "//shop/a?b=c", `Order "Paid" é`, `k"ü\`},
					[]string{ev.SpecVersion(), ev.ID(), ev.Source(), ev.Type(), ev.Subject()})
				require.Equal(t, `k"ü\`, ev.Extensions()["partitionkey"])
				require.True(t, ev.Time().Equal(full.CommitTime), ev.Time())
				require.Equal(t, `k"ü\`, string(records[0].Key))
				if c.payload == nil {
					require.Empty(t, ev.DataContentType())
				} else {
					require.Equal(t, c.contentType, ev.DataContentType())
				}
				if structured {
					require.NotNil(t, records[0].Value)
					require.Equal(t, string(c.structured), string(ev.Data()))
				} else {
					require.Equal(t, c.payload, records[0].Value, "untouched")
				}
				for name, value := range map[string]string{
					"id": "id-1", "walrelay-stream": "test", "eventType": `Order "Paid" é`, "tenant": "t", "traceparent": "00-1-2-01",
				} {
					got, _ := header(records[0], name)
					require.Equal(t, value, got, "walrelay's own headers stay")
				}

				ev, _ = cloudEvent(t, records[1])
				require.Empty(t, ev.Subject())
				require.NotContains(t, ev.Extensions(), "partitionkey")
				require.True(t, ev.Time().Equal(time.Date(2026, 1, 2, 11, 4, 5, 123_000_000, time.UTC)), ev.Time())
			})
		}
	}
}

// What cannot be an event of CloudEvents is undeliverable; its letter is no event but what the row was, and
// comes back as it.
func TestCloudEvents_Poison(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(*decoder.Event)
		reason string
	}{
		"no type":      {func(ev *decoder.Event) { ev.Type = nil }, "the type is missing, NULL or empty"},
		"empty type":   {func(ev *decoder.Event) { ev.Type = []byte{} }, "the type is missing, NULL or empty"},
		"empty id":     {func(ev *decoder.Event) { ev.ID = []byte{} }, "the id is empty"},
		"id":           {func(ev *decoder.Event) { ev.ID = []byte("a\nb") }, "the id has control characters"},
		"type":         {func(ev *decoder.Event) { ev.Type = []byte("a\u0080") }, "the type has control characters"},
		"key":          {func(ev *decoder.Event) { ev.Key = []byte("\xff") }, "or is not UTF-8"},
		"noncharacter": {func(ev *decoder.Event) { ev.Key = []byte("\uFFFE") }, "the key has control characters"},
		"payload":      {func(ev *decoder.Event) { ev.Payload = []byte("\x00\x00\x00\x00\x07") }, "the payload is not JSON"},
		"UTF-8":        {func(ev *decoder.Event) { ev.Payload = []byte("\"\xff\"") }, "the payload is not JSON"},
		"header":       {func(ev *decoder.Event) { ev.Headers = []byte(`{"ce_id":"x"}`) }, "that walrelay sets itself"},
		"content type": {func(ev *decoder.Event) { ev.SpanContext = []byte("Content-Type=x") }, "that walrelay sets itself"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fakeKafka(t, kfake.SeedTopics(1, "orders", "dead"))
			k := start(t, cluster.ListenAddrs(), func(cfg *Config) {
				cfg.CloudEvents = &CloudEvents{Structured: true, Source: "/s", ContentType: "application/json"}
				cfg.OnPoison, cfg.DeadTopic = DeadLetter, "dead"
			})
			s := begin(t, k, checkpoint.Run{})
			typed := func(ev *decoder.Event) { ev.Type = []byte("Paid") }
			payload := func(ev *decoder.Event) { ev.Payload = []byte("{ }") }
			bad := s.event("orders", "k", typed, payload, c.spoil)
			s.publish(bad, s.event("orders", "k", typed, payload))
			k.Flush()
			s.until("all", func() bool { return len(s.settled) == 1 && len(s.poison) == 1 })
			require.Contains(t, s.poison[0].Reason, c.reason)
			letter := consume(t, cluster.ListenAddrs(), 1, "dead")[0]
			require.Equal(t, bad.Payload, letter.Value)
			for _, h := range letter.Headers {
				require.False(t, cloudHeader(h.Key), h.Key)
			}
			cloudEvent(t, consume(t, cluster.ListenAddrs(), 1, "orders")[0])
			back, err := lettersOf(t, k).Read(t.Context(), bad.Position)
			require.NoError(t, err)
			require.Equal(t, []any{bad.ID, bad.Key, bad.Payload, bad.Type}, []any{back.ID, back.Key, back.Payload, back.Type})
		})
	}
}

// The size by which records are judged oversize is the one on the wire, with CloudEvents too.
func TestCloudEvents_SizeIsTheWires(t *testing.T) {
	t.Parallel()
	for _, ce := range []CloudEvents{
		{Source: "/s", ContentType: "text/plain"},
		{Source: "/s", ContentType: "text/plain", Structured: true},
		{Source: "/s", ContentType: "application/json", Structured: true},
	} {
		t.Run(fmt.Sprintf("%t %s", ce.Structured, ce.ContentType), func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
			var mu sync.Mutex
			var wire []int
			c.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
				mu.Lock()
				defer mu.Unlock()
				wire = append(wire, len(kreq.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records))
				return nil, nil, false
			})
			k := start(t, c.ListenAddrs(), func(c *Config) { c.BatchBytes, c.CloudEvents = 1, &ce })
			sizes := &sizeObserver{sizes: map[string][]int{}}
			k.cfg.Observer = sizes
			s := begin(t, k, checkpoint.Run{})
			r := rand.New(rand.NewPCG(1, 2))
			for range 200 {
				s.publish(s.event("orders", "", func(ev *decoder.Event) {
					ev.Key, ev.Type = maybe(r, 200), []byte("Paid")
					if ev.Payload = maybe(r, 2000); ev.Payload != nil {
						ev.Payload = fmt.Appendf(nil, "%q", ev.Payload)
					}
				}))
			}
			k.Flush()
			s.until("all", func() bool { return len(s.settled)+len(s.poison) == 200 })
			require.Empty(t, s.poison)
			sizes.await(t, 200)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, wire, sizes.sizes["orders"])
		})
	}
}
