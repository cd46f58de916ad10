package httpkey_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/idempotency/httpkey"
)

// script answers call by call; the last answer stays. It keeps what it was sent.
type script struct {
	answers []any // status, error or header list of 409s
	keys    []string
	bodies  []string
	at      []time.Time
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(b)
		_ = r.Body.Close()
	}
	s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	s.bodies = append(s.bodies, body)
	s.at = append(s.at, time.Now())
	answer := s.answers[min(len(s.keys), len(s.answers))-1]
	w := &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("answer"))}
	switch a := answer.(type) {
	case error:
		return nil, a
	case int:
		w.StatusCode = a
	case func(*http.Response):
		a(w)
	}
	return w, nil
}

func answer(status int, header ...string) func(*http.Response) {
	return func(w *http.Response) {
		w.StatusCode = status
		for i := 0; i < len(header); i += 2 {
			w.Header.Set(header[i], header[i+1])
		}
	}
}

func roundTrip(t *testing.T, transport *httpkey.Transport, ctx context.Context, method, body string) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "https://pay.example/charges", strings.NewReader(body))
	require.NoError(t, err)
	w, err := transport.RoundTrip(r)
	require.Empty(t, r.Header, "the request is left alone")
	if err != nil {
		return 0, err
	}
	_ = w.Body.Close()
	return w.StatusCode, nil
}

func TestTransport_KeepsTheKeyAcrossAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []any{errors.New("reset"), 503, answer(409, "Retry-After", "2"), 201}}
		transport := &httpkey.Transport{Base: s}
		status, err := roundTrip(t, transport, t.Context(), "POST", "body")
		require.NoError(t, err)
		require.Equal(t, 201, status)
		require.Len(t, s.keys, 4)
		for i := range s.keys {
			require.NotEmpty(t, s.keys[i])
			require.Equal(t, s.keys[0], s.keys[i])
			require.Equal(t, "body", s.bodies[i])
		}
		require.GreaterOrEqual(t, s.at[3].Sub(s.at[2]), 2*time.Second)
		require.Less(t, s.at[1].Sub(s.at[0]), 101*time.Millisecond)

		_, err = roundTrip(t, transport, t.Context(), "POST", "body")
		require.NoError(t, err)
		require.NotEqual(t, s.keys[0], s.keys[4], "another call, another key")
	})
}

func TestTransport_WhatIsRepeated(t *testing.T) {
	t.Parallel()
	date := "Sat, 01 Jan 2000 00:00:03 GMT" // the bubble's clock begins at midnight
	for name, c := range map[string]struct {
		method string
		answer any
		calls  int
		after  time.Duration
	}{
		"error":                 {"POST", errors.New("reset"), 4, 0},
		"500":                   {"POST", 500, 1, 0},
		"429":                   {"POST", 429, 4, 0},
		"502":                   {"PATCH", 502, 4, 0},
		"409":                   {"POST", 409, 1, 0},
		"422":                   {"POST", 422, 1, 0},
		"409 in progress":       {"POST", answer(409, "Retry-After", "1"), 4, 3 * time.Second},
		"by date":               {"POST", answer(503, "Retry-After", date), 4, 3 * time.Second},
		"replayed":              {"POST", answer(502, "Idempotency-Replayed", "true"), 1, 0},
		"asked for too long":    {"POST", answer(503, "Retry-After", "3600"), 1, 0},
		"GET":                   {"GET", 503, 4, 0},
		"PUT":                   {"PUT", errors.New("reset"), 4, 0},
		"method of its own":     {"CHARGE", 503, 1, 0},
		"Retry-After of no use": {"POST", answer(503, "Retry-After", "soon"), 4, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &script{answers: []any{c.answer}}
				begin := time.Now()
				_, _ = roundTrip(t, &httpkey.Transport{Base: s}, t.Context(), c.method, "body")
				require.Len(t, s.keys, c.calls)
				require.GreaterOrEqual(t, time.Since(begin), c.after)
				require.Equal(t, c.method == "POST" || c.method == "PATCH", s.keys[0] != "")
			})
		})
	}
}

func TestTransport_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []any{answer(503, "Retry-After", "9")}}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		status, err := roundTrip(t, &httpkey.Transport{Base: s}, ctx, "POST", "body")
		require.NoError(t, err)
		require.Equal(t, 503, status)
		require.Len(t, s.keys, 1)
	})
}

func TestTransport_BodyThatCannotBeSentAgain(t *testing.T) {
	t.Parallel()
	s := &script{answers: []any{503}}
	r, err := http.NewRequestWithContext(t.Context(), "POST", "https://pay.example/", io.NopCloser(strings.NewReader("x")))
	require.NoError(t, err)
	w, err := (&httpkey.Transport{Base: s}).RoundTrip(r)
	require.NoError(t, err)
	_ = w.Body.Close()
	require.Len(t, s.keys, 1)
}

func TestTransport_Keys(t *testing.T) {
	t.Parallel()
	key := func(transport httpkey.Transport, ctx context.Context, url string) string {
		s := &script{answers: []any{200}}
		transport.Base = s
		r, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader("x"))
		require.NoError(t, err)
		w, err := transport.RoundTrip(r)
		require.NoError(t, err)
		_ = w.Body.Close()
		return s.keys[0]
	}
	const url = "https://pay.example/charges"
	ctx := httpkey.WithKey(t.Context(), "shop", "incoming")
	derived := key(httpkey.Transport{}, ctx, url)
	require.Equal(t, derived, key(httpkey.Transport{}, ctx, url))
	require.NotContains(t, derived, "incoming")
	for _, other := range []string{
		key(httpkey.Transport{}, ctx, url+"?a=1"),
		key(httpkey.Transport{}, ctx, "https://ship.example/charges"),
		key(httpkey.Transport{}, httpkey.WithCall(ctx, "second"), url),
		key(httpkey.Transport{}, httpkey.WithKey(ctx, "another shop", "incoming"), url),
		key(httpkey.Transport{}, t.Context(), url),
	} {
		require.NotEqual(t, derived, other)
	}
	require.Equal(t, "incoming", key(httpkey.Transport{Key: httpkey.SameKey}, ctx, url))
	require.NotEmpty(t, key(httpkey.Transport{Key: httpkey.SameKey}, t.Context(), url))
	require.Equal(t, `"incoming"`, key(httpkey.Transport{Key: httpkey.SameKey, Quoted: true}, ctx, url))

	r, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader("x"))
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", "mine")
	s := &script{answers: []any{200}}
	w, err := (&httpkey.Transport{Base: s}).RoundTrip(r)
	require.NoError(t, err)
	_ = w.Body.Close()
	require.Equal(t, []string{"mine"}, s.keys)

	r.Header.Del("Idempotency-Key")
	bad := &httpkey.Transport{Key: func(*http.Request) string { return "not one" }}
	_, err = bad.RoundTrip(r)
	require.ErrorContains(t, err, "make idempotency key")
}

// A guarded handler calls a guarded provider: the retry of a client reaches the provider as a retry.
func TestTransport_AcrossTheTrustBoundary(t *testing.T) {
	t.Parallel()
	provider, shop := newDatabase(t), newDatabase(t)
	charges := serve(t, &httpkey.Guard{Pool: provider.Conn, Required: true}, pay)
	client := &http.Client{Transport: &httpkey.Transport{Base: charges.Client().Transport}}
	calls := 0
	orders := serve(t, &httpkey.Guard{Pool: shop.Conn, Required: true}, func(w http.ResponseWriter, r *http.Request) {
		calls++
		out, err := http.NewRequestWithContext(r.Context(), "POST", charges.URL, strings.NewReader(`{"amount":5}`))
		require.NoError(t, err)
		answer, err := client.Do(out)
		require.NoError(t, err)
		_ = answer.Body.Close()
		require.Equal(t, calls > 1, answer.Header.Get("Idempotency-Replayed") == "true")
		if calls == 1 {
			panic(http.ErrAbortHandler) // after the charge, before the shop's commit
		}
		pay(w, r)
	})
	require.Zero(t, post(t, orders, "{}", "Idempotency-Key", "order").status)
	require.Equal(t, 201, post(t, orders, "{}", "Idempotency-Key", "order").status)
	require.Equal(t, 1, payments(t, provider))
	require.Equal(t, 1, payments(t, shop))
}
