package sink

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// OAuth is how OAUTHBEARER gets its tokens: by the client credentials grant (RFC 6749, section 4.4).
type OAuth struct {
	TokenURL string
	ClientID string
	// ClientSecret is asked for at each token, so that one that was changed is taken up.
	ClientSecret func() (string, error)
	Scopes       []string
	Audience     string // optional, sent as the parameter audience
	// Extensions are sent to the broker beside the token (RFC 7628, section 3.1). Optional.
	Extensions map[string]string
}

// tokens returns the source of tokens. A fetch takes no longer than timeout, and ends with ctx.
func (o *OAuth) tokens(ctx context.Context, timeout time.Duration) *tokens {
	grant := &clientcredentials.Config{ClientID: o.ClientID, TokenURL: o.TokenURL, Scopes: o.Scopes}
	if o.Audience != "" {
		grant.EndpointParams = url.Values{"audience": {o.Audience}}
	}
	client := &http.Client{
		Timeout: timeout,
		// Wherever a redirect leads, the client's secret was not meant for it.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, client)
	return &tokens{extensions: o.Extensions, fetch: func() (*oauth2.Token, error) {
		var err error
		if grant.ClientSecret, err = o.ClientSecret(); err != nil {
			return nil, &tokenError{fmt.Errorf("fetch a token for OAUTHBEARER: %w", err)}
		}
		token, err := grant.Token(ctx)
		if err != nil {
			return nil, &tokenError{fmt.Errorf("fetch a token for OAUTHBEARER from %s: %w", o.TokenURL, tokenFault(err))}
		}
		return token, nil
	}}
}

// tokenError is why there is no token to log in with: no broker has seen any yet.
type tokenError struct{ error }

// Unwrap returns the reason.
func (e *tokenError) Unwrap() error { return e.error }

// tokenFault is an error of the token endpoint without what the endpoint says in words of its own, for it may
// repeat the request. The codes are RFC 6749's, section 5.2.
func tokenFault(err error) error {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		if broken, ok := errors.AsType[*url.Error](err); ok {
			return broken.Err // which leaves out the URL, named already
		}
		return errors.New("its answer holds no token")
	}
	status := refused.Response.Status
	switch refused.ErrorCode {
	case "invalid_client", "unauthorized_client":
		return fmt.Errorf("%s (%s): look at WALRELAY_KAFKA_OAUTH_CLIENT_ID and WALRELAY_KAFKA_OAUTH_CLIENT_SECRET",
			status, refused.ErrorCode)
	case "invalid_scope":
		return fmt.Errorf("%s (invalid_scope): look at WALRELAY_KAFKA_OAUTH_SCOPES", status)
	case "invalid_request", "invalid_grant", "unsupported_grant_type":
		return fmt.Errorf("%s (%s): the client must be allowed the grant client_credentials", status, refused.ErrorCode)
	default:
		return fmt.Errorf("%s: look at WALRELAY_KAFKA_OAUTH_TOKEN_URL and the endpoint's log", status)
	}
}

// tokens is the access token in use: fetched when it is first needed, and again after half its life. A session with a
// broker ends with its token, and sarama logs in anew when 85 to 95 % of the session have passed: it gets another token
// then, and no session begins that ends at once. It implements sarama.AccessTokenProvider. Safe for concurrent use; who
// asks meanwhile waits for the one fetch.
type tokens struct {
	fetch      func() (*oauth2.Token, error)
	extensions map[string]string

	mu    sync.Mutex
	token *oauth2.Token // nil: none
	renew time.Time     // from when on another one is wanted
}

// Token implements sarama.AccessTokenProvider. While no other token is to be had, the old one will do until it
// expires.
func (t *tokens) Token() (*sarama.AccessToken, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token == nil || !now().Before(t.renew) {
		token, err := t.fetch()
		switch {
		case err == nil:
			t.token, t.renew = token, now()
			if life := token.Expiry.Sub(t.renew); !token.Expiry.IsZero() && life > 0 {
				t.renew = t.renew.Add(life / 2)
			}
		case t.token == nil || !now().Before(t.token.Expiry):
			return nil, err
		}
	}
	return &sarama.AccessToken{Token: t.token.AccessToken, Extensions: t.extensions}, nil
}

// forget makes the next login fetch a token.
func (t *tokens) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.token = nil
}
