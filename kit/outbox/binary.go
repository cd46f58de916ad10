package outbox

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
)

// ErrTooManyHeaders is returned for an event with more headers than the binary envelope can count.
var ErrTooManyHeaders = errors.New("an event has at most 65535 headers")

// binaryEnvelope writes the binary envelope, as docs/wire-format.md has it.
func binaryEnvelope(e *Event) ([]byte, error) {
	if len(e.Headers) > math.MaxUint16 {
		return nil, ErrTooManyHeaders
	}
	b := []byte{1} // version
	b = appendValue(b, e.ID)
	b = binary.BigEndian.AppendUint16(b, 1) // pairs of the route
	b = appendValue(b, "aggregatetype")
	b = appendValue(b, e.AggregateType)
	b = appendValue(b, e.AggregateID)
	b = appendValue(b, e.Type)
	b = appendNull(b) // timestamp: that of the commit
	b = binary.BigEndian.AppendUint16(b, uint16(len(e.Headers)))
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		b = appendValue(b, name)
		b = appendValue(b, e.Headers[name])
	}
	if e.Payload == nil {
		return appendNull(b), nil
	}
	return appendValue(b, e.Payload), nil
}

// appendValue needs no bound: the server takes no message of 2 GiB.
func appendValue[T string | ~[]byte](b []byte, value T) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(value))), value...)
}

func appendNull(b []byte) []byte { return binary.BigEndian.AppendUint32(b, math.MaxUint32) } // -1
