package monitor

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"sync"

	"go.uber.org/zap"
)

// gate lets requests through that bear the token. Safe for concurrent use.
type gate struct {
	token func() (string, error) // nil: everything is open
	log   *zap.Logger

	mu      sync.Mutex
	trouble string // why there is no token, as the log has it
}

// admits says whether a request may see data. Hashes are compared: that makes every comparison one of 32 bytes,
// so that its time tells neither the length nor any part of the token.
func (g *gate) admits(r *http.Request) bool {
	if g.token == nil {
		return true
	}
	right, err := g.token()
	if g.note(err); err != nil {
		return false
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	want, got := sha256.Sum256([]byte(right)), sha256.Sum256([]byte(token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// note logs once why nobody is let in.
func (g *gate) note(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if text != g.trouble && err != nil {
		g.log.Warn("requests are refused: the admin token cannot be read", zap.Error(err))
	}
	g.trouble = text
}

// guard answers 401 in place of the handler to those that are not admitted.
// https://www.rfc-editor.org/rfc/rfc6750#section-3
func (g *gate) guard(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if g.admits(r) {
			next(w, r)
			return
		}
		challenge := `Bearer realm="walrelay"`
		if r.Header.Get("Authorization") != "" {
			challenge += `, error="invalid_token"`
		}
		w.Header().Set("WWW-Authenticate", challenge)
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "send the admin token: Authorization: Bearer …", http.StatusUnauthorized)
	}
}
