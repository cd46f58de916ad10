package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// redacted stands for a secret in every output.
const redacted = "(redacted)"

// Secret is a setting that no output shows, whatever the format verb or encoder. Reveal gives it away.
type Secret struct{ input }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Secret) UnmarshalText(b []byte) error {
	s.raw, s.secret = string(b), true
	return nil
}

// Reveal returns the secret, for the one place that needs it.
func (s Secret) Reveal() string { return s.raw }

// String implements fmt.Stringer.
func (s Secret) String() string { return s.shown() }

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return s.shown() }

// Format implements fmt.Formatter: it answers the verbs that bypass String, too.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.shown()) }

// MarshalText implements encoding.TextMarshaler and so covers JSON, also as the key of a map.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.shown()), nil }

// MarshalJSON implements json.Marshaler.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + s.shown() + `"`), nil }

// loadSecrets reads the secrets whose file is named, without the newline that editors leave at the end.
func (s *Settings) loadSecrets(f *faults) {
	load := func(secret *Secret, file *Text) {
		if file.Text == "" {
			return
		}
		if secret.raw != "" {
			f.add(&secret.input, "must not be set together with "+file.variable)
			return
		}
		content, err := os.ReadFile(file.Text)
		if err != nil {
			f.add(&file.input, "must be a readable file: "+reason(err))
			return
		}
		text := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
		if text == "" {
			f.add(&file.input, "must not be an empty file")
		}
		secret.raw, secret.secret = text, true
	}
	load(&s.DatabaseURL, &s.DatabaseURLFile)
	load(&s.KafkaSASLPassword, &s.KafkaSASLPasswordFile)
	load(&s.AdminToken, &s.AdminTokenFile)
}
