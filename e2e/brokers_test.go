package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// sessionLife is after what time the brokers want to be logged in to anew. They refuse that within a second, and
// clients do it when 85 to 95 % have passed.
const (
	sessionLife = 6 * time.Second
	tokenLife   = 20 * time.Second
)

// locked is a broker that wants TLS with a client certificate, and a login by any mechanism.
type locked struct {
	*testenv.Cluster
	*idp
	dir string // ca.pem, cert.pem, key.pem; and of another authority, other-ca.pem, other-cert.pem, other-key.pem
}

func newLocked(t *testing.T) *locked {
	t.Helper()
	l := &locked{idp: newIDP(t, tokenLife), dir: t.TempDir()}
	ca, other := newAuthority(t), newAuthority(t)
	brokerCert, brokerKey := ca.issue(t)
	for name, a := range map[string]*authority{"": ca, "other-": other} {
		cert, key := a.issue(t)
		for file, content := range map[string][]byte{"ca.pem": a.pem, "cert.pem": cert, "key.pem": key} {
			require.NoError(t, os.WriteFile(l.file(name+file), content, 0o600))
		}
	}
	const listener, security = "listener.name.client.", "org.apache.kafka.common.security."
	const bearer = security + "oauthbearer.OAuthBearer"
	const scram = security + "scram.ScramLoginModule required;"
	l.Cluster = testenv.StartKafka(t, testenv.KafkaConfig{
		Listener: &testenv.Listener{Protocol: "SASL_SSL"},
		JVM:      []string{"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=" + l.URL + "/keys"},
		Settings: map[string]string{
			listener + "ssl.keystore.type":              "PEM",
			listener + "ssl.keystore.certificate.chain": string(brokerCert),
			listener + "ssl.keystore.key":               string(brokerKey),
			listener + "ssl.truststore.type":            "PEM",
			listener + "ssl.truststore.certificates":    string(ca.pem),
			listener + "ssl.client.auth":                "required",
			listener + "sasl.enabled.mechanisms":        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
			listener + "plain.sasl.jaas.config": security + `plain.PlainLoginModule required user_relay="` +
				brokerPassword + `";`,
			listener + "scram-sha-256.sasl.jaas.config":                 scram,
			listener + "scram-sha-512.sasl.jaas.config":                 scram,
			listener + "oauthbearer.sasl.jaas.config":                   bearer + "LoginModule required;",
			listener + "oauthbearer.sasl.server.callback.handler.class": bearer + "ValidatorCallbackHandler",
			// The validator that Kafka 4.1.1 takes by default verifies no signature.
			"sasl.oauthbearer.jwt.validator.class": security + "oauthbearer.BrokerJwtValidator",
			"sasl.oauthbearer.jwks.endpoint.url":   l.URL + "/keys",
			"sasl.oauthbearer.expected.audience":   "kafka",
			"connections.max.reauth.ms":            "6000",
		},
	})
	for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		l.password(t, mechanism, brokerPassword)
	}
	return l
}

func (l *locked) file(name string) string { return filepath.Join(l.dir, name) }

// password sets the password for a mechanism; an empty one takes the user away.
func (l *locked) password(t *testing.T, mechanism kadm.ScramMechanism, password string) {
	t.Helper()
	var deletes []kadm.DeleteSCRAM
	var upserts []kadm.UpsertSCRAM
	if password == "" {
		deletes = append(deletes, kadm.DeleteSCRAM{User: "relay", Mechanism: mechanism})
	} else {
		upserts = append(upserts, kadm.UpsertSCRAM{
			User: "relay", Mechanism: mechanism, Iterations: 4096, Password: password,
		})
	}
	answers, err := l.Admin.AlterUserSCRAMs(t.Context(), deletes, upserts)
	require.NoError(t, err)
	require.NoError(t, answers.Error())
}

// setup is one that may enter by the mechanism.
func (l *locked) setup(t *testing.T, mechanism string) *setup {
	t.Helper()
	s := newSetup(t, testenv.Postgres(t, lastMajor()), l.Cluster, 2)
	l.enter(s, mechanism)
	return s
}

// enter gives the setup what the broker asks for.
func (l *locked) enter(s *setup, mechanism string) {
	for name, value := range map[string]string{
		"KAFKA_BROKERS": strings.Join(l.ListenerAddrs(), ","),
		"KAFKA_TLS":     "true", "KAFKA_TLS_CA_FILE": l.file("ca.pem"),
		"KAFKA_TLS_CERT_FILE": l.file("cert.pem"), "KAFKA_TLS_KEY_FILE": l.file("key.pem"),
		"KAFKA_SASL_MECHANISM": mechanism,
	} {
		s.set("WALRELAY_"+name, value)
	}
	if mechanism == "OAUTHBEARER" {
		s.set("WALRELAY_KAFKA_OAUTH_TOKEN_URL", l.URL+"/token")
		s.set("WALRELAY_KAFKA_OAUTH_CLIENT_ID", "relay")
		s.set("WALRELAY_KAFKA_OAUTH_CLIENT_SECRET", clientSecret)
		s.set("WALRELAY_KAFKA_OAUTH_SCOPES", "produce")
	} else {
		s.set("WALRELAY_KAFKA_SASL_USERNAME", "relay")
		s.set("WALRELAY_KAFKA_SASL_PASSWORD", brokerPassword)
	}
}

func TestBrokers(t *testing.T) {
	t.Parallel()
	l := newLocked(t)
	for _, test := range []struct{ mechanism, delivery string }{
		{"PLAIN", "at-least-once"},
		{"SCRAM-SHA-256", "exactly-once"},
		{"SCRAM-SHA-512", "at-least-once"},
		{"OAUTHBEARER", "at-least-once"},
		{"OAUTHBEARER", "exactly-once"},
	} {
		t.Run(test.mechanism+" "+test.delivery, func(t *testing.T) {
			t.Parallel()
			s := l.setup(t, test.mechanism)
			if test.delivery == "exactly-once" {
				s.exactly()
			}
			l.outlives(s)
		})
	}
	t.Run("wrong", func(t *testing.T) { t.Parallel(); l.wrong(t) })
	t.Run("revoked", func(t *testing.T) { t.Parallel(); l.revoked(t) })
	t.Run("renewed", func(t *testing.T) { t.Parallel(); l.renewed(t) })
}

// outlives writes over several lives of a session, and after a time longer than that without anything: no connection
// is lost, nothing repeats.
func (l *locked) outlives(s *setup) {
	ledger := judge.NewLedger()
	relay := s.relay()
	s.during(5*sessionLife/2, func() { s.commits(ledger, 5) })
	s.during(3*sessionLife/2, func() {})
	s.commits(ledger, 20)
	s.arrives(ledger.Len())
	// A busy machine may lose a connection for being late, but not at every expiry.
	require.LessOrEqual(s.t, strings.Count(relay.Log(), "held up"), 1, relay.Log())
	require.NotContains(s.t, relay.Log(), "interrupted")
	keepsSecrets(s.t, append(s.observe(), relay.Log(), s.run("config"))...)
	keepsTokens(s.t, l.tokens(), append(s.observe(), relay.Log())...)
	s.stop(relay)
	require.Zero(s.t, s.judge(ledger).Duplicates)
}

// keepsTokens looks for the signed part of tokens, since the first is the same for all.
func keepsTokens(t *testing.T, tokens []string, texts ...string) {
	t.Helper()
	for _, token := range tokens {
		for _, text := range texts {
			require.NotContains(t, text, token[strings.LastIndexByte(token, '.')+1:])
		}
	}
}

// wrong has one setting wrong at a time.
func (l *locked) wrong(t *testing.T) {
	broker := l.ListenerAddrs()[0]
	for _, test := range []struct {
		mechanism, variable, value string
		parts                      []string
	}{
		{"PLAIN", "SASL_PASSWORD", "s3cr3t-but-wrong", []string{broker, "log in by PLAIN", "SASL_PASSWORD"}},
		{"SCRAM-SHA-256", "SASL_PASSWORD", "s3cr3t-but-wrong", []string{broker, "log in by SCRAM-SHA-256", "SASL_PASSWORD"}},
		{"SCRAM-SHA-512", "SASL_USERNAME", "nobody", []string{broker, "log in by SCRAM-SHA-512", "SASL_USERNAME"}},
		{"OAUTHBEARER", "OAUTH_CLIENT_SECRET", "s3cr3t-but-wrong", []string{
			broker, "OAUTHBEARER", l.URL + "/token", "invalid_client", "OAUTH_CLIENT_SECRET",
		}},
		{"OAUTHBEARER", "OAUTH_TOKEN_URL", "http://" + freeAddr(t) + "/token", []string{
			broker, "OAUTHBEARER", "/token", "connection refused",
		}},
		{"PLAIN", "TLS_CA_FILE", l.file("other-ca.pem"), []string{broker, "unknown authority"}},
		{"PLAIN", "TLS_SERVER_NAME", "elsewhere.example", []string{broker, "elsewhere.example"}},
	} {
		s := l.setup(t, test.mechanism)
		s.set("WALRELAY_KAFKA_"+test.variable, test.value)
		relay := s.start()
		s.ready(503, append(test.parts, "connecting")...)
		keepsSecrets(t, append(s.observe(), relay.Log())...)
		require.True(t, relay.Running(), "somebody may mend it")
		relay.Kill(t)
	}

	t.Log("a token that the brokers refuse, until it is another one")
	other := newIDP(t, tokenLife)
	s := l.setup(t, "OAUTHBEARER")
	s.set("WALRELAY_KAFKA_OAUTH_TOKEN_URL", other.URL+"/token")
	f := follow(s)
	relay := s.start()
	s.ready(503, broker, "log in by OAUTHBEARER", "uthentication failed", "clocks")
	other.set(func(p *idp) { p.key = l.key })
	f.delivers()
	keepsTokens(t, other.tokens(), append(s.observe(), relay.Log())...)
	s.stop(relay)

	t.Log("a token that the brokers make nothing of")
	s = l.setup(t, "AWS_MSK_IAM")
	delete(s.env, "WALRELAY_KAFKA_SASL_USERNAME")
	delete(s.env, "WALRELAY_KAFKA_SASL_PASSWORD")
	s.set("WALRELAY_KAFKA_MSK_REGION", "eu-central-1")
	s.set("AWS_ACCESS_KEY_ID", "id")
	s.set("AWS_SECRET_ACCESS_KEY", "s3cr3t-of-aws")
	relay = s.start()
	s.ready(503, broker, "log in by AWS_MSK_IAM", "kafka-cluster:Connect")
	keepsSecrets(t, append(s.observe(), relay.Log())...)
	relay.Kill(t)
}

// revoked takes credentials away in the middle, and gives them back.
func (l *locked) revoked(t *testing.T) {
	own := newLocked(t) // whose users the others do not need
	own.set(func(p *idp) { p.life = sessionLife })
	s := own.setup(t, "SCRAM-SHA-512")
	f := follow(s)
	file := own.file("password")
	require.NoError(t, os.WriteFile(file, []byte(brokerPassword+"\n"), 0o600))
	delete(s.env, "WALRELAY_KAFKA_SASL_PASSWORD")
	s.set("WALRELAY_KAFKA_SASL_PASSWORD_FILE", file)
	s.set("WALRELAY_PROGRESS_TIMEOUT", "1s")
	relay := s.relay()
	f.delivers()
	own.password(t, kadm.ScramSha512, "")
	own.expires(f, "log in by SCRAM-SHA-512", "SASL_USERNAME")
	own.password(t, kadm.ScramSha512, brokerPassword)
	f.catchesUp()

	t.Log("another password, which the file gets a little later")
	own.password(t, kadm.ScramSha512, "s3cr3t-anew")
	own.expires(f, "log in by SCRAM-SHA-512")
	require.NoError(t, os.WriteFile(file, []byte("s3cr3t-anew\n"), 0o600))
	f.catchesUp()
	keepsSecrets(t, append(s.observe(), relay.Log())...)
	s.stop(relay)

	s = own.setup(t, "OAUTHBEARER")
	s.set("WALRELAY_PROGRESS_TIMEOUT", "1s")
	f = follow(s)
	relay = s.relay()
	f.delivers()
	own.set(func(p *idp) { p.secret = "s3cr3t-anew" }) // the token that is there will do for a while
	own.expires(f, "OAUTHBEARER", "invalid_client", "OAUTH_CLIENT_SECRET")
	own.set(func(p *idp) { p.secret = clientSecret })
	f.catchesUp()
	keepsSecrets(t, append(s.observe(), relay.Log())...)
	s.stop(relay)
}

// expires writes until the brokers do not let us in any more.
func (l *locked) expires(f *follower, parts ...string) {
	f.t.Helper()
	parts = append(parts, l.ListenerAddrs()[0])
	require.Eventually(f.t, func() bool {
		f.writes()
		code, body := f.get("/readyz")
		for _, part := range parts {
			if !strings.Contains(body, part) {
				return false
			}
		}
		return code == 503
	}, wait, 10*tick)
}

// catchesUp waits for everything that was written.
func (f *follower) catchesUp() {
	f.t.Helper()
	f.delivers()
	f.ready(200)
	f.judge(f.ledger)
}

// renewed has files that are put right while the process runs.
func (l *locked) renewed(t *testing.T) {
	broker := l.ListenerAddrs()[0]
	own := t.TempDir()
	s := l.setup(t, "PLAIN")
	place := func(name, content string) {
		text, err := os.ReadFile(l.file(content))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(own, name), text, 0o600))
		s.set("WALRELAY_KAFKA_TLS_"+strings.ToUpper(strings.TrimSuffix(name, ".pem"))+"_FILE", filepath.Join(own, name))
	}
	place("ca.pem", "other-ca.pem")
	place("cert.pem", "other-cert.pem")
	place("key.pem", "other-key.pem")
	f := follow(s)
	relay := s.start()
	s.ready(503, broker, "unknown authority")
	place("ca.pem", "ca.pem")
	s.ready(503, broker, "remote error")
	place("cert.pem", "cert.pem")
	s.ready(503, broker, "private key does not match")
	place("key.pem", "key.pem")
	f.delivers()
	require.NoError(t, os.Remove(filepath.Join(own, "ca.pem")))
	f.delivers() // by the connection that is there
	s.stop(relay)
}
