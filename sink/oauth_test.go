package sink

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"
)

func TestTokens_RenewedBeforeTheyExpire(t *testing.T) {
	t.Parallel()
	fetched := 0
	var fault error
	life := time.Hour
	source := &tokens{fetch: func() (*oauth2.Token, error) {
		if fault != nil {
			return nil, fault
		}
		fetched++
		return &oauth2.Token{AccessToken: fmt.Sprint(fetched), Expiry: now().Add(life)}, nil
	}}
	expect := func(want string) {
		t.Helper()
		token, err := source.Token()
		require.NoError(t, err)
		require.Equal(t, want, token.Token)
	}
	expect("1")
	expect("1")
	require.WithinDuration(t, now().Add(30*time.Minute), source.renew, time.Minute)

	source.renew = now() // half an hour later
	fault = errors.New("the endpoint is away")
	expect("1")
	fault = nil
	expect("2")
	expect("2")

	source.forget()
	expect("3")
	fault = errors.New("the endpoint is away")
	source.renew, source.token.Expiry = now(), now() // an hour later
	_, err := source.Token()
	require.ErrorIs(t, err, fault)

	fault, life = nil, -time.Second
	expect("4")
	expect("5") // its life is unknown, or over: no second login with it
}

func TestOAuth_AsksByClientCredentials(t *testing.T) {
	t.Parallel()
	var form atomic.Value
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		_ = r.ParseForm()
		form.Store([]string{id, secret, r.Form.Get("grant_type"), r.Form.Get("scope"), r.Form.Get("audience")})
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"access_token": "t", "token_type": "Bearer", "expires_in": 60}`)
	}))
	defer endpoint.Close()
	o := &OAuth{
		TokenURL: endpoint.URL, ClientID: "relay", ClientSecret: always("s3cr3t"),
		Scopes: []string{"a", "b"}, Audience: "kafka", Extensions: map[string]string{"logicalCluster": "lkc-1"},
	}
	token, err := o.tokens(t.Context(), time.Minute).Token()
	require.NoError(t, err)
	require.Equal(t, "t", token.Token)
	require.Equal(t, o.Extensions, token.Extensions)
	require.Equal(t, []string{"relay", "s3cr3t", "client_credentials", "a b", "kafka"}, form.Load())
}

// Whatever the endpoint answers, and be it the request: the error has the endpoint and a remedy, and no secret.
func TestOAuth_FaultsKeepTheSecret(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`401 {"error": "invalid_client", "error_description": "no s3cr3t"}`: "WALRELAY_KAFKA_OAUTH_CLIENT_SECRET",
		`400 {"error": "invalid_scope", "error_description": "no s3cr3t"}`:  "WALRELAY_KAFKA_OAUTH_SCOPES",
		`400 {"error": "unsupported_grant_type"}`:                           "client_credentials",
		`400 {"error": "s3cr3t"}`:                                           "WALRELAY_KAFKA_OAUTH_TOKEN_URL",
		`500 s3cr3t`:                                                        "500 Internal Server Error",
		`302 s3cr3t`:                                                        "302 Found",
		`200 s3cr3t`:                                                        "holds no token",
		`200 {"s3cr3t": true}`:                                              "holds no token",
	} {
		endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
			var code int
			_, _ = fmt.Sscan(answer, &code)
			w.WriteHeader(code)
			_, _ = fmt.Fprint(w, answer[4:])
		}))
		o := &OAuth{TokenURL: endpoint.URL + "/token", ClientID: "relay", ClientSecret: always("s3cr3t")}
		_, err := o.tokens(t.Context(), time.Minute).Token()
		require.ErrorContains(t, err, endpoint.URL+"/token: ", answer)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "s3cr3t", answer)
		endpoint.Close()
		_, err = o.tokens(t.Context(), time.Minute).Token()
		require.ErrorContains(t, err, "connection refused")
	}
	unreadable := errors.New("no such file")
	o := &OAuth{ClientSecret: func() (string, error) { return "", unreadable }}
	_, err := o.tokens(t.Context(), time.Minute).Token()
	require.ErrorIs(t, err, unreadable)
}
