package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// fickle is an exporter that answers as it is told.
type fickle struct {
	*tracetest.InMemoryExporter
	err error
}

func (f *fickle) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return f.err }

// However often an export fails in a row: one line, and one when it works again. The metrics know all.
func TestTracing_SaysOnceThatSpansAreLost(t *testing.T) {
	t.Parallel()
	core, log := observer.New(zap.DebugLevel)
	tr := &tracing{log: zap.New(core)}
	f := &fickle{InMemoryExporter: tracetest.NewInMemoryExporter()}
	exporter := &watchedExporter{SpanExporter: f, tracing: tr}
	export := func(err error) {
		f.err = err
		tr.pending.Add(2)
		require.NoError(t, exporter.ExportSpans(t.Context(), make([]sdktrace.ReadOnlySpan, 2)))
		require.Zero(t, tr.pending.Load())
	}
	for range 2 {
		export(nil)
		require.Empty(t, log.TakeAll())
		for range 3 {
			export(errors.New("away"))
		}
		require.Len(t, log.FilterMessageSnippet("cannot be exported").All(), 1)
		require.Len(t, log.TakeAll(), 1)
		export(nil)
		again := log.TakeAll()
		require.Len(t, again, 1)
		require.EqualValues(t, 6, again[0].ContextMap()["lost"])
	}
	export(rejectedError{spans: 1})
	require.Len(t, log.TakeAll(), 1)
	stats := tr.stats()
	require.EqualValues(t, 4*2+1, stats.Exported)
	require.EqualValues(t, 2*3*2+1, stats.Failed)
	require.Zero(t, stats.Dropped)
}

// What finds the queue full is dropped and counted; what is not sampled is neither.
func TestTracing_QueueIsBounded(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	tr := &tracing{room: 3}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(gate{tr, recorder}))
	for range 5 {
		_, span := provider.Tracer("").Start(t.Context(), "", trace.WithNewRoot())
		span.End()
	}
	require.Len(t, recorder.Ended(), 3)
	require.EqualValues(t, 2, tr.stats().Dropped)
	tr.pending.Add(-1)
	_, span := provider.Tracer("").Start(t.Context(), "")
	span.End()
	require.Len(t, recorder.Ended(), 4)
}

func TestTracing_OffDoesNothing(t *testing.T) {
	t.Parallel()
	var tr *tracing
	require.Nil(t, tr.sink("a_slot"))
	require.Nil(t, tr.stats())
	tr.close(t.Context())
}
