package e2e

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const clientSecret = "s3cr3t-of-the-client"

// idp is an identity provider: it grants tokens for client credentials, and publishes the key that signs them.
type idp struct {
	*httptest.Server
	key *rsa.PrivateKey // guarded by mu where it changes

	mu      sync.Mutex
	secret  string        // that the client must have
	life    time.Duration // of a token
	granted []string      // tokens
}

func newIDP(t *testing.T, life time.Duration) *idp {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	p := &idp{key: key, secret: clientSecret, life: life}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", p.grant)
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusOK, map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256",
			"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()),
			"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
		}}})
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// grant is RFC 6749, section 4.4.
func (p *idp) grant(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, secret, _ := r.BasicAuth()
	if r.FormValue("grant_type") != "client_credentials" || id != "relay" || secret != p.secret {
		// Some endpoints repeat what they were sent.
		answerJSON(w, http.StatusUnauthorized, map[string]any{
			"error": "invalid_client", "error_description": "wrong secret " + secret + r.FormValue("client_secret"),
		})
		return
	}
	token := p.sign(map[string]any{
		"iss": "idp", "sub": "relay", "aud": "kafka", "scope": r.FormValue("scope"),
		"iat": time.Now().Unix(), "exp": time.Now().Add(p.life).Unix(),
	})
	p.granted = append(p.granted, token)
	answerJSON(w, http.StatusOK, map[string]any{
		"access_token": token, "token_type": "Bearer", "expires_in": int(p.life.Seconds()),
	})
}

func answerJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// sign makes a token, a JWT (RFC 7519).
func (p *idp) sign(claims map[string]any) string {
	encode := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := encode(map[string]any{"alg": "RS256", "kid": "1", "typ": "JWT"}) + "." + encode(claims)
	digest := sha256.Sum256([]byte(text))
	signature, _ := rsa.SignPKCS1v15(rand.Reader, p.key, crypto.SHA256, digest[:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func (p *idp) set(change func(*idp)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// tokens are the ones granted so far.
func (p *idp) tokens() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.granted...)
}
