package sink

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"
)

func TestParseTraceParent(t *testing.T) {
	t.Parallel()
	const (
		id     = "0af7651916cd43dd8448eb211c80319c"
		span   = "b7ad6b7169203331"
		legal  = "00-" + id + "-" + span + "-01"
		future = "cc-" + id + "-" + span + "-01"
	)
	for text, want := range map[string]string{
		legal: legal, future: legal, future + "-what-comes": legal,
		"00-" + id + "-" + span + "-00": "00-" + id + "-" + span + "-00",
		"00-" + id + "-" + span + "-ff": "00-" + id + "-" + span + "-03", // unknown flags are dropped
	} {
		sc, ok := parseTraceParent([]byte(text))
		require.True(t, ok, text)
		require.Equal(t, want, traceParent(sc))
		require.True(t, sc.IsRemote())
	}
	for _, text := range []string{
		"", "-", "null", legal + "-", legal + "0", future + "0", legal[:54], " " + legal, strings.ToUpper(legal),
		"ff" + legal[2:], "0x" + legal[2:], strings.ReplaceAll(legal, "-", "_"), "00-" + id + "-" + span + "-0g",
		"00-" + strings.Repeat("0", 32) + "-" + span + "-01", "00-" + id + "-" + strings.Repeat("0", 16) + "-01",
	} {
		_, ok := parseTraceParent([]byte(text))
		require.False(t, ok, text)
	}
}

// Whatever OpenTelemetry's own propagator takes is taken as it does, and nothing else, but for flags of version 0 that
// nobody has defined: there it takes none.
func TestParseTraceParent_AsThePropagator(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(
			`(00|cc|f[ef])-[0a]{31,33}-[0b]{15,17}-0[0-3]?(-x|0)?|[0-9a-fA-F-]{50,60}`).Draw(t, "text")
		ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": text})
		sc, ok := parseTraceParent([]byte(text))
		require.Equal(t, trace.SpanContextFromContext(ctx).IsValid(), ok, text)
		require.True(t, trace.SpanContextFromContext(ctx).Equal(sc) || !ok, text)
	})
}

func TestContexts_SampledOnesFirst(t *testing.T) {
	t.Parallel()
	b := &batch{}
	unsampled := func(n int) string { return strings.TrimSuffix(parent(n), "1") + "0" }
	for n := 1; n <= 10; n++ {
		text := unsampled(n)
		if n%4 == 0 {
			text = parent(n)
		}
		for range 2 {
			b.add(entry{}, content{trace: []byte(text)})
			b.add(entry{}, content{headers: appendHeader(nil, []byte("traceparent"), fmt.Append(nil, text))})
		}
	}
	b.add(entry{}, content{})
	got := func(most int) (parents []string) {
		for _, sc := range contexts(b, most) {
			parents = append(parents, traceParent(sc))
		}
		return parents
	}
	require.Equal(t, []string{parent(4), parent(8), unsampled(1), unsampled(2)}, got(4))
	require.Equal(t, []string{parent(4)}, got(1))
	require.Empty(t, got(0))
	require.Len(t, got(-1), 10)
}
