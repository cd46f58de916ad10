package sink

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// What a preview shows is what a consumer gets.
func TestPreview_IsTheRecord(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), nil)
	s := begin(t, k, checkpoint.Run{})
	ev := s.event("orders", "a", func(ev *decoder.Event) {
		ev.Type, ev.TraceParent, ev.Headers = []byte("paid"), []byte("00-1-2-3"), []byte(`{"a": "b", "c": null}`)
	})
	preview := NewPreview(&k.cfg)
	preview.Record(s.event("users", "b")) // nothing of it stays
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
