package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/walrelay/walrelay/sink"
)

// The mechanisms that have settings of their own.
const (
	oauthBearer = "OAUTHBEARER"
	mskIAM      = "AWS_MSK_IAM"
)

// Extensions are SASL extensions (RFC 7628, section 3.1), name=value, comma-separated.
type Extensions struct {
	input
	Values map[string]string
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *Extensions) UnmarshalText(b []byte) error {
	e.raw, e.Values = string(b), map[string]string{}
	for pair := range strings.SplitSeq(e.raw, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if !extensionName.MatchString(name) || !extensionValue.MatchString(value) || name == "auth" {
			e.err = errors.New("must list name=value, names of letters and not auth, values printable, comma-separated")
			return nil
		}
		e.Values[name] = value
	}
	return nil
}

// As Kafka's OAuthBearerClientInitialResponse has them.
var (
	extensionName  = regexp.MustCompile(`^[A-Za-z]+$`)
	extensionValue = regexp.MustCompile(`^[\x21-\x7e \t\r\n]+$`)
)

// checkSASL knows which setting belongs to which mechanism.
func (s *Settings) checkSASL(f *faults) {
	passwords := []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
	for _, rule := range []struct {
		in         *input
		text       string
		mechanisms []string
		required   bool
	}{
		{&s.KafkaSASLUsername.input, s.KafkaSASLUsername.Text, passwords, true},
		{&s.KafkaSASLPassword.input, s.KafkaSASLPassword.Reveal(), passwords, true},
		{&s.KafkaOAuthTokenURL.input, s.KafkaOAuthTokenURL.Text, []string{oauthBearer}, true},
		{&s.KafkaOAuthClientID.input, s.KafkaOAuthClientID.Text, []string{oauthBearer}, true},
		{&s.KafkaOAuthClientSecret.input, s.KafkaOAuthClientSecret.Reveal(), []string{oauthBearer}, true},
		{&s.KafkaOAuthScopes.input, s.KafkaOAuthScopes.Text, []string{oauthBearer}, false},
		{&s.KafkaOAuthAudience.input, s.KafkaOAuthAudience.Text, []string{oauthBearer}, false},
		{&s.KafkaOAuthExtensions.input, s.KafkaOAuthExtensions.raw, []string{oauthBearer}, false},
		{&s.KafkaMSKRegion.input, s.KafkaMSKRegion.Text, []string{mskIAM}, true},
		{&s.KafkaMSKRole.input, s.KafkaMSKRole.Text, []string{mskIAM}, false},
	} {
		chosen := slices.Contains(rule.mechanisms, s.KafkaSASLMechanism.Text)
		f.check(chosen || rule.text == "", rule.in, "needs %s=%s", s.KafkaSASLMechanism.variable,
			strings.Join(rule.mechanisms, " or "))
		f.check(!chosen || !rule.required || rule.text != "", rule.in, "is required with %s=%s",
			s.KafkaSASLMechanism.variable, s.KafkaSASLMechanism.Text)
	}
	if text := s.KafkaOAuthTokenURL.Text; text != "" {
		u, err := url.Parse(text)
		legal := err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
		if !legal || u.User != nil {
			s.KafkaOAuthTokenURL.secret = true // there may be a password in it
			f.add(&s.KafkaOAuthTokenURL.input, "must be an https URL without a user")
		}
	}
	f.check(s.KafkaMSKRegion.Text == "" || regionName.MatchString(s.KafkaMSKRegion.Text), &s.KafkaMSKRegion.input,
		"must be a region like eu-central-1")
	f.check(s.KafkaMSKRole.Text == "" || strings.HasPrefix(s.KafkaMSKRole.Text, "arn:"), &s.KafkaMSKRole.input,
		"must be the ARN of a role")
}

// A region becomes part of a host name.
var regionName = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// kafkaSASL is the login at the brokers; nil means none.
func (s *Settings) kafkaSASL() *sink.SASL {
	if s.KafkaSASLMechanism.Text == "" {
		return nil
	}
	sasl := &sink.SASL{Mechanism: s.KafkaSASLMechanism.Text}
	switch s.KafkaSASLMechanism.Text {
	case oauthBearer:
		sasl.OAuth = &sink.OAuth{
			TokenURL: s.KafkaOAuthTokenURL.Text, ClientID: s.KafkaOAuthClientID.Text,
			ClientSecret: s.KafkaOAuthClientSecret.current(&s.KafkaOAuthClientSecretFile),
			Scopes:       strings.Fields(s.KafkaOAuthScopes.Text),
			Audience:     s.KafkaOAuthAudience.Text, Extensions: s.KafkaOAuthExtensions.Values,
		}
	case mskIAM:
		sasl.MSK = &sink.MSK{Region: s.KafkaMSKRegion.Text, Role: s.KafkaMSKRole.Text}
	default:
		sasl.Username = s.KafkaSASLUsername.Text
		sasl.Password = s.KafkaSASLPassword.current(&s.KafkaSASLPasswordFile)
	}
	return sasl
}

// exposed names what a listener on the network could read of the login.
func (s *Settings) exposed() (warnings []string) {
	mechanism := s.KafkaSASLMechanism.Text
	if !s.KafkaTLS.Value && mechanism != "" && !strings.HasPrefix(mechanism, "SCRAM-") {
		for _, addr := range s.KafkaBrokers.Addrs {
			if host, _, err := net.SplitHostPort(addr); err == nil && !loopback(host) {
				warnings = append(warnings, fmt.Sprintf("broker %s is logged in to by %s without TLS, which anybody on the "+
					"way can read: set %s=true", addr, mechanism, s.KafkaTLS.variable))
			}
		}
	}
	u, err := url.Parse(s.KafkaOAuthTokenURL.Text)
	if mechanism == oauthBearer && err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
		warnings = append(warnings, fmt.Sprintf("token endpoint %s is sent the client's secret without TLS: use an https URL",
			u.Host))
	}
	return warnings
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
