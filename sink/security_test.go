package sink

import (
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/walrelay/walrelay/checkpoint"
)

// always returns what does not change.
func always[T any](v T) func() (T, error) { return func() (T, error) { return v, nil } }

func TestSecurity_SASL(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(1, "orders"), kfake.EnableSASL(), kfake.Superuser(mechanism, "me", "secret"))
			k := start(t, c.ListenAddrs(), func(c *Config) {
				c.SASL = &SASL{Mechanism: mechanism, Username: "me", Password: always("secret")}
			})
			s := begin(t, k, checkpoint.Run{})
			s.some("orders", 100)
			s.settle()

			k = start(t, c.ListenAddrs(), func(c *Config) {
				c.SASL = &SASL{Mechanism: mechanism, Username: "me", Password: always("wrong-one")}
			})
			_, err := tryBegin(t, k, checkpoint.Run{})
			require.ErrorContains(t, err, "acquire a producer id")
			require.NotContains(t, err.Error(), "wrong-one")
		})
	}
}

func TestSecurity_TLS(t *testing.T) {
	t.Parallel()
	// The certificate of httptest is valid for 127.0.0.1.
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"), kfake.TLS(&tls.Config{Certificates: server.TLS.Certificates}))
	k := start(t, c.ListenAddrs(), func(c *Config) { c.TLS = always(&tls.Config{RootCAs: trusted}) })
	s := begin(t, k, checkpoint.Run{})
	s.some("orders", 100)
	s.settle()

	k = start(t, c.ListenAddrs(), func(c *Config) { c.TLS = always(&tls.Config{RootCAs: x509.NewCertPool()}) })
	_, err := tryBegin(t, k, checkpoint.Run{})
	require.ErrorContains(t, err, "certificate")
}

func TestConfig_ListsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := New(Config{DeadTopic: "no topic"})
	for _, fault := range []string{
		"Stream", "Brokers", "Topic is nil", "policy", "DeadTopic", "BatchBytes", "Timeout", "Backoff", "Logger",
	} {
		require.ErrorContains(t, err, fault)
	}
	_, err = New(testConfig(t, []string{"127.0.0.1:1"}, func(c *Config) { c.OnPoison = DeadLetter }))
	require.ErrorContains(t, err, "needs DeadTopic")

	cfg := testConfig(t, []string{"127.0.0.1:1"}, func(c *Config) { c.SASL = &SASL{Mechanism: "NTLM"} })
	k, err := New(cfg)
	require.NoError(t, err)
	require.ErrorContains(t, k.Run(t.Context()), "NTLM")
}
