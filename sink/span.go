package sink

import (
	"context"
	"net"
	"slices"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Tracing has a span made of every batch of events: from its first sending until its events are settled, which in
// exactly-once delivery is when their transaction is committed. The names are those of
// https://opentelemetry.io/docs/specs/semconv/messaging/kafka/; what walrelay adds begins with "walrelay.". No span
// holds a key, a payload, an id, or a header but for the trace context.
type Tracing struct {
	Provider   trace.TracerProvider
	MaxLinks   int                  // most contexts of its events that a span links to; negative: all
	Attributes []attribute.KeyValue // of every span
}

// Keys of attributes that the conventions do not have.
const (
	keyStream        = attribute.Key("walrelay.stream")
	keyReplay        = attribute.Key("walrelay.replay")         // in place of positions
	keyPositionFirst = attribute.Key("walrelay.position.first") // of the batch's first and last record
	keyPositionLast  = attribute.Key("walrelay.position.last")
	keyBatchBytes    = attribute.Key("walrelay.batch.bytes")       // uncompressed
	keyBatchOffset   = attribute.Key("walrelay.batch.base_offset") // absent when only an earlier attempt's answer had it
	keyBatchAttempts = attribute.Key("walrelay.batch.attempts")
	keyReason        = attribute.Key("walrelay.reason") // of an attempt that was repeated
)

// Values of error.type beyond those of kindOf.
const (
	errorPoison    = "poison"    // a record is to blame; the others are sent in other batches
	errorAbandoned = "abandoned" // the run, or the transaction, ended first; the events are sent again
)

// tracer begins spans. Nil is that of a sink without tracing.
type tracer struct {
	trace.Tracer
	maxLinks int
	common   []attribute.KeyValue
	placed   bool // events have positions
}

func newTracer(cfg *Config) *tracer {
	if cfg.Tracing == nil {
		return nil
	}
	common := append(slices.Clone(cfg.Tracing.Attributes),
		semconv.MessagingSystemKafka, semconv.MessagingOperationName("send"), semconv.MessagingOperationTypeSend,
		keyStream.String(cfg.Stream))
	if cfg.ClientID != "" {
		common = append(common, semconv.MessagingClientID(cfg.ClientID))
	}
	if cfg.Replay != "" {
		common = append(common, keyReplay.String(cfg.Replay))
	}
	return &tracer{
		Tracer: cfg.Tracing.Provider.Tracer("github.com/walrelay/walrelay/sink",
			trace.WithSchemaURL(semconv.SchemaURL)),
		maxLinks: cfg.Tracing.MaxLinks, common: common, placed: cfg.Replay == "",
	}
}

// sending begins the span of a batch that is about to leave, or counts another attempt. The batch is in flight, so
// that nobody else touches it.
func (t *tracer) sending(ctx context.Context, p *partition, b *batch, addr string) {
	if t == nil || b.state {
		return
	}
	if b.span == nil {
		_, s := t.Start(ctx, "send "+p.topic.name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
			append(slices.Clip(t.common), semconv.MessagingDestinationName(p.topic.name),
				semconv.MessagingDestinationPartitionID(strconv.Itoa(int(p.id))),
				semconv.MessagingBatchMessageCount(len(b.entries)))...))
		b.span = &span{Span: s}
		if s.IsRecording() {
			t.describe(s, b)
		}
	}
	b.span.attempts++
	if host, port, err := net.SplitHostPort(addr); err == nil && b.span.IsRecording() {
		n, _ := strconv.Atoi(port) // of a connection that is open
		b.span.SetAttributes(semconv.ServerAddress(host), semconv.ServerPort(n))
	}
}

// describe says what a batch holds, as far as it is not worth the trouble for a span that nobody records.
func (t *tracer) describe(s trace.Span, b *batch) {
	s.SetAttributes(keyBatchBytes.Int(b.size))
	if t.placed {
		s.SetAttributes(keyPositionFirst.String(b.entries[0].pos.String()),
			keyPositionLast.String(b.entries[len(b.entries)-1].pos.String()))
	}
	for _, context := range contexts(b, t.maxLinks) {
		s.AddLink(trace.Link{SpanContext: context})
	}
}

// span is that of a batch. The methods below do nothing for nil, which a batch without a span has.
type span struct {
	trace.Span
	attempts int
}

// retried notes an attempt that will be repeated.
func (s *span) retried(kind, reason string) {
	if s != nil {
		s.AddEvent("retry", trace.WithAttributes(semconv.ErrorTypeKey.String(kind), keyReason.String(reason)))
	}
}

// acked notes where the broker put the batch; -1 when it had done so before. In exactly-once delivery the
// transaction is yet to be committed, so the moment counts.
func (s *span) acked(offset int64, transactional bool) {
	if s == nil {
		return
	}
	if offset >= 0 {
		s.SetAttributes(keyBatchOffset.Int64(offset))
	}
	if transactional {
		s.AddEvent("acknowledged")
	}
}

// settled ends the span of a batch that is delivered.
func (s *span) settled() {
	if s != nil {
		s.SetAttributes(keyBatchAttempts.Int(s.attempts))
		s.End()
	}
}

// failed ends the span of a batch that is not sent any more as it is.
func (s *span) failed(kind, reason string) {
	if s != nil {
		s.SetAttributes(keyBatchAttempts.Int(s.attempts), semconv.ErrorTypeKey.String(kind))
		s.SetStatus(codes.Error, reason)
		s.End()
	}
}

// abandoned ends the spans of what was sent and will not be sent again as it is, since the run is over. What is in
// flight follows with its answer. Called with mu held.
func (k *Kafka) abandoned() {
	if k.tracer == nil {
		return
	}
	for _, t := range k.topics {
		for _, p := range t.partitions {
			abandon(p.failed)
			abandon(p.queue)
		}
	}
}

func abandon(batches []*batch) {
	for _, b := range batches {
		b.span.failed(errorAbandoned, errRunEnded.Error())
	}
}
