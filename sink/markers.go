package sink

import (
	"strconv"

	"github.com/walrelay/walrelay/decoder"
)

// Headers by which a consumer puts a PostgreSQL transaction together again, where they are asked for.
const (
	headerTransaction = "walrelay-transaction-id"    // timeline and commit LSN, as in the position
	headerIndex       = "walrelay-transaction-index" // decimal, from 0, poison included
	headerCount       = "walrelay-transaction-count" // decimal, on the last event only
)

// appendMarkers encodes the headers of an event's place in its transaction.
func appendMarkers(dst []byte, ev *decoder.Event) []byte {
	var text [32]byte // longer than any of them
	dst = appendHeader(dst, []byte(headerTransaction), ev.Position.AppendTransaction(text[:0]))
	dst = appendHeader(dst, []byte(headerIndex), strconv.AppendUint(text[:0], uint64(ev.Position.Index), 10))
	if ev.Count > 0 {
		dst = appendHeader(dst, []byte(headerCount), strconv.AppendUint(text[:0], uint64(ev.Count), 10))
	}
	return dst
}
