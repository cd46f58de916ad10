package monitor

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// gate lets requests through that bear the configured token. Only its hash is kept: that makes every
// comparison one of 32 bytes, so that its time tells neither the length nor any part of the token.
type gate struct {
	open bool // no token is configured
	hash [sha256.Size]byte
}

func newGate(token string) gate { return gate{open: token == "", hash: sha256.Sum256([]byte(token))} }

// admits says whether a request may see data.
func (g gate) admits(r *http.Request) bool {
	if g.open {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	hash := sha256.Sum256([]byte(token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(hash[:], g.hash[:]) == 1
}

// guard answers 401 in place of the handler to those that are not admitted.
// https://www.rfc-editor.org/rfc/rfc6750#section-3
func (g gate) guard(next http.HandlerFunc) http.HandlerFunc {
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
