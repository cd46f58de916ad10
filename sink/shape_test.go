package sink

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/sink/connect"
)

// shaped is an event of a table with columns of several types.
func shaped(id string, change func(*decoder.Event)) func(*decoder.Event) {
	const text, jsonb, integer, timestamp = 25, 3802, 23, 1114
	mapping := &decoder.Mapping{
		Schema: "public", Table: "outbox", ID: "id", Key: "key", Payload: "payload",
		Extra: []string{"kind", "shard", "at", "none"},
	}
	relation := &decoder.Relation{Schema: "public", Table: "outbox", Mapping: mapping, Columns: []decoder.Column{
		{Name: "id", Type: text, NotNull: true},
		{Name: "key", Type: integer},
		{Name: "payload", Type: jsonb, NotNull: true},
		{Name: "kind", Type: text},
		{Name: "shard", Type: integer},
		{Name: "at", Type: timestamp, Modifier: -1},
	}}
	return func(ev *decoder.Event) {
		ev.Mapping, ev.Relation = mapping, relation
		ev.ID, ev.Key, ev.Payload = []byte(id), []byte("7"), []byte(`{"a": [1], "b": null}`)
		ev.Extra = [][]byte{[]byte("made"), nil, []byte("1970-01-01 00:00:00.000001"), nil}
		if change != nil {
			change(ev)
		}
	}
}

func places(kind, at Place) []Placement {
	return []Placement{{kind, "kind"}, {AsPartition, "shard"}, {at, "at"}, {kind, "none"}}
}

func TestShape(t *testing.T) {
	t.Parallel()
	template, err := ParseTemplate("orders")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		shape      Shape
		change     func(*decoder.Event)
		key, value any
		headers    []Header
	}{
		"headers only": {
			Shape{Additional: places(InHeader, InHeader)},
			nil, "7", `{"a": [1], "b": null}`,
			[]Header{{"kind", []byte("made")}, {"at", []byte("1")}},
		},
		"json": {Shape{Key: JSON, Value: JSON, Additional: places(InHeader, InHeader)}, func(ev *decoder.Event) {
			ev.Key, ev.Extra[0] = nil, nil
		}, "null", `"{\"a\": [1], \"b\": null}"`, []Header{{"kind", nil}, {"at", []byte("1")}}},
		"tombstone": {
			Shape{Value: JSONSchema, Tombstones: true}, func(ev *decoder.Event) { ev.Payload = []byte(" \t") }, "7", nil, nil,
		},
		"no tombstone":  {Shape{Value: JSON}, func(ev *decoder.Event) { ev.Payload = nil }, "7", "null", nil},
		"kept as it is": {Shape{Tombstones: true}, func(ev *decoder.Event) { ev.Payload = []byte("x ") }, "7", "x ", nil},
		"envelope": {
			Shape{Value: JSON, Expand: &connect.Expansion{}, Additional: places(InEnvelope, InEnvelope)},
			nil, "7",
			`{"payload":{"a":[1]},"kind":"made","at":1}`, nil,
		},
		"schema": {
			Shape{Key: JSONSchema, Value: JSONSchema, SchemaPrefix: "p", Additional: places(InEnvelope, InHeader)},
			nil,
			`{"schema":{"type":"int32","optional":true},"payload":7}`,
			`{"schema":{"type":"struct","fields":[{"type":"string","optional":false,"name":"io.debezium.data.Json",` +
				`"version":1,"field":"payload"},` +
				`{"type":"string","optional":true,"field":"kind"}],"optional":false,"name":"p.public.outbox.order.Value"},` +
				`"payload":{"payload":"{\"a\": [1], \"b\": null}","kind":"made"}}`,
			[]Header{{"at", []byte("1")}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, c.shape.Validate())
			ev := &decoder.Event{Route: [][]byte{[]byte("order")}}
			shaped("id", c.change)(ev)
			if c.shape.Additional == nil {
				ev.Mapping.Extra, ev.Extra = nil, nil
			}
			preview := NewPreview(&Config{Stream: "s", Topic: template, Shape: &c.shape})
			for range 2 { // nothing of the first one stays
				rec := preview.Record(ev)
				require.NoError(t, rec.Fault)
				require.Equal(t, c.key, text(rec.Key))
				require.Equal(t, c.value, text(rec.Value))
				var headers []Header
				for _, h := range rec.Headers {
					if h.Name != headerID && !reserved(h.Name) {
						headers = append(headers, h)
					}
				}
				require.Equal(t, c.headers, headers)
			}
		})
	}
}

func text(b []byte) any {
	if b == nil {
		return nil
	}
	return string(b)
}

func TestShape_Validate(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, (&Shape{Additional: []Placement{{InEnvelope, "a"}}}).Validate(), "value format")
	require.ErrorContains(t, (&Shape{Additional: []Placement{{InHeader, "walrelay-x"}}}).Validate(), "walrelay-x")
}

// A row chooses its partition. What cannot have its shape, or asks for a partition that is not there, is
// dead-lettered; the first of them as the columns' bytes, which its letter says, so that it is not taken for a record.
func TestShape_PartitionAndPoison(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(3, "orders"), kfake.SeedTopics(1, "dead"))
	k := start(t, c.ListenAddrs(), func(cfg *Config) {
		cfg.OnPoison, cfg.DeadTopic = DeadLetter, "dead"
		cfg.Shape = &Shape{Value: JSON, Additional: places(InHeader, InHeader)}
	})
	s := begin(t, k, checkpoint.Run{})
	shard := func(n string) func(*decoder.Event) { return func(ev *decoder.Event) { ev.Extra[1] = []byte(n) } }
	s.publish(s.event("orders", "", shaped("a", shard("2"))))
	s.publish(s.event("orders", "", shaped("b", shard("0"))))
	s.publish(s.event("orders", "", shaped("c", shard("3"))))
	s.publish(s.event("orders", "", shaped("d", shard("-1"))))
	s.publish(s.event("orders", "", shaped("e", func(ev *decoder.Event) { ev.Extra[2] = []byte("soon") })))
	k.Flush()
	s.until("settling", func() bool { return len(s.settled)+len(s.poison) == 5 })
	reasons := map[string]string{}
	for _, p := range s.poison {
		reasons[p.EventID] = p.Reason
	}
	require.Equal(t, map[string]string{
		"c": "the row asks for partition 3, the topic has 3",
		"d": "column shard of public.outbox is no number of a partition",
		"e": "column at of public.outbox holds a value that Kafka Connect has no form for",
	}, reasons)

	for _, r := range consume(t, c.ListenAddrs(), 2, "orders") {
		require.EqualValues(t, map[string]int32{"a": 2, "b": 0}[string(r.Headers[0].Value)], r.Partition)
	}
	raw := map[string]bool{}
	for _, r := range consume(t, c.ListenAddrs(), 3, "dead") {
		for _, h := range r.Headers {
			raw[string(r.Headers[0].Value)] = raw[string(r.Headers[0].Value)] || h.Key == headerDeadRaw
		}
	}
	require.Equal(t, map[string]bool{"c": false, "d": true, "e": true}, raw)
}

// What no format can hold is told by its column, or its member where there is none, and never by its value.
func TestShape_Faults(t *testing.T) {
	t.Parallel()
	template, err := ParseTemplate("orders")
	require.NoError(t, err)
	json, text := decoder.MessageMapping("app.json", nil), func(b *[]byte, value string) { *b = []byte(value) }
	binary := decoder.BinaryMapping("app.binary", nil)
	message := func(m *decoder.Mapping) func(*decoder.Event) {
		return func(ev *decoder.Event) { ev.Mapping, ev.Relation, ev.Extra = m, nil, nil }
	}
	for name, c := range map[string]struct {
		shape  Shape
		change func(*decoder.Event)
		fault  string
	}{
		"key": {
			Shape{Key: JSON}, func(ev *decoder.Event) {
				ev.Relation.Columns[1].Type = 1007
				text(&ev.Key, "{{1}}")
			}, "column key of public.outbox holds a value that Kafka Connect has no form for",
		},
		"key and schema": {
			Shape{Key: JSONSchema}, func(ev *decoder.Event) {
				ev.Relation.Columns[1].Type = 25
				text(&ev.Key, "\xff")
			}, "column key of public.outbox is not UTF-8",
		},
		"payload": {
			Shape{Value: JSON},
			func(ev *decoder.Event) { text(&ev.Payload, "{\"\xff\":1}") },
			"column payload of public.outbox is not UTF-8",
		},
		"payload to be expanded": {
			Shape{Value: JSON, Expand: &connect.Expansion{}},
			func(ev *decoder.Event) { text(&ev.Payload, "{\"\xff\":1}") },
			"column payload of public.outbox is not UTF-8",
		},
		"header": {
			Shape{Additional: places(InHeader, InHeader)},
			func(ev *decoder.Event) { text(&ev.Extra[2], "soon") },
			"column at of public.outbox holds a value that Kafka Connect has no form for",
		},
		"envelope": {
			Shape{Value: JSON, Additional: places(InEnvelope, InEnvelope)},
			func(ev *decoder.Event) { text(&ev.Extra[0], "\xff") }, "column kind of public.outbox is not UTF-8",
		},
		"key of a message": {
			Shape{Key: JSON}, func(ev *decoder.Event) {
				message(binary)(ev)
				text(&ev.Key, "\xff")
			}, `member aggregateid of a message "app.binary" is not UTF-8`,
		},
		"key and schema of a message": {
			Shape{Key: JSONSchema}, func(ev *decoder.Event) {
				message(json)(ev)
				text(&ev.Key, "\xff")
			}, `member aggregateid of a message "app.json" is not UTF-8`,
		},
		"payload of a message": {
			Shape{Value: JSON}, func(ev *decoder.Event) {
				message(json)(ev)
				text(&ev.Payload, "\"\xff\"")
			}, `member payload of a message "app.json" is not UTF-8`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ev := &decoder.Event{}
			shaped("id", c.change)(ev)
			if c.shape.Additional == nil {
				ev.Mapping.Extra, ev.Extra = nil, nil
			}
			rec := NewPreview(&Config{Stream: "s", Topic: template, Shape: &c.shape}).Record(ev)
			require.EqualError(t, rec.Fault, c.fault)
			require.Equal(t, []any{ev.Key, ev.Payload}, []any{rec.Key, rec.Value}, "as they came")
			require.Equal(t, headerDeadRaw, rec.Headers[len(rec.Headers)-1].Name)
		})
	}
}

// Whatever is wrong with an event, its key is the one that later events of the key have, and they follow it.
func TestShape_FollowKey(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*decoder.Event){
		"headers": func(ev *decoder.Event) { ev.Headers = []byte(`{"id":"x"}`) },
		"payload": func(ev *decoder.Event) { ev.Extra[2] = []byte("soon") },
		"broker":  func(ev *decoder.Event) { ev.Extra[1] = []byte("3") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(1, "orders"), kfake.SeedTopics(5, "dead"))
			k := start(t, c.ListenAddrs(), func(cfg *Config) {
				cfg.OnPoison, cfg.DeadTopic, cfg.FollowKey = DeadLetter, "dead", true
				cfg.Shape = &Shape{Key: JSONSchema, Value: JSON, Additional: places(InHeader, InHeader)}
			})
			s := begin(t, k, checkpoint.Run{})
			s.publish(s.event("orders", "", shaped("a", nil)))
			s.publish(s.event("orders", "", shaped("b", spoil)))
			s.publish(s.event("orders", "", shaped("c", nil)))
			k.Flush()
			s.until("settling", func() bool { return len(s.settled)+len(s.poison) == 3 })
			letters := consume(t, c.ListenAddrs(), 2, "dead")
			require.Equal(t, []string{"b", "c"},
				[]string{string(letters[0].Headers[0].Value), string(letters[1].Headers[0].Value)}, "in one partition")
			require.Equal(t, `{"schema":{"type":"int32","optional":true},"payload":7}`, string(letters[0].Key))
			require.Equal(t, letters[0].Key, letters[1].Key)
		})
	}
}

// A key of bytes is bytes, and in JSON base64, as Kafka Connect has it.
func TestShape_KeyOfBytes(t *testing.T) {
	t.Parallel()
	template, err := ParseTemplate("orders")
	require.NoError(t, err)
	for format, want := range map[Format]string{
		Raw: "\x00\xff", JSON: `"AP8="`, JSONSchema: `{"schema":{"type":"bytes","optional":true},"payload":"AP8="}`,
	} {
		ev := &decoder.Event{}
		shaped("id", func(ev *decoder.Event) {
			ev.Relation.Columns[1].Type = 17
			ev.Mapping.Extra, ev.Extra, ev.Key = nil, nil, []byte("\x00\xff")
		})(ev)
		rec := NewPreview(&Config{Stream: "s", Topic: template, Shape: &Shape{Key: format}}).Record(ev)
		require.NoError(t, rec.Fault)
		require.Equal(t, want, string(rec.Key))
	}
}

// Messages have no columns: their payload is text, or bytes in a binary envelope. What was read from a dead letter is
// left alone.
func TestShape_WithoutATable(t *testing.T) {
	t.Parallel()
	template, err := ParseTemplate("orders")
	require.NoError(t, err)
	preview := NewPreview(&Config{
		Stream: "s", Topic: template, Shape: &Shape{Key: JSON, Value: JSON, Additional: places(InHeader, InHeader)},
	})
	for range 2 {
		for want, m := range map[string]*decoder.Mapping{
			`"7"="{\"a\":1}"`:    {Prefix: "p"},
			`"7"="eyJhIjoxfQ=="`: {Prefix: "q", Binary: true},
			`7={"a":1}`:          {},
		} {
			ev := &decoder.Event{Mapping: m, ID: []byte("1"), Key: []byte("7"), Payload: []byte(`{"a":1}`)}
			rec := preview.Record(ev)
			require.NoError(t, rec.Fault)
			require.Equal(t, want, string(rec.Key)+"="+string(rec.Value))
		}
	}
}
