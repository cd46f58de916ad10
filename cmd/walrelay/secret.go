package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/walrelay/walrelay/cdc"
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

// loadSecrets reads the secrets whose file is named.
func (s *Settings) loadSecrets(f *faults) {
	load := func(secret *Secret, file *Text) {
		if file.Text == "" {
			return
		}
		if secret.raw != "" {
			f.add(&secret.input, "must not be set together with "+file.variable)
			return
		}
		text, err := readSecret(file.Text)
		if err != nil {
			f.add(&file.input, "must "+err.Error())
		}
		secret.raw, secret.secret = text, true
	}
	load(&s.DatabaseURL, &s.DatabaseURLFile)
	load(&s.KafkaSASLPassword, &s.KafkaSASLPasswordFile)
	load(&s.AdminToken, &s.AdminTokenFile)
	load(&s.KafkaOAuthClientSecret, &s.KafkaOAuthClientSecretFile)
}

// readSecret reads a file, without the newline that editors leave at the end. The error completes "must".
func readSecret(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", errors.New("be a readable file: " + reason(err))
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if text == "" {
		return "", errors.New("not be an empty file")
	}
	return text, nil
}

// readConnString returns the database URL for each connection anew where a file holds it; nil: none does.
func (s *Settings) readConnString() func() (cdc.Secret, error) {
	if s.DatabaseURLFile.Text == "" {
		return nil
	}
	read := s.DatabaseURL.current(&s.DatabaseURLFile)
	return func() (cdc.Secret, error) {
		text, err := read()
		return cdc.Secret(text), err
	}
}

// adminToken returns the token for each request anew; nil: there is none.
func (s *Settings) adminToken() func() (string, error) {
	if s.AdminToken.Reveal() == "" {
		return nil
	}
	read := s.AdminToken.current(&s.AdminTokenFile)
	return func() (string, error) {
		text, err := read()
		if err == nil && !bearerToken.MatchString(text) {
			err = fmt.Errorf("%s=%s must hold %s", s.AdminTokenFile.variable, s.AdminTokenFile.Text, adminRule)
		}
		return text, err
	}
}

// current returns a secret as it is at that moment: what a file holds may change while the process runs.
func (s *Secret) current(file *Text) func() (string, error) {
	return func() (string, error) {
		if file.Text == "" {
			return s.Reveal(), nil
		}
		text, err := readSecret(file.Text)
		if err != nil {
			return "", fmt.Errorf("%s=%s must %w", file.variable, file.Text, err)
		}
		return text, nil
	}
}
