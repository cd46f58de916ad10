package sink

import (
	"errors"
	"fmt"

	"github.com/walrelay/walrelay/decoder"
)

// appendTracing encodes the headers of the trace context but for traceparent. A column of its own has precedence
// over an entry of the span context. What cannot be read is kept for the dead letter, as it was.
func (k *Kafka) appendTracing(dst []byte, ev *decoder.Event) ([]byte, error) {
	if ev.TraceState != nil {
		dst = appendHeader(dst, []byte(headerTraceState), ev.TraceState)
	}
	if ev.SpanContext == nil {
		return dst, nil
	}
	own := len(dst)
	err := decoder.ParseProperties(ev.SpanContext, func(key, value []byte) error {
		switch name := string(key); {
		case name == "":
			return errors.New("an entry has no name")
		case k.reserved(name):
			return errReserved
		case name == headerTraceParent && ev.TraceParent != nil, name == headerTraceState && ev.TraceState != nil:
			return nil
		}
		dst = appendHeader(dst, key, value)
		return nil
	})
	if err != nil {
		dst = appendHeader(dst[:own], []byte(headerDeadTracing), ev.SpanContext)
		return dst, fmt.Errorf("span context: %w", err)
	}
	return dst, nil
}
