package httpkey

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Header carries the key of a request.
const Header = "Idempotency-Key"

// ReplayedHeader marks an answer that was saved by an earlier request.
const ReplayedHeader = "Idempotency-Replayed"

// maxKey is in bytes; the large payment APIs take as much.
const maxKey = 255

var errNoKey = errors.New("the header Idempotency-Key is missing")

// readKey takes the key bare, as most send it, or as the draft's structured string (RFC 9651, 3.3.3):
// "k" and k are one key.
func readKey(h http.Header) (string, error) {
	values := h.Values(Header)
	if len(values) == 0 {
		return "", errNoKey
	}
	if len(values) > 1 {
		return "", errors.New("there are several headers Idempotency-Key")
	}
	key := strings.Trim(values[0], " \t")
	if inner, quoted := strings.CutPrefix(key, `"`); quoted {
		var err error
		if key, err = unquote(inner); err != nil {
			return "", err
		}
	}
	return key, checkKey(key)
}

// unquote reads up to the closing quote, which must be the end.
func unquote(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			if i != len(s)-1 {
				return "", errors.New("something follows the quoted key")
			}
			return b.String(), nil
		case '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", errors.New("the key has an unknown escape")
			}
		}
		b.WriteByte(s[i])
	}
	return "", errors.New("the key has no closing quote")
}

func quote(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

func checkKey(key string) error {
	if key == "" {
		return errors.New("the key is empty")
	}
	if len(key) > maxKey {
		return fmt.Errorf("the key is longer than %d characters", maxKey)
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return errors.New("the key has other characters than visible ASCII")
		}
	}
	return nil
}
