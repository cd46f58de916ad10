package decoder_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/walrelay/walrelay/decoder"
)

// pair is a name and its value, nil for null.
type pair struct{ name, value []byte }

// binaryEvent is what a binary envelope holds.
type binaryEvent struct {
	id, key, kind, payload []byte
	route, headers         []pair
	timestamp              *int64 // milliseconds since 1970
}

func (w wire) value(v []byte) wire {
	if v == nil {
		return w.u32(0xffffffff)
	}
	return append(w.u32(uint32(len(v))), v...)
}

func (w wire) pairs(pairs []pair) wire {
	w = w.u16(len(pairs))
	for _, p := range pairs {
		w = w.value(p.name).value(p.value)
	}
	return w
}

func (e binaryEvent) encode() string {
	var at []byte
	if e.timestamp != nil {
		at = binary.BigEndian.AppendUint64(nil, uint64(*e.timestamp))
	}
	w := wire{1}.value(e.id).pairs(e.route).value(e.key).value(e.kind)
	return string(w.value(at).pairs(e.headers).value(e.payload))
}

func goodBinary() binaryEvent {
	at := int64(1_767_355_445_500)
	return binaryEvent{
		id: []byte("e-1"), key: []byte("k\xff"), kind: []byte("créé"), payload: []byte("\x00\xff{"),
		route:     []pair{{[]byte("further"), []byte("\xff")}, {[]byte("aggregatetype"), []byte("orders")}},
		headers:   []pair{{[]byte("t\"\n"), []byte("\x00\\\xfe")}, {[]byte("none"), nil}, {[]byte("empty"), []byte{}}},
		timestamp: &at,
	}
}

func newBinaryDecoder(route ...string) *decoder.Decoder {
	return decoder.New(decoder.Config{
		Mappings: []decoder.Mapping{outboxMapping()},
		Messages: []*decoder.Mapping{
			decoder.MessageMapping("outbox", []string{"aggregatetype"}), decoder.BinaryMapping("binary", route),
		},
		Epoch:    epoch,
		Timeline: func(pglogrepl.LSN) uint32 { return timeline },
	})
}

func decodeBinary(t require.TestingT, content string, route ...string) *decoder.Event {
	d := newBinaryDecoder(route...)
	for _, m := range []wire{begin(commitLSN, committed, 1), logical(1, commitLSN-1, "binary", content)} {
		_, err := d.Decode(m)
		require.NoError(t, err)
	}
	return d.Event()
}

func requireBinary(t require.TestingT, want binaryEvent, ev *decoder.Event) {
	require.NoError(t, ev.Fault)
	for _, b := range [][2][]byte{{want.id, ev.ID}, {want.key, ev.Key}, {want.kind, ev.Type}, {want.payload, ev.Payload}} {
		require.Equal(t, b[0], b[1])
	}
	var headers []pair
	require.NoError(t, decoder.ParseHeaders(ev.Headers, func(name, value []byte) error {
		headers = append(headers, pair{bytes.Clone(name), bytes.Clone(value)})
		return nil
	}))
	require.Equal(t, want.headers, headers)
	at, err := ev.Time()
	require.NoError(t, err)
	if want.timestamp == nil {
		require.Equal(t, commitTime, at)
	} else {
		require.Equal(t, time.UnixMilli(*want.timestamp).UTC(), at)
	}
}

func TestBinary(t *testing.T) {
	t.Parallel()
	want := goodBinary()
	ev := decodeBinary(t, want.encode(), "aggregatetype")
	requireBinary(t, want, ev)
	require.Equal(t, "orders", string(ev.Route[0]))
	require.Equal(t, "messages binary", ev.Mapping.Name())

	want = binaryEvent{id: []byte{}, route: []pair{{[]byte("aggregatetype"), []byte{}}}}
	requireBinary(t, want, decodeBinary(t, want.encode(), "aggregatetype"))
	want.key, want.kind, want.payload = []byte{}, []byte{}, []byte{}
	requireBinary(t, want, decodeBinary(t, want.encode(), "aggregatetype"))

	want = binaryEvent{id: []byte("i"), key: []byte("k"), kind: []byte("t")}
	want.route = []pair{{[]byte("type"), []byte("own")}}
	ev = decodeBinary(t, want.encode(), "aggregateid", "type", "id")
	requireBinary(t, want, ev)
	require.Equal(t, [][]byte{[]byte("k"), []byte("own"), []byte("i")}, ev.Route, "fields of the envelope")
}

func TestBinary_Faults(t *testing.T) {
	t.Parallel()
	changed := func(change func(*binaryEvent)) string {
		e := goodBinary()
		change(&e)
		return e.encode()
	}
	short := int64(0)
	tests := map[string]struct{ content, member, reason string }{
		"empty":         {"", "version", "is not 1"},
		"JSON":          {`{"id":"1"}`, "version", "is not 1"},
		"next version":  {"\x02" + goodBinary().encode()[1:], "version", "is not 1"},
		"version alone": {"\x01", "id", "is cut off"},
		"long id":       {"\x01\x7f\xff\xff\xffx", "id", "is cut off"},
		"negative":      {"\x01\xff\xff\xff\xfex", "id", "has a negative length"},
		"null id":       {changed(func(e *binaryEvent) { e.id = nil }), "id", "is null"},
		"latin1 id":     {changed(func(e *binaryEvent) { e.id = []byte("\xe9") }), "id", "is not UTF-8"},
		"no route":      {changed(func(e *binaryEvent) { e.route = nil }), "aggregatetype", "is missing"},
		"null route": {
			changed(func(e *binaryEvent) { e.route[1].value = nil }), "aggregatetype", "is null",
		},
		"twice": {
			changed(func(e *binaryEvent) { e.route[0].name = e.route[1].name; e.route[0].value = e.route[1].value }),
			"aggregatetype", "is given twice",
		},
		"latin1 route": {
			changed(func(e *binaryEvent) { e.route[1].value = []byte("\xe9") }), "aggregatetype", "is not UTF-8",
		},
		"null name":     {changed(func(e *binaryEvent) { e.route[0].name = nil }), "route", "has a name that is null"},
		"latin1 type":   {changed(func(e *binaryEvent) { e.kind = []byte("\xe9") }), "type", "is not UTF-8"},
		"latin1 header": {changed(func(e *binaryEvent) { e.headers[0].name = []byte("\xe9") }), "headers", "is not UTF-8"},
		"short time": {
			strings.Replace(changed(func(e *binaryEvent) { e.timestamp = &short }),
				"\x00\x00\x00\x08\x00", "\x00\x00\x00\x07", 1),
			"timestamp", "is not of 8 bytes",
		},
		"trailing":  {goodBinary().encode() + "x", "", "has bytes behind its end"},
		"truncated": {strings.TrimSuffix(goodBinary().encode(), "{"), "payload", "is cut off"},
		"no payload": {
			strings.TrimSuffix(binaryEvent{id: []byte("e")}.encode(), "\xff\xff\xff\xff"), "payload", "is cut off",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ev := decodeBinary(t, test.content, "aggregatetype")
			require.Equal(t, &decoder.MessageError{Prefix: "binary", Member: test.member, Reason: test.reason}, ev.Fault)
			require.Equal(t, test.content, string(ev.Payload), "kept for a dead letter")
		})
	}
	content := goodBinary().encode()
	for n := range content {
		require.Error(t, decodeBinary(t, content[:n], "aggregatetype").Fault, "cut after %d bytes", n)
	}
}

// Two prefixes and a table side by side: each message by its own envelope, and all counted alike.
func TestBinary_BesideJSON(t *testing.T) {
	t.Parallel()
	d := newBinaryDecoder("aggregatetype")
	good := goodBinary().encode()
	feed(t, d, begin(commitLSN, committed, 1), outboxRelation())
	for i, m := range []wire{
		logical(1, commitLSN-1, "binary", good),
		logical(1, commitLSN-1, "outbox", `{"id":"j","aggregatetype":"a","aggregateid":"k","payload":{}}`),
		insert(outboxOID, "r", "a", "k", "t", "{}"),
		logical(1, commitLSN-1, "binary", good),
	} {
		require.Equal(t, decoder.KindEvent, feed(t, d, m))
		require.NoError(t, d.Event().Fault)
		require.Equal(t, i, int(d.Event().Position.Index))
	}
	require.Error(t, func() error { feed(t, d, logical(1, commitLSN-1, "outbox", good)); return d.Event().Fault }())
	require.Equal(t, decoder.KindMessage, feed(t, d, logical(1, commitLSN-1, "binary2", good)))
	require.Equal(t, decoder.KindStrayMessage, feed(t, d, logical(0, commitLSN-1, "binary", good)))
}

func TestBinary_AllocatesNothing(t *testing.T) { //nolint:paralleltest // counts allocations
	d := newBinaryDecoder("aggregatetype")
	message := logical(1, commitLSN-1, "binary", goodBinary().encode())
	feed(t, d, begin(commitLSN, committed, 1), message)
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = d.Decode(message) }))
	require.NoError(t, d.Event().Fault)
}

// Any event that can be written comes back byte for byte.
func TestBinary_RoundTrip(t *testing.T) {
	t.Parallel()
	text := rapid.Custom(func(t *rapid.T) []byte { return append([]byte{}, rapid.String().Draw(t, "text")...) })
	bin := rapid.Custom(func(t *rapid.T) []byte {
		return append([]byte{}, rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")...)
	})
	maybe := func(t *rapid.T, g *rapid.Generator[[]byte], name string) []byte {
		if rapid.Bool().Draw(t, "null") {
			return nil
		}
		return g.Draw(t, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		e := binaryEvent{
			id: text.Draw(t, "id"), key: maybe(t, bin, "key"), kind: maybe(t, text, "type"), payload: maybe(t, bin, "payload"),
		}
		topic := text.Draw(t, "topic")
		e.route = []pair{{[]byte("kind"), topic}}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			e.headers = append(e.headers, pair{text.Draw(t, "name"), maybe(t, bin, "value")})
		}
		if rapid.Bool().Draw(t, "timed") {
			at := rapid.Int64Range(-1<<45, 1<<47).Draw(t, "at")
			e.timestamp = &at
		}
		ev := decodeBinary(t, e.encode(), "kind")
		requireBinary(t, e, ev)
		require.Equal(t, topic, ev.Route[0])
	})
}

// FuzzBinary takes any content: it never ends the stream, and what is accepted gives the same bytes when it is
// written again.
func FuzzBinary(f *testing.F) {
	f.Add([]byte(goodBinary().encode()))
	f.Add([]byte(binaryEvent{id: []byte("e"), route: []pair{{[]byte("aggregatetype"), []byte{}}}}.encode()))
	f.Add([]byte{})
	f.Add([]byte("\x01\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, content []byte) {
		before := bytes.Clone(content)
		ev := decodeBinary(t, string(content), "aggregatetype")
		require.Equal(t, before, content)
		if ev.Fault != nil {
			require.Equal(t, string(content), string(ev.Payload))
			return
		}
		require.NotNil(t, ev.ID)
		require.NotNil(t, ev.Route[0])
		e := binaryEvent{id: ev.ID, key: ev.Key, kind: ev.Type, payload: ev.Payload}
		e.route = []pair{{[]byte("aggregatetype"), ev.Route[0]}}
		require.NoError(t, decoder.ParseHeaders(ev.Headers, func(name, value []byte) error {
			e.headers = append(e.headers, pair{bytes.Clone(name), bytes.Clone(value)})
			return nil
		}))
		if ev.Timestamp != nil {
			at, err := decoder.ParseTimestamp(ev.Timestamp)
			require.NoError(t, err)
			ms := at.UnixMilli()
			e.timestamp = &ms
		}
		again := e.encode()
		require.True(t, strings.HasSuffix(string(content), again[len(wire{1}.value(e.id).pairs(e.route)):]),
			"but for what the route holds beside")
		require.True(t, strings.HasPrefix(string(content), again[:len(wire{1}.value(e.id))]))
	})
}
