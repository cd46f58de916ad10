package outbox

import "context"

// Headers that tie events together across services. walrelay passes them on as any other.
const (
	// HeaderTraceparent and HeaderTracestate are the W3C trace context: https://www.w3.org/TR/trace-context/.
	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
	// HeaderCausationID is the id of the event that led to this one; a first one has none.
	HeaderCausationID = "causation-id"
	// HeaderCorrelationID is the id of the event that the whole chain began with.
	HeaderCorrelationID = "correlation-id"

	headerID = "id" // as walrelay names it
)

type (
	traceKey struct{}
	trace    struct{ parent, state string }
	causeKey struct{}
)

// WithTrace gives the events that are recorded with ctx the trace context. Empty strings take it away.
// With a tracing library, set Outbox.Trace instead.
func WithTrace(ctx context.Context, traceparent, tracestate string) context.Context {
	return context.WithValue(ctx, traceKey{}, trace{traceparent, tracestate})
}

func traceOf(ctx context.Context) (traceparent, tracestate string) {
	t, _ := ctx.Value(traceKey{}).(trace) // the zero value: none
	return t.parent, t.state
}

// Cause is the event that the work at hand reacts to.
type Cause struct {
	// EventID is its id. Empty: there is none, the events are the first of their chains.
	EventID string
	// CorrelationID is the id that its chain is known by. Empty: its own, since it is the first.
	CorrelationID string
}

func (c Cause) correlation() string {
	if c.CorrelationID == "" {
		return c.EventID
	}
	return c.CorrelationID
}

// WithCause makes cause the origin of the events that are recorded with ctx: its id becomes their
// causation-id, and its correlation id theirs. A cause with a correlation id alone (that of a request,
// say) begins a chain under that id.
func WithCause(ctx context.Context, cause Cause) context.Context {
	return context.WithValue(ctx, causeKey{}, cause)
}

// CauseOf returns what WithCause or WithRecord has put into ctx.
func CauseOf(ctx context.Context) Cause {
	cause, _ := ctx.Value(causeKey{}).(Cause) // the zero value: none
	return cause
}

// WithRecord makes a record that walrelay has sent the cause of the events that are recorded with ctx,
// and passes on its trace context. header returns the value of the record's header, or "" without one,
// so that it fits any Kafka client:
//
//	ctx = outbox.WithRecord(ctx, func(name string) string {
//		for _, h := range record.Headers {
//			if h.Key == name {
//				return string(h.Value)
//			}
//		}
//		return ""
//	})
func WithRecord(ctx context.Context, header func(name string) string) context.Context {
	ctx = WithCause(ctx, Cause{EventID: header(headerID), CorrelationID: header(HeaderCorrelationID)})
	return WithTrace(ctx, header(HeaderTraceparent), header(HeaderTracestate))
}
