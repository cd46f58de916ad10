package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
)

// Response is the answer that is kept for a key, be it of success or of failure.
type Response struct {
	Status int                 // as HTTP counts; other callers may use it as they like
	Header map[string][]string // UTF-8 without zero bytes; else ErrHeader
	Body   []byte

	// Replayed is true when the answer was saved by an earlier call. Ignored when saving.
	Replayed bool
}

func (r Response) outcomeHash() []byte {
	h := sha256.New()
	_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(r.Status)))
	_, _ = h.Write(r.Body) // never fails: https://pkg.go.dev/hash#Hash
	return h.Sum(nil)
}
