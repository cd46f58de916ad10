package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/monitor"
	"github.com/walrelay/walrelay/sink"
)

// tracing exports the spans of batches by OTLP. Everything but whether to is configured by OpenTelemetry's variables:
// the SDK reads OTEL_* by itself but for what is said here, and otlpReader those of the exporter. Whatever becomes of
// spans, delivery neither waits nor ends for it. All methods of nil, which is tracing that is off, do nothing.
type tracing struct {
	provider  *sdktrace.TracerProvider
	collector *collector
	log       *zap.Logger
	patience  time.Duration // for stopping in all
	stopped   atomic.Pointer[time.Time]

	room                      int64 // spans that may be pending
	pending                   atomic.Int64
	exported, failed, dropped atomic.Uint64
}

// lastExport is how long stopping waits for a collector at most.
const lastExport = 5 * time.Second

// tracing begins to export if it is to. What keeps it from working is a warning: events are delivered without it.
func (c *command) tracing(ctx context.Context, log *zap.Logger) *tracing {
	if c.settings.Traces.Text == "none" {
		return nil
	}
	reader := otlpReader{env: c.env}
	config := reader.read()
	for _, hint := range reader.hints {
		log.Warn(hint)
	}
	if len(reader.faults) > 0 {
		log.Warn("no spans are exported, events are delivered all the same", zap.Strings("faults", reader.faults))
		return nil
	}
	// Process-wide, but this is the process. The SDK's own log is for those who debug it.
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn(err.Error()) }))

	described, _ := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), // what fails is left out
		resource.WithAttributes(attribute.String("service.name", "walrelay"),
			attribute.String("service.version", buildVersion().version)),
		resource.WithFromEnv())
	t := &tracing{collector: newCollector(config), log: log, patience: c.settings.ShutdownTimeout.Value}
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithResource(described), sdktrace.WithSpanProcessor(t.processor(c.env)))
	context.AfterFunc(ctx, func() { t.stopped.Store(new(time.Now())) })
	return t
}

// processor is the SDK's, which queues spans and exports them in batches. It panics, or spins, with what is not
// positive.
func (t *tracing) processor(env environment) sdktrace.SpanProcessor {
	queue := env.positive("OTEL_BSP_MAX_QUEUE_SIZE", sdktrace.DefaultMaxQueueSize)
	t.room = int64(queue)
	milliseconds := func(name string, or int) time.Duration {
		return time.Duration(env.positive(name, or)) * time.Millisecond
	}
	exporter := &watchedExporter{SpanExporter: otlptrace.NewUnstarted(t.collector), tracing: t}
	return gate{t, sdktrace.NewBatchSpanProcessor(exporter,
		sdktrace.WithMaxQueueSize(queue),
		sdktrace.WithMaxExportBatchSize(
			min(queue, env.positive("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", sdktrace.DefaultMaxExportBatchSize))),
		sdktrace.WithBatchTimeout(milliseconds("OTEL_BSP_SCHEDULE_DELAY", sdktrace.DefaultScheduleDelay)),
		sdktrace.WithExportTimeout(milliseconds("OTEL_BSP_EXPORT_TIMEOUT", sdktrace.DefaultExportTimeout)))}
}

// sink is what the sink needs.
func (t *tracing) sink(slot string) *sink.Tracing {
	if t == nil {
		return nil
	}
	return &sink.Tracing{
		Provider: t.provider, MaxLinks: sdktrace.NewSpanLimits().LinkCountLimit,
		Attributes: []attribute.KeyValue{attribute.String("walrelay.slot", slot)},
	}
}

// stats is what became of spans, as the monitor shows it; nil while tracing is off.
func (t *tracing) stats() *monitor.Spans {
	if t == nil {
		return nil
	}
	return &monitor.Spans{Exported: t.exported.Load(), Failed: t.failed.Load(), Dropped: t.dropped.Load()}
}

// close exports what is left, within what stopping may take in all.
func (t *tracing) close(ctx context.Context) {
	if t == nil {
		return
	}
	close(t.collector.last)
	limit := lastExport
	if at := t.stopped.Load(); at != nil {
		limit = min(limit, t.patience-time.Since(*at))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("spans were not exported before the stop", zap.Int64("spans", t.pending.Load()))
	}
}

// gate lets as many spans into the SDK's queue as that has room for, so that what is dropped is counted.
type gate struct {
	*tracing
	sdktrace.SpanProcessor
}

// OnEnd implements sdktrace.SpanProcessor.
func (g gate) OnEnd(span sdktrace.ReadOnlySpan) {
	switch {
	case !span.SpanContext().IsSampled():
	case g.pending.Add(1) > g.room:
		g.pending.Add(-1)
		g.dropped.Add(1)
	default:
		g.SpanProcessor.OnEnd(span)
	}
}

// watchedExporter counts, and tells the log when spans begin to get lost and when they do not any more. The SDK exports
// one batch at a time.
type watchedExporter struct {
	sdktrace.SpanExporter
	*tracing

	lost  uint64 // spans since then
	since time.Time
}

// ExportSpans implements sdktrace.SpanExporter. It hides errors from the SDK, which would log each of them.
func (e *watchedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	all := uint64(len(spans))
	e.pending.Add(-int64(all))
	lost := uint64(0)
	if err != nil {
		lost = all
	}
	if partly, ok := errors.AsType[rejectedError](err); ok {
		lost = min(all, uint64(partly.spans))
	}
	e.exported.Add(all - lost)
	e.failed.Add(lost)
	switch {
	case err != nil && e.lost == 0:
		e.since = time.Now()
		e.log.Warn("spans cannot be exported and are lost, events are delivered all the same", zap.Error(err))
	case err == nil && e.lost > 0:
		e.log.Info("spans are exported again", zap.Uint64("lost", e.lost), zap.Duration("after", time.Since(e.since)))
	}
	if e.lost += lost; err == nil {
		e.lost = 0
	}
	return nil
}
