package sink

import (
	"bytes"
	"encoding/hex"

	"go.opentelemetry.io/otel/trace"
)

// contexts are those of the spans in which a batch's events were written, each once, at most so many; all of them when
// that is negative. Sampled ones have precedence: the others lead to nothing that anybody recorded.
func contexts(b *batch, most int) []trace.SpanContext {
	var sampled, others []trace.SpanContext
	seen := map[[24]byte]bool{}
	full := func(list []trace.SpanContext) bool { return most >= 0 && len(list) >= most }
	add := func(text []byte) {
		sc, ok := parseTraceParent(text)
		if !ok || seen[identity(sc)] {
			return
		}
		list := &others
		if sc.IsSampled() {
			list = &sampled
		}
		if !full(*list) {
			seen[identity(sc)] = true
			*list = append(*list, sc)
		}
	}
	var last []byte // events of a transaction mostly share one
	for i := 0; i < len(b.entries) && !full(sampled); i++ {
		c := b.content(&b.entries[i])
		if c.trace != nil && !bytes.Equal(c.trace, last) {
			last = c.trace
			add(c.trace)
		}
		eachHeader(c.headers, func(key, value []byte) {
			if string(key) == headerTraceParent {
				add(value)
			}
		})
	}
	if most >= 0 {
		others = others[:min(most-len(sampled), len(others))]
	}
	return append(sampled, others...)
}

func identity(sc trace.SpanContext) (id [24]byte) {
	trace, span := sc.TraceID(), sc.SpanID()
	copy(id[copy(id[:], trace[:]):], span[:])
	return id
}

// parseTraceParent reads a header traceparent: version, trace id, span id and flags in hexadecimal, with more behind
// them in versions to come. https://www.w3.org/TR/trace-context-2/#traceparent-header.
func parseTraceParent(text []byte) (sc trace.SpanContext, ok bool) {
	const length = 2 + 1 + 32 + 1 + 16 + 1 + 2
	if len(text) < length || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return sc, false
	}
	if bytes.ContainsAny(text[:length], "ABCDEF") { // hex.Decode would take them
		return sc, false
	}
	var version, flags [1]byte
	var config trace.SpanContextConfig
	for _, part := range [...]struct{ to, from []byte }{
		{version[:], text[:2]},
		{config.TraceID[:], text[3:35]},
		{config.SpanID[:], text[36:52]},
		{flags[:], text[53:55]},
	} {
		if _, err := hex.Decode(part.to, part.from); err != nil {
			return sc, false
		}
	}
	switch more := text[length:]; {
	case version[0] == 0xff, version[0] == 0 && len(more) > 0, len(more) > 0 && more[0] != '-':
		return sc, false
	}
	config.TraceFlags = trace.TraceFlags(flags[0]) & (trace.FlagsSampled | trace.FlagsRandom)
	config.Remote = true
	sc = trace.NewSpanContext(config)
	return sc, sc.IsValid()
}
