package sink

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/sink/connect"
)

// What a preview shows is what a consumer gets, whatever records are made of.
func TestPreview_IsTheRecord(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"raw":    func(*Config) {},
		"binary": func(c *Config) { c.CloudEvents = &CloudEvents{Source: "/s", ContentType: "application/json"} },
		"structured": func(c *Config) {
			c.CloudEvents = &CloudEvents{Structured: true, Source: "/s", ContentType: "text/plain"}
		},
		"formatted": func(c *Config) {
			c.Shape = &Shape{
				Key: JSON, Value: JSONSchema, Expand: &connect.Expansion{}, SchemaPrefix: "p",
				Additional: []Placement{{InHeader, "x"}, {InEnvelope, "y"}},
			}
		},
		"ruled":  func(c *Config) { c.TopicRules = &TopicRules{ByType: map[string]string{"paid": "orders"}} },
		"replay": func(c *Config) { c.Replay, c.OnPoison = "again", Skip },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
			k := start(t, c.ListenAddrs(), change)
			s := begin(t, k, checkpoint.Run{})
			topic := "orders"
			if k.cfg.TopicRules != nil {
				topic = "elsewhere"
			}
			mapping := &decoder.Mapping{
				Schema: "public", Table: "outbox", ID: "id", Key: "k", Payload: "p", Type: "t", Headers: "h", Route: []string{"r"},
				TraceState: "ts", SpanContext: "sc", Extra: []string{"k", "p"},
			}
			rows := decoder.NewRows(mapping, []decoder.Column{
				{Name: "id"},
				{Name: "k"},
				{Name: "p", Type: 114},
				{Name: "t"},
				{Name: "h", Type: 3802},
				{Name: "r"},
				{Name: "ts"},
				{Name: "sc"},
			})
			row := func(id, topic string) *decoder.Event {
				ev := rows.Event([][]byte{
					[]byte(id), []byte("key"), []byte(`{"a": 1, "b": null}`), []byte("paid"), []byte(`{"a": "b", "c": null}`),
					[]byte(topic), []byte("v=1"), []byte("uber-trace-id=1:2:3:1"),
				})
				ev.Position, ev.CommitTime = position(7), committed
				ev.TraceParent, ev.Marked, ev.Count = []byte("00-1-2-3"), true, 8
				return ev
			}
			preview := NewPreview(&k.cfg)
			preview.Record(row("0", "users")) // nothing of it stays
			ev := row("7", topic)
			shown := preview.Record(ev)
			s.publish(ev)
			k.Flush()
			s.settle()

			got := consume(t, c.ListenAddrs(), 1, "orders")[0]
			require.NoError(t, shown.Fault)
			require.Equal(t, got.Topic, shown.Topic)
			require.Equal(t, got.Key, shown.Key)
			require.Equal(t, got.Value, shown.Value)
			require.Equal(t, got.Timestamp.UnixMilli(), shown.Timestamp.UnixMilli())
			var headers []Header
			for _, h := range got.Headers {
				headers = append(headers, Header{Name: h.Key, Value: h.Value})
			}
			require.Equal(t, headers, shown.Headers)
		})
	}
}

func TestPreview_Faults(t *testing.T) {
	t.Parallel()
	template, err := ParseTemplate("{a}")
	require.NoError(t, err)
	preview := NewPreview(&Config{Stream: "s", Topic: template})
	event := func(topic string, change func(*decoder.Event)) *decoder.Event {
		ev := &decoder.Event{Mapping: table, ID: []byte("1"), Route: [][]byte{[]byte(topic)}}
		change(ev)
		return ev
	}
	bad := preview.Record(event("no topic", func(*decoder.Event) {}))
	require.ErrorContains(t, bad.Fault, "the topic name has a character other than")
	require.Empty(t, bad.Topic)

	bad = preview.Record(event("orders", func(ev *decoder.Event) { ev.Headers = []byte("[]") }))
	require.ErrorContains(t, bad.Fault, "headers")
	require.Equal(t, "orders", bad.Topic)

	bad = preview.Record(event("orders", func(ev *decoder.Event) { ev.Fault = &decoder.ColumnError{Reason: "is NULL"} }))
	require.ErrorContains(t, bad.Fault, "is NULL")
	require.Empty(t, bad.Topic)
}
