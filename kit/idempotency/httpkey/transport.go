package httpkey

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	defaultAttempts = 4
	firstPause      = 100 * time.Millisecond
	defaultMaxPause = 10 * time.Second
	maxDrained      = 64 << 10 // bytes of a dropped answer that are read to keep its connection
)

// Transport is an http.RoundTripper that gives each logical call (each RoundTrip) of POST and PATCH a
// key, unless the caller has set the header, and repeats the call under that key when its outcome is
// unknown or the server asks for it.
//
// Repeated are: transport errors, 429, 502, 503, 504, and 409 with Retry-After (the first attempt is
// still in progress). Not 500, which a server that saves answers would only replay, and never an
// answer that is marked as replayed. GET, HEAD, OPTIONS, TRACE, PUT and DELETE are repeated without key;
// other methods, and bodies that cannot be sent again (http.Request.GetBody is nil), are sent once.
//
// A key survives the process only when it comes from outside: from the caller's header or WithKey.
type Transport struct {
	// Base sends; http.DefaultTransport when nil.
	Base http.RoundTripper
	// Key makes the key of a logical call; DerivedKey when nil.
	Key func(*http.Request) string
	// Quoted sends the key as the draft's structured string instead of bare.
	Quoted bool
	// Attempts in all; 4 when 0.
	Attempts int
	// MaxPause between attempts; 10 s when 0. An answer whose Retry-After is longer is returned as it is.
	// Pauses double from 100 ms, half of each by chance.
	MaxPause time.Duration
}

var _ http.RoundTripper = (*Transport)(nil)

// RoundTrip implements http.RoundTripper. When attempts or context end, it returns the last outcome.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	send := r.Clone(r.Context()) // a RoundTripper must leave the request as it is
	guarded := r.Method == http.MethodPost || r.Method == http.MethodPatch
	if guarded && r.Header.Get(Header) == "" {
		if err := t.setKey(send); err != nil {
			closeBody(r)
			return nil, err
		}
	}
	attempts := cmp.Or(t.Attempts, defaultAttempts)
	if !guarded && !repeatable(r.Method) || r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		attempts = 1
	}
	base := cmp.Or[http.RoundTripper](t.Base, http.DefaultTransport)
	for attempt := 1; ; attempt++ {
		answer, err := base.RoundTrip(send)
		pause, again := t.pause(attempt, answer, err)
		if attempt >= attempts || !again || !wait(r.Context(), pause) {
			return answer, err
		}
		next, renewErr := renew(r, send)
		if renewErr != nil {
			return answer, err
		}
		if answer != nil {
			_, _ = io.CopyN(io.Discard, answer.Body, maxDrained)
			_ = answer.Body.Close()
		}
		send = next
	}
}

func (t *Transport) setKey(send *http.Request) error {
	makeKey := t.Key
	if makeKey == nil {
		makeKey = DerivedKey
	}
	key := makeKey(send)
	if err := checkKey(key); err != nil {
		return fmt.Errorf("make idempotency key: %w", err)
	}
	if t.Quoted {
		key = quote(key)
	}
	send.Header.Set(Header, key)
	return nil
}

// renew is the same request with its body from the beginning.
func renew(r, sent *http.Request) (*http.Request, error) {
	next := sent.Clone(r.Context())
	if r.GetBody == nil {
		return next, nil
	}
	body, err := r.GetBody()
	next.Body = body
	return next, err
}

// pause says whether an outcome may change, and how long to wait for that.
func (t *Transport) pause(attempt int, answer *http.Response, err error) (pause time.Duration, again bool) {
	longest := cmp.Or(t.MaxPause, defaultMaxPause)
	pause = min(firstPause<<min(attempt-1, 20), longest)
	pause = pause/2 + rand.N(pause/2+1)
	if err != nil {
		return pause, true // unless the context has ended, which wait finds
	}
	asked, isAsked := retryAfter(answer)
	switch answer.StatusCode {
	case http.StatusConflict:
		again = isAsked
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	again = again && answer.Header.Get(ReplayedHeader) == "" && asked <= longest
	return max(pause, asked), again
}

// retryAfter is in seconds or a date (RFC 9110, 10.2.3).
func retryAfter(answer *http.Response) (after time.Duration, ok bool) {
	value := answer.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at)), true
	}
	return 0, false
}

func wait(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func repeatable(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}
