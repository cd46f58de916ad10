package decoder_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/decoder"
)

func newMessageDecoder() *decoder.Decoder {
	return decoder.New(decoder.Config{
		Mappings: []decoder.Mapping{outboxMapping()},
		Messages: []*decoder.Mapping{decoder.MessageMapping("outbox", []string{"aggregatetype"})},
		Epoch:    epoch,
		Timeline: func(pglogrepl.LSN) uint32 { return timeline },
	})
}

// envelope decodes one transactional message with the content, which must be an event.
func envelope(t *testing.T, content string) *decoder.Event {
	t.Helper()
	d := newMessageDecoder()
	require.Equal(t, decoder.KindEvent,
		feed(t, d, begin(commitLSN, committed, 1), logical(1, commitLSN-1, "outbox", content)))
	return d.Event()
}

func TestEnvelope(t *testing.T) {
	t.Parallel()
	ev := envelope(t, ` {"id":"e-1","aggregatetype":"orders","aggregateid":"k\u00e9\/","type":"created",
		"payload": {"b":1.10,"a":9007199254740993,"a":[ ]} ,"headers":{"x": 1},"further":{"id":2},
		"timestamp":"2026-01-02T13:04:05.5+01:00"} `)
	require.NoError(t, ev.Fault)
	require.Equal(t, "e-1", string(ev.ID))
	require.Equal(t, "orders", string(ev.Route[0]))
	require.Equal(t, "ké/", string(ev.Key))
	require.Equal(t, "created", string(ev.Type))
	require.Equal(t, `{"b":1.10,"a":9007199254740993,"a":[ ]}`, string(ev.Payload), "the bytes as they came")
	require.Equal(t, `{"x": 1}`, string(ev.Headers))
	require.Equal(t, "messages outbox", ev.Mapping.Name())
	require.Equal(t, commitTime, ev.CommitTime)
	at, err := ev.Time()
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 1, 2, 12, 4, 5, 500_000_000, time.UTC), at)

	ev = envelope(t, `{"payload":null,"aggregateid":null,"type":null,"headers":null,"timestamp":null,`+
		`"aggregatetype":"","id":""}`)
	require.NoError(t, ev.Fault)
	for _, b := range [][]byte{ev.Payload, ev.Key, ev.Type, ev.Headers, ev.Timestamp} {
		require.Nil(t, b)
	}
	require.NotNil(t, ev.ID)

	for _, payload := range []string{`"text"`, `""`, `[1]`, `12`, `true`, `-0`, `1E400`} {
		ev = envelope(t, `{"payload":`+payload+`,"id":"1","aggregateid":"k","aggregatetype":"a"}`)
		require.NoError(t, ev.Fault)
		require.Equal(t, payload, string(ev.Payload))
	}
}

func TestEnvelope_Faults(t *testing.T) {
	t.Parallel()
	const good = `"id":"e","aggregatetype":"a","aggregateid":"k","payload":{}`
	without := func(member string) string {
		return "{" + strings.Trim(strings.ReplaceAll(","+good+",", ","+member+",", ","), ",") + "}"
	}
	replaced := func(member, by string) string { return "{" + strings.Replace(good, member, by, 1) + "}" }
	tests := map[string]struct{ content, member, reason string }{
		"empty":                {``, "", "is not JSON"},
		"text":                 {`hello`, "", "is not JSON"},
		"truncated":            {`{"id":"e"`, "", "is not JSON"},
		"two values":           {`{} {}`, "", "is not JSON"},
		"array":                {`[1]`, "", "is not a JSON object"},
		"string":               {`"{}"`, "", "is not a JSON object"},
		"null":                 {`null`, "", "is not a JSON object"},
		"latin1":               {"{" + good + ",\"x\":\"\xe9\"}", "", "is not UTF-8"},
		"no id":                {without(`"id":"e"`), "id", "is missing"},
		"no aggregate type":    {without(`"aggregatetype":"a"`), "aggregatetype", "is missing"},
		"no key":               {without(`"aggregateid":"k"`), "aggregateid", "is missing"},
		"no payload":           {without(`"payload":{}`), "payload", "is missing"},
		"another case":         {replaced("payload", "Payload"), "payload", "is missing"},
		"null id":              {replaced(`"e"`, "null"), "id", "is null"},
		"null aggregate type":  {replaced(`"a"`, "null"), "aggregatetype", "is null"},
		"number as id":         {replaced(`"e"`, "1"), "id", "is not a string"},
		"object as key":        {replaced(`"k"`, "{}"), "aggregateid", "is not a string"},
		"number as key":        {replaced(`"k"`, "7"), "aggregateid", "is not a string"},
		"truth as key":         {replaced(`"k"`, "true"), "aggregateid", "is not a string"},
		"number as time":       {"{" + good + `,"timestamp":1767355445123}`, "timestamp", "is not a string"},
		"half a character":     {replaced(`"e"`, `"\ud800"`), "id", "holds half of a surrogate pair"},
		"twice":                {"{" + good + `,"payload":{}}`, "payload", "is given twice"},
		"twice, spelt another": {"{" + good + `,"\u0069d":"f"}`, "id", "is given twice"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ev := envelope(t, test.content)
			require.Equal(t, &decoder.MessageError{Prefix: "outbox", Member: test.member, Reason: test.reason}, ev.Fault)
			require.Equal(t, test.content, string(ev.Payload), "kept for a dead letter")
			require.True(t, ev.Partial)
		})
	}
	ev := envelope(t, without(`"payload":{}`))
	require.Equal(t, "e", string(ev.ID), "what could be read is there")
	require.EqualError(t, ev.Fault, "member payload of a message outbox is missing")
	require.EqualError(t, envelope(t, "x").Fault, "the content of a message outbox is not JSON")
}

// Rows and messages are counted alike, and what is no event is not.
func TestEnvelope_Positions(t *testing.T) {
	t.Parallel()
	d := newMessageDecoder()
	const good = `{"id":"m","aggregatetype":"a","aggregateid":"k","payload":{}}`
	row := insert(outboxOID, "r", "a", "k", "t", "{}")
	message := logical(1, commitLSN-1, "outbox", good)
	feed(t, d, begin(commitLSN, committed, 1), outboxRelation())
	var got []string
	for _, m := range []wire{
		message, row, logical(1, commitLSN-1, "other", good), logical(1, commitLSN-1, "outbox ", good),
		logical(1, commitLSN-1, "", good), logical(1, commitLSN-1, "outbox", "malformed"), row, message,
	} {
		switch kind := feed(t, d, m); kind {
		case decoder.KindEvent:
			require.Equal(t, len(got), int(d.Event().Position.Index))
			got = append(got, string(d.Event().ID)+" "+d.Event().Mapping.Name())
			require.Equal(t, len(got) == 3, d.Event().Fault != nil)
		default:
			require.Equal(t, decoder.KindMessage, kind)
		}
	}
	require.Equal(t, []string{
		"m messages outbox", "r public.outbox", " messages outbox", "r public.outbox", "m messages outbox",
	}, got)
	feed(t, d, commit(commitLSN, endLSN, committed))

	require.Equal(t, decoder.KindStrayMessage, feed(t, d, logical(0, endLSN, "outbox", good)))
	require.Equal(t, decoder.KindStrayMessage, feed(t, d, logical(0, endLSN, "outbox", "malformed")))
	require.Equal(t, decoder.KindMessage, feed(t, d, logical(0, endLSN, "other", good)))
	require.Equal(t, "other", d.Message().Prefix)

	refuse(t, d, logical(1, commitLSN, "outbox", good)) // outside a transaction: no server sends that
	for _, broken := range []wire{
		message[:len(message)-1], append(slices.Clone(message), 'x'), message[:9], message[:12],
	} {
		d := newMessageDecoder()
		feed(t, d, begin(commitLSN, committed, 1))
		refuse(t, d, broken)
	}
}

// An event of the one message leaves nothing behind in the next.
func TestEnvelope_NothingIsKept(t *testing.T) {
	t.Parallel()
	d := newMessageDecoder()
	feed(t, d, begin(commitLSN, committed, 1),
		logical(1, commitLSN, "outbox", `{"id":"e","aggregatetype":"a","aggregateid":"k","payload":1,"type":"t"}`),
		logical(1, commitLSN, "outbox", `{}`))
	ev := d.Event()
	require.Equal(t, "{}", string(ev.Payload))
	require.Error(t, ev.Fault)
	for _, b := range [][]byte{ev.ID, ev.Key, ev.Type, ev.Route[0]} {
		require.Nil(t, b)
	}
}

func TestEnvelope_DoesNotAllocate(t *testing.T) {
	d := newMessageDecoder()
	feed(t, d, begin(commitLSN, committed, 1))
	message := benchmarkMessage()
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = d.Decode(message) }))
	require.NoError(t, d.Event().Fault)
}

func benchmarkMessage() wire {
	return logical(1, commitLSN, "outbox", `{"id":"0198c2a4-7f3e-7d21-9c55-3f1d0c2b7a10","aggregatetype":"order",`+
		`"aggregateid":"customer-4711","type":"OrderPlaced","payload":{"order":4711,"note":"`+strings.Repeat("x", 280)+`"}}`)
}

func BenchmarkDecodeMessage(b *testing.B) {
	d := newMessageDecoder()
	if _, err := d.Decode(begin(commitLSN, committed, 1)); err != nil {
		b.Fatal(err)
	}
	message := benchmarkMessage()
	b.ReportAllocs()
	b.SetBytes(int64(len(message)))
	for b.Loop() {
		if _, err := d.Decode(message); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzEnvelope takes any content: it never ends the stream, and what encoding/json reads is read alike.
func FuzzEnvelope(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `null`, `[]`, `{"id":"e","aggregatetype":"a","aggregateid":"k","payload":{}}`,
		`{"id":"e","aggregatetype":"a","aggregateid":null,"payload":null,"type":"t","headers":{"a":1},"timestamp":"x"}`,
		`{"\u0069d":"\ud83d\ude00","aggregatetype":"\\","aggregateid":"","payload":[1,{"id":"}"}],"id":1}`,
		"{\"id\":\"\xff\"}", `{"id":"\ud800","payload":"\ud800"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		ev := envelope(t, string(content))
		want, ok := readEnvelope(content)
		require.Equal(t, ok, ev.Fault == nil, "%v", ev.Fault)
		if !ok {
			require.Equal(t, string(content), string(ev.Payload))
			return
		}
		for name, got := range map[string][]byte{
			"id": ev.ID, "aggregatetype": ev.Route[0], "aggregateid": ev.Key, "type": ev.Type, "timestamp": ev.Timestamp,
		} {
			if raw := want[name]; raw == nil || string(raw) == "null" {
				require.Nil(t, got)
			} else {
				var text string
				require.NoError(t, json.Unmarshal(raw, &text))
				require.Equal(t, text, string(got))
			}
		}
		for name, got := range map[string][]byte{"payload": ev.Payload, "headers": ev.Headers} {
			if raw := want[name]; raw == nil || string(raw) == "null" {
				require.Nil(t, got)
			} else {
				require.Equal(t, string(raw), string(got))
			}
		}
	})
}

// readEnvelope reads by encoding/json. ok says that the content is an envelope.
func readEnvelope(content []byte) (members map[string]json.RawMessage, ok bool) {
	if !utf8.Valid(content) || !json.Valid(content) || bytes.TrimLeft(content, " \t\r\n")[0] != '{' {
		return nil, false
	}
	members = map[string]json.RawMessage{}
	decode := json.NewDecoder(bytes.NewReader(content))
	_, _ = decode.Token()
	for decode.More() {
		key, _ := decode.Token()
		var value json.RawMessage
		_ = decode.Decode(&value)
		name := key.(string)
		if _, twice := members[name]; twice && slices.Contains([]string{
			"id", "aggregatetype", "aggregateid", "payload", "type", "headers", "timestamp",
		}, name) {
			return nil, false
		}
		members[name] = value
	}
	for _, name := range []string{"id", "aggregatetype", "aggregateid", "type", "timestamp"} {
		value, there := members[name]
		null := string(value) == "null"
		switch {
		case !there && (name == "type" || name == "timestamp"):
		case !there, null && (name == "id" || name == "aggregatetype"), !null && (value[0] != '"' || halfPair(value)):
			return nil, false
		}
	}
	_, there := members["payload"]
	return members, there
}

// halfPair reports whether a JSON string has half of a surrogate pair, which encoding/json replaces.
func halfPair(quoted []byte) bool {
	var text string
	_ = json.Unmarshal(quoted, &text)
	return strings.Count(text, "\ufffd") > strings.Count(string(quoted), "\ufffd")+
		strings.Count(strings.ToLower(string(quoted)), `\ufffd`)
}
