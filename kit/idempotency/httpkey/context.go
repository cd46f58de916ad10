package httpkey

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
)

type incomingKey struct{}

type incoming struct{ scope, key string }

type callName struct{}

// WithKey says that what is done under this context is done for a key: Transport derives the keys of
// outgoing calls from it. Guard sets it; a consumer of messages may, from the message's id.
func WithKey(ctx context.Context, scope, key string) context.Context {
	return context.WithValue(ctx, incomingKey{}, incoming{scope, key})
}

// WithCall names an outgoing call. Needed when one piece of work calls the same URL more than once:
// otherwise all these calls have one key, and the provider takes them for one.
func WithCall(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callName{}, name)
}

// DerivedKey is Transport's default: a key made from the one that the context carries, or a random one
// when it carries none.
//
// It is derived and not the same, because one piece of work may call several providers, or one of them
// twice, because the scope must count (two tenants may send the same key), and because a client's key is
// not for strangers. It does not depend on the outgoing body: should the work run again and send
// another body, the provider refuses that loudly (422) instead of taking it for a second payment.
func DerivedKey(r *http.Request) string {
	in, ok := r.Context().Value(incomingKey{}).(incoming)
	if !ok {
		return rand.Text() // 130 bits
	}
	name, _ := r.Context().Value(callName{}).(string) // "" when there is none
	h := sha256.New()
	for _, part := range []string{in.scope, in.key, r.Method, r.URL.Host, r.URL.EscapedPath(), r.URL.RawQuery, name} {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		_, _ = h.Write([]byte(part)) // never fails: https://pkg.go.dev/hash#Hash
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// SameKey passes on the key that the context carries as it is, to one's own services that share scopes;
// a random one when there is none.
func SameKey(r *http.Request) string {
	if in, ok := r.Context().Value(incomingKey{}).(incoming); ok {
		return in.key
	}
	return rand.Text()
}
