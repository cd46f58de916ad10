package idempotency

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"mime"
	"strings"
	"time"
	"unicode/utf8"
)

// DefaultLease is how long a claim is held unless the request says otherwise.
const DefaultLease = 30 * time.Second

// maxText is in bytes, for scope and key each. The primary key's index takes 2,704 bytes a row.
const maxText = 1024

// Request is what a key stands for.
type Request struct {
	// Scope is whose key it is, such as a tenant or user. Keys of different scopes never meet.
	Scope string
	// Key is chosen by the caller, anew for each intent and the same for each repetition. Required.
	Key string
	// Hash tells requests apart that carry the same key; see HashRequest.
	Hash [sha256.Size]byte
	// Lease is how long others wait for this one; DefaultLease when 0. It should exceed the longest run
	// of the work: too short wastes work (ErrLost), too long delays the takeover after a crash.
	Lease time.Duration
}

func (r Request) validate() error {
	var faults []error
	if r.Key == "" {
		faults = append(faults, errors.New("key is empty"))
	}
	for name, text := range map[string]string{"scope": r.Scope, "key": r.Key} {
		if len(text) > maxText {
			faults = append(faults, fmt.Errorf("%s is longer than %d bytes", name, maxText))
		}
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			faults = append(faults, fmt.Errorf("%s is not text", name))
		}
	}
	if r.Lease < 0 {
		faults = append(faults, errors.New("lease is negative"))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("check idempotency request: %w", err)
	}
	return nil
}

func (r Request) lease() time.Duration { return cmp.Or(r.Lease, DefaultLease) }

// HashRequest hashes a body together with whatever else makes the request, such as method and path.
// JSON (application/json and +json) counts by content: white space, order of members, and the spelling
// of strings and numbers do not matter. Any other body counts byte by byte, as does JSON that is
// invalid or means different things to different readers (members of one name, broken Unicode).
func HashRequest(contentType string, body []byte, parts ...string) [sha256.Size]byte {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		media = strings.ToLower(contentType)
	}
	h := sha256.New()
	for _, part := range parts {
		writeSized(h, []byte(part))
	}
	writeSized(h, []byte(media))
	if media == "application/json" || strings.HasSuffix(media, "+json") {
		if canonical, ok := CanonicalJSON(body); ok {
			writeSized(h, []byte("json"))
			writeSized(h, canonical)
			return [sha256.Size]byte(h.Sum(nil))
		}
	}
	writeSized(h, []byte("bytes"))
	writeSized(h, body)
	return [sha256.Size]byte(h.Sum(nil))
}

// writeSized keeps neighbours apart: "ab", "c" and "a", "bc" hash differently.
func writeSized(h hash.Hash, b []byte) {
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
	_, _ = h.Write(b) // never fails: https://pkg.go.dev/hash#Hash
}
