package outbox

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"unicode/utf8"
)

// complete returns the event as it is recorded: with an id, and the headers that the context gives.
func (o Outbox) complete(ctx context.Context, e Event) (Event, error) {
	if e.AggregateType == "" || e.AggregateID == "" || e.Type == "" {
		return e, ErrIncomplete
	}
	// encoding/json would replace what is not UTF-8, and so make two ids or keys the same.
	valid := o.Binary || utf8.Valid(e.Payload)
	for _, text := range []string{e.ID, e.AggregateType, e.AggregateID, e.Type} {
		valid = valid && utf8.ValidString(text)
	}
	for name, value := range e.Headers {
		valid = valid && utf8.ValidString(name) && utf8.ValidString(value)
		if name == "id" || name == "eventType" || strings.HasPrefix(name, "walrelay-") {
			return e, ErrReservedHeader
		}
	}
	if !valid {
		return e, ErrEncoding
	}
	if e.ID == "" {
		e.ID = NewID()
	}
	headers := o.headersOf(ctx)
	maps.Copy(headers, e.Headers) // the caller's own go before the context's
	e.Headers = headers
	return e, nil
}

func (o Outbox) headersOf(ctx context.Context) map[string]string {
	trace := o.Trace
	if trace == nil {
		trace = traceOf
	}
	headers := map[string]string{}
	set := func(name, value string) {
		if value != "" {
			headers[name] = value
		}
	}
	traceparent, tracestate := trace(ctx)
	set(HeaderTraceparent, traceparent)
	set(HeaderTracestate, tracestate)
	cause := CauseOf(ctx)
	set(HeaderCausationID, cause.EventID)
	set(HeaderCorrelationID, cause.correlation())
	return headers
}

// encodeHeaders returns headers as JSON, or nil when there are none.
func encodeHeaders(headers map[string]string) json.RawMessage {
	if len(headers) == 0 {
		return nil
	}
	text, _ := json.Marshal(headers) // strings are always representable
	return text
}
