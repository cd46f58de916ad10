package e2e

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// What must appear nowhere outside the records: passwords, and any byte of a row but its id and topic.
const (
	databasePassword = `s3cr3t p@ss'w\rd/%`
	brokerPassword   = "s3cr3t-of-the-broker"
	payloadMark      = "mark-of-a-payload"
	keyMark          = "mark-of-a-key"
	headerMark       = "mark-of-a-header"
	aggregateMark    = "mark of an aggregate" // which is no legal topic
)

// keepsSecrets looks for all of them, also as they stand in URLs and keyword strings.
func keepsSecrets(t *testing.T, texts ...string) {
	t.Helper()
	secrets := []string{
		databasePassword, url.QueryEscape(databasePassword), url.PathEscape(databasePassword), keywordPassword,
		url.UserPassword("", databasePassword).String()[1:], "s3cr3t", brokerPassword,
		payloadMark, keyMark, headerMark, aggregateMark,
	}
	for _, text := range texts {
		require.NotEmpty(t, text)
		for _, secret := range secrets {
			require.NotContains(t, text, secret)
		}
	}
}

const keywordPassword = `s3cr3t p@ss\'w\\rd/%`

// observe is everything that the admin server tells.
func (s *setup) observe() []string {
	s.t.Helper()
	var texts []string
	for _, path := range []string{"/metrics", "/status", "/status/history", "/", "/readyz", "/livez"} {
		_, body := s.get(path)
		texts = append(texts, body)
	}
	return texts
}

// lockedServer asks for passwords over TCP.
func lockedServer(t *testing.T, major int) *testenv.Server {
	t.Helper()
	server := testenv.StartPostgres(t, major, testenv.Config{HBA: []string{
		"local all all trust", "host all all 127.0.0.1/32 scram-sha-256",
	}})
	server.Exec(t, "ALTER ROLE postgres PASSWORD 's3cr3t p@ss''w\\rd/%'")
	return server
}

// withPassword is the DSN of the database with another password.
func withPassword(t *testing.T, db *testenv.Database, password string) string {
	t.Helper()
	u, err := url.Parse(db.Server().DSN(db.Name))
	require.NoError(t, err)
	u.User = url.UserPassword("postgres", password)
	return u.String()
}

// Events that cannot be delivered are what tempts a program to print them.
func TestSecurity_Rows(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newPoisoned(t, testenv.Postgres(t, major), "dead-letter")
		f := follow(s)
		relay := s.relay()
		write := func(r row) int {
			n := f.number()
			if r.headers == "" {
				r.headers = `{"x": "x"}` // the name is a mark too
			}
			s.insertRow(n, marked(r))
			return n
		}
		for _, p := range poisons {
			write(p.row)
			f.sees(write(row{}))
		}
		require.Eventually(t, func() bool {
			return s.metric("walrelay_poison_events_total", `action="dead-lettered"`) == float64(len(poisons))
		}, wait, tick)
		keepsSecrets(t, append(s.observe(), relay.Log(), s.run("stream", "show"))...)
		s.stop(relay)

		s.set("WALRELAY_ON_POISON", "stop")
		relay = s.relay()
		for _, p := range poisons {
			at := s.stuck(write(p.row), p.reason)
			keepsSecrets(t, append(s.observe(), relay.Log())...)
			keepsSecrets(t, s.run("stream", "release", at.String(), "--verdict", "skip"))
			f.delivers()
		}
		keepsSecrets(t, relay.Log())
		var ledger string
		require.NoError(t, s.db.QueryRow(t, "SELECT string_agg(d::text, ' ') FROM walrelay.dead_letters d").Scan(&ledger))
		keepsSecrets(t, ledger, s.run("deadletters", "list", "--all", "--json"),
			s.fails(1, "deadletters", "redrive", "--all", "--dry-run"), s.fails(1, "deadletters", "redrive", "--all"))
	})
}

// A connection that fails says why, and nothing that it was to keep.
func TestSecurity_Passwords(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetupLocked(t, lockedServer(t, major))
		f := follow(s)
		relay := s.relay()
		f.delivers()
		keepsSecrets(t, append(s.observe(), relay.Log(), s.run("config"), s.run("stream", "show"))...)
		right := s.env["WALRELAY_DATABASE_URL"]

		t.Log("a password that has changed")
		s.db.Exec(t, "ALTER ROLE postgres PASSWORD 's3cr3t-anew'")
		s.cut()
		s.ready(503, "connecting", "password authentication failed")
		keepsSecrets(t, append(s.observe(), relay.Log(), s.fails(1, "stream", "show"), s.fails(1, "migrate"))...)
		require.True(t, relay.Running(), "it may be in the middle of a rotation")
		s.db.Exec(t, "ALTER ROLE postgres PASSWORD 's3cr3t p@ss''w\\rd/%'")
		f.delivers()
		s.stop(relay)

		t.Log("one from a file, that changes while it is in use")
		file := filepath.Join(t.TempDir(), "url")
		write := func(url string) { require.NoError(t, os.WriteFile(file, []byte(url), 0o600)) }
		write(right + "\n")
		delete(s.env, "WALRELAY_DATABASE_URL")
		s.set("WALRELAY_DATABASE_URL_FILE", file)
		relay = s.relay()
		f.delivers()
		s.db.Exec(t, "ALTER ROLE postgres PASSWORD 's3cr3t-anew'")
		s.cut()
		s.ready(503, "connecting", "password authentication failed")
		write("postgres://postgres:s3cr3t-anew@127.0.0.1:s3cr3t/")
		s.ready(503, "connecting", "read connection string: ")
		require.NoError(t, os.Remove(file))
		s.ready(503, "connecting", "WALRELAY_DATABASE_URL_FILE="+file+" must be a readable file")
		write(withPassword(t, s.db, "s3cr3t-anew"))
		f.delivers()
		s.ready(200, "streaming")
		s.stop(relay)
		keepsSecrets(t, append(s.observe(), relay.Log(), s.run("config"))...)
		s.db.Exec(t, "ALTER ROLE postgres PASSWORD 's3cr3t p@ss''w\\rd/%'")
		delete(s.env, "WALRELAY_DATABASE_URL_FILE")

		t.Log("hosts that do not answer, in both spellings")
		nobody := freeAddr(t)
		port := strings.TrimPrefix(nobody, "127.0.0.1:")
		u, err := url.Parse(right)
		require.NoError(t, err)
		u.Host = nobody
		for _, dsn := range []string{
			u.String(), "host=127.0.0.1 port=" + port + " user=postgres dbname=x password='" + keywordPassword + "'",
		} {
			s.set("WALRELAY_DATABASE_URL", dsn)
			relay = s.start()
			s.ready(503, "connecting", "connection refused")
			keepsSecrets(t, append(s.observe(), relay.Log(), s.fails(1, "migrate"), s.run("config"))...)
			relay.Kill(t)
		}

		t.Log("malformed ones")
		for _, dsn := range []string{
			"postgres://postgres:" + databasePassword + "@127.0.0.1:5432/x",
			"postgres://postgres:s3cr3t%zz@127.0.0.1/x",
			"postgres://postgres:s3cr3t@127.0.0.1:port/x",
			"postgres://postgres:s3cr3t@127.0.0.1/x?sslmode=s3cr3t",
			"postgres://127.0.0.1/x?password=s3cr3t&connect_timeout=s3cr3t",
			"password=s3cr3t host=127.0.0.1 port=s3cr3t",
			"password='s3cr3t host=127.0.0.1",
			"s3cr3t",
		} {
			s.set("WALRELAY_DATABASE_URL", dsn)
			for _, command := range [][]string{{"run"}, {"config"}, {"migrate"}, {"stream", "show"}} {
				text := s.fails(2, command...)
				require.Contains(t, text, "WALRELAY_DATABASE_URL=")
				keepsSecrets(t, text)
			}
		}
	})
}

// newSetupLocked is newSetup on a server that asks for the password.
func newSetupLocked(t *testing.T, server *testenv.Server) *setup {
	t.Helper()
	s := newBare(t, server, testenv.Kafka(t), 1)
	s.set("WALRELAY_DATABASE_URL", withPassword(t, s.db, databasePassword))
	s.run("migrate")
	return s
}
