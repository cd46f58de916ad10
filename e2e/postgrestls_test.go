package e2e

import (
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// guarded is a PostgreSQL that lets in by TCP who has a certificate for the role and its password, and nobody else.
type guarded struct {
	*testenv.Server
	dir string // ca.pem, cert.pem, key.pem; stranger.pem and stranger-key.pem of a role "stranger"; other.pem
}

func (g *guarded) file(name string) string { return filepath.Join(g.dir, name) }

func newGuarded(t *testing.T, major int) *guarded {
	t.Helper()
	ca := newAuthority(t)
	serverCert, serverKey := ca.issue(t)
	g := &guarded{dir: t.TempDir()}
	cert, key := ca.issue(t)
	strangerCert, strangerKey := ca.issueTo(t, "stranger")
	for name, content := range map[string][]byte{
		"ca.pem": ca.pem, "other.pem": newAuthority(t).pem, "cert.pem": cert, "key.pem": key,
		"stranger.pem": strangerCert, "stranger-key.pem": strangerKey,
	} {
		require.NoError(t, os.WriteFile(g.file(name), content, 0o600))
	}
	g.Server = testenv.StartPostgres(t, major, testenv.Config{
		Files: map[string][]byte{"server.crt": serverCert, "server.key": serverKey, "ca.crt": ca.pem},
		Settings: map[string]string{
			"ssl": "on", "ssl_cert_file": "server.crt", "ssl_key_file": "server.key", "ssl_ca_file": "ca.crt",
		},
		HBA: []string{"local all all trust", "hostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-full"},
	})
	g.Exec(t, "CREATE ROLE relay SUPERUSER LOGIN PASSWORD 's3cr3t p@ss''w\\rd/%'")
	return g
}

// url is one of the database, as the role relay.
func (g *guarded) url(db *testenv.Database, password string, parameters ...[]string) string {
	u := url.URL{Scheme: "postgres", Host: "127.0.0.1:" + strconv.Itoa(g.Port), Path: "/" + db.Name}
	if u.User = url.User("relay"); password != "" {
		u.User = url.UserPassword("relay", password)
	}
	q := url.Values{}
	for pair := range slices.Chunk(slices.Concat(parameters...), 2) {
		q.Set(pair[0], pair[1])
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func TestPostgresTLS(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		g := newGuarded(t, major)
		s := newBare(t, g.Server, testenv.Kafka(t), 1)
		proof := []string{"sslrootcert", g.file("ca.pem"), "sslcert", g.file("cert.pem"), "sslkey", g.file("key.pem")}
		full := slices.Concat([]string{"sslmode", "verify-full"}, proof)
		passfile := g.file("pgpass")
		entry := "127.0.0.1:*:*:relay:" + `s3cr3t p@ss'w\\rd/%` + "\n" // a backslash is doubled there
		require.NoError(t, os.WriteFile(passfile, []byte(entry), 0o600))
		s.set("WALRELAY_DATABASE_URL", g.url(s.db, databasePassword, full))
		s.run("migrate")
		f := follow(s)

		plain := maps.Clone(s.env)
		variables := map[string]string{
			"PGHOST": "127.0.0.1", "PGPORT": strconv.Itoa(g.Port), "PGUSER": "relay", "PGDATABASE": s.db.Name,
			"PGSSLMODE": "verify-full", "PGSSLROOTCERT": g.file("ca.pem"), "PGSSLCERT": g.file("cert.pem"),
			"PGSSLKEY": g.file("key.pem"), "PGPASSFILE": passfile,
		}
		for name, change := range map[string]func(){
			"a URL": func() {},
			"verify-ca": func() {
				s.set("WALRELAY_DATABASE_URL", g.url(s.db, databasePassword, []string{"sslmode", "verify-ca"}, proof))
			},
			"the password in a passfile": func() {
				s.set("WALRELAY_DATABASE_URL", g.url(s.db, "", full, []string{"passfile", passfile}))
			},
			"PG* variables": func() {
				delete(s.env, "WALRELAY_DATABASE_URL")
				maps.Copy(s.env, variables)
			},
		} {
			t.Log(name)
			s.env = maps.Clone(plain)
			change()
			relay := s.relay()
			f.delivers()
			require.NotContains(t, relay.Log(), "sslmode", "the server is local")
			keepsSecrets(t, append(s.observe(), relay.Log(), s.run("config"))...)
			s.stop(relay)
		}

		for _, test := range []struct {
			parameters []string
			password   string
			want       string
		}{
			{[]string{"sslmode", "disable"}, databasePassword, "no encryption"},
			{[]string{"sslmode", "verify-full", "sslrootcert", g.file("ca.pem")}, databasePassword, "certificate"},
			{
				slices.Concat(full, []string{"sslcert", g.file("stranger.pem"), "sslkey", g.file("stranger-key.pem")}),
				databasePassword, "authentication failed",
			},
			{slices.Concat(full, []string{"sslrootcert", g.file("other.pem")}), databasePassword, "unknown authority"},
			{full, "s3cr3t-but-wrong", "password authentication failed"},
		} {
			t.Log(test.want)
			s.env = maps.Clone(plain)
			s.set("WALRELAY_DATABASE_URL", g.url(s.db, test.password, test.parameters))
			relay := s.start()
			s.ready(503, "connecting", test.want)
			keepsSecrets(t, append(s.observe(), relay.Log(), s.fails(1, "migrate"))...)
			relay.Kill(t)
		}

		t.Log("files that are put right, and a password that is changed")
		own := filepath.Join(t.TempDir(), "ca.pem")
		place := func(to, from string) {
			text, err := os.ReadFile(from)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(to, text, 0o600))
		}
		place(own, g.file("other.pem"))
		s.set("WALRELAY_DATABASE_URL", g.url(s.db, "", full, []string{"sslrootcert", own, "passfile", passfile}))
		relay := s.start()
		s.ready(503, "unknown authority")
		place(own, g.file("ca.pem"))
		f.delivers()
		g.Exec(t, "ALTER ROLE relay PASSWORD 's3cr3t-anew'")
		s.cut()
		s.ready(503, "password authentication failed")
		require.NoError(t, os.WriteFile(passfile, []byte("*:*:*:relay:s3cr3t-anew\n"), 0o600))
		f.delivers()
		keepsSecrets(t, append(s.observe(), relay.Log())...)
		s.stop(relay)
	})
}

// A host that is not this machine is named with the mode in force, whether it answers or not.
func TestPostgresTLS_NamesWeakModes(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
	f := follow(s)
	u, err := url.Parse(s.env["WALRELAY_DATABASE_URL"])
	require.NoError(t, err)
	u.Host = "db.invalid:5432," + u.Host
	for mode, named := range map[string]string{"": "prefer", "disable": "disable", "prefer": "prefer"} {
		u.RawQuery = ""
		if mode != "" {
			u.RawQuery = "sslmode=" + mode
		}
		s.set("WALRELAY_DATABASE_URL", u.String())
		relay := s.relay()
		f.delivers()
		require.Contains(t, relay.Log(), "PostgreSQL at db.invalid:5432: sslmode="+named+" is in force")
		require.NotContains(t, relay.Log(), "PostgreSQL at 127.0.0.1")
		s.stop(relay)
	}
}
