package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Header is the name under which a token travels, in HTTP and in Kafka. Kafka tells upper from lower case:
// there it is KafkaHeader. An outbox row may carry it too, for it is none of walrelay's reserved names.
const (
	Header      = "Fencing-Token"
	KafkaHeader = "fencing-token"
)

// ErrNoToken is returned where a token was expected and none came.
var ErrNoToken = errors.New("no fencing token")

type key struct{}

// NewContext returns a context that carries the token.
func NewContext(ctx context.Context, token Token) context.Context {
	return context.WithValue(ctx, key{}, token)
}

// FromContext returns the token that ctx carries, or the zero Token.
func FromContext(ctx context.Context) Token {
	token, _ := ctx.Value(key{}).(Token)
	return token
}

// FromHTTP reads the token of a request. ErrNoToken when there is none; ErrToken when it is
// malformed, or there are several.
func FromHTTP(h http.Header) (Token, error) {
	values := h.Values(Header)
	switch len(values) {
	case 0:
		return 0, ErrNoToken
	case 1:
		return ParseToken(values[0])
	}
	return 0, fmt.Errorf("%d headers: %w", len(values), ErrToken)
}

// SetHTTP puts the token into the headers of a request, in place of one that is there.
func SetHTTP(h http.Header, token Token) { h.Set(Header, token.String()) }

// ToKafka returns the token as a header of a record, for whichever client's type.
func ToKafka(token Token) (name string, value []byte) { return KafkaHeader, []byte(token.String()) }

// FromKafka reads the token of a record. Get returns the value of a header, and whether it is there, as
// kit/consumer's Headers do. ErrNoToken and ErrToken as with FromHTTP.
func FromKafka(get func(name string) (value []byte, ok bool)) (Token, error) {
	value, ok := get(KafkaHeader)
	if !ok {
		return 0, ErrNoToken
	}
	return ParseToken(string(value))
}

// Require reads the token of each request and passes it on in the request's context: 400 without one. The
// handler checks it where it writes (Write, Admit, Gate) and answers 412 when that returns ErrFenced, for
// which StatusCode is there.
func Require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := FromHTTP(r.Header)
		if err != nil {
			http.Error(w, "header "+Header+": "+err.Error(), http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r.WithContext(NewContext(r.Context(), token)))
	})
}

// StatusCode is the answer that fits the outcome of a guarded write: 200; 412 (Precondition Failed)
// when fenced; 409 (Conflict) when the token was used; 404 without a row; otherwise 500.
func StatusCode(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, ErrFenced):
		return http.StatusPreconditionFailed
	case errors.Is(err, ErrRepeated):
		return http.StatusConflict
	case errors.Is(err, ErrNoRow):
		return http.StatusNotFound
	}
	return http.StatusInternalServerError
}

// Transport adds the token of a request's context to the request. Requests without one pass unchanged.
type Transport struct {
	Base http.RoundTripper // nil: http.DefaultTransport
}

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if token := FromContext(r.Context()); token > 0 {
		r = r.Clone(r.Context()) // a RoundTripper must not change its request
		SetHTTP(r.Header, token)
	}
	return base.RoundTrip(r)
}
