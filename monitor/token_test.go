package monitor

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

const token = "correct-horse-battery"

// guarded is a fixture that wants a token, and what it logs.
func guarded(t *testing.T) (*fixture, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	return newFixtureWith(t, func(cfg *Config) { cfg.Token, cfg.Logger = always(token), zap.New(core) }), logs
}

func (f *fixture) ask(t *testing.T, path, authorization string) *httptest.ResponseRecorder {
	t.Helper()
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	f.Handler().ServeHTTP(recorder, request)
	return recorder
}

func TestToken_GuardsWhatHoldsData(t *testing.T) {
	t.Parallel()
	f, logs := guarded(t)
	f.lag.Store(nil) // so that something is logged
	for _, path := range []string{"/metrics", "/status"} {
		for _, wrong := range []string{
			"", "Bearer", "Bearer ", "Bearer correct", "Bearer " + token + "x", "Bearer  " + token, token, "Basic " + token,
		} {
			answer := f.ask(t, path, wrong)
			require.Equal(t, http.StatusUnauthorized, answer.Code, "%s %q", path, wrong)
			require.Contains(t, answer.Header().Get("WWW-Authenticate"), `Bearer realm="walrelay"`)
			require.NotContains(t, answer.Body.String(), "orders")
			require.NotContains(t, answer.Body.String(), token)
		}
		for _, right := range []string{"Bearer " + token, "bearer " + token} {
			answer := f.ask(t, path, right)
			require.Equal(t, http.StatusOK, answer.Code, path)
			require.Contains(t, answer.Body.String(), "orders")
			require.NotContains(t, answer.Body.String(), token)
		}
	}
	require.NotZero(t, logs.Len())
	for _, entry := range logs.All() {
		require.NotContains(t, entry.Message, token)
		for _, field := range entry.ContextMap() {
			require.NotContains(t, field, token)
		}
	}
}

// A probe cannot bear a secret: it gets the verdict and the state, and nothing of an event.
func TestToken_ProbesStayOpenAndTerse(t *testing.T) {
	t.Parallel()
	f, _ := guarded(t)
	require.Equal(t, http.StatusOK, f.ask(t, "/livez", "").Code)
	require.Equal(t, "ready: streaming\n", f.ask(t, "/readyz", "").Body.String())

	status := streaming()
	status.State, status.StuckOn = Stuck, &Poison{EventID: "4711", Table: "public.outbox", Reason: "too large"}
	f.status.Store(&status)
	answer := f.ask(t, "/readyz", "Bearer wrong")
	require.Equal(t, http.StatusServiceUnavailable, answer.Code)
	require.Equal(t, "not ready: stuck\n", answer.Body.String())
	answer = f.ask(t, "/readyz", "Bearer "+token)
	require.Equal(t, http.StatusServiceUnavailable, answer.Code)
	require.Contains(t, answer.Body.String(), `slot orders_slot, stream orders: stuck: event "4711"`)
}

// A token that was changed counts from the next request on; while there is none, nobody is let in.
func TestToken_IsReadAtEachRequest(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	present, fault := token, error(nil)
	f := newFixtureWith(t, func(cfg *Config) {
		cfg.Token, cfg.Logger = func() (string, error) { return present, fault }, zap.New(core)
	})
	status := func(token string) int { return f.ask(t, "/metrics", "Bearer "+token).Code }
	require.Equal(t, http.StatusOK, status(token))
	present = "another-horse-battery"
	require.Equal(t, http.StatusUnauthorized, status(token))
	require.Equal(t, http.StatusOK, status(present))
	require.Zero(t, logs.Len())

	present, fault = "", errors.New("no such file")
	for _, offered := range []string{token, "another-horse-battery", ""} {
		require.Equal(t, http.StatusUnauthorized, status(offered))
	}
	require.Equal(t, 1, logs.FilterField(zap.Error(fault)).Len(), "once")
	present, fault = token, nil
	require.Equal(t, http.StatusOK, status(token))
}

// always is a token that does not change.
func always(token string) func() (string, error) {
	return func() (string, error) { return token, nil }
}
