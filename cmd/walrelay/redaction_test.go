package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

func TestRedaction_NoOutputShowsASecret(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	urlFile, passwordFile := filepath.Join(dir, "url"), filepath.Join(dir, "password")
	require.NoError(t, os.WriteFile(urlFile, []byte("postgres://relay:hunter2@db:5432/shop\n"), 0o600))
	require.NoError(t, os.WriteFile(passwordFile, []byte("hunter3\r\n"), 0o600))
	const brokers = "WALRELAY_KAFKA_BROKERS=a:1"

	for name, env := range map[string][]string{
		"url":        {brokers, "WALRELAY_DATABASE_URL=postgres://relay:hunter2@db:5432/shop"},
		"keywords":   {brokers, "WALRELAY_DATABASE_URL=host=db user=relay password=hunter2 dbname=shop"},
		"quoted":     {brokers, `WALRELAY_DATABASE_URL=host=db user=relay password = 'hunter2\' hunter2' dbname=shop`},
		"query":      {brokers, "WALRELAY_DATABASE_URL=postgres://relay@db/shop?password=hunter2"},
		"key file":   {brokers, "WALRELAY_DATABASE_URL=postgres://relay@db/shop?sslpassword=hunter2"},
		"many hosts": {brokers, "WALRELAY_DATABASE_URL=postgres://relay:hunter2@db:1,db2:2/shop"},
		"bad port":   {brokers, "WALRELAY_DATABASE_URL=postgres://relay:hunter2@db:port/shop"},
		"bad escape": {brokers, "WALRELAY_DATABASE_URL=postgres://relay:hunter2%zz@db/shop"},
		"slash":      {brokers, "WALRELAY_DATABASE_URL=postgres://relay:hunter2/hunter2@db/shop?sslmode=x"},
		"bad mode":   {brokers, "WALRELAY_DATABASE_URL=postgres://relay:hunter2@db/shop?sslmode=hunter2"},
		"bad word":   {brokers, "WALRELAY_DATABASE_URL=host=db password=hunter2 connect_timeout=hunter2"},
		"bad number": {brokers, "WALRELAY_DATABASE_URL=postgres://relay:hunter2@db/shop?connect_timeout=hunter2"},
		"not a url":  {brokers, "WALRELAY_DATABASE_URL=hunter2"},
		"file":       {brokers, "WALRELAY_DATABASE_URL_FILE=" + urlFile},
		"misspelt":   {brokers, "WALRELAY_DATABASE_URI=postgres://relay:hunter2@db/shop"},
		"sasl": {
			brokers, "WALRELAY_DATABASE_URL=postgres://db/shop", "WALRELAY_KAFKA_SASL_MECHANISM=PLAIN",
			"WALRELAY_KAFKA_SASL_USERNAME=u", "WALRELAY_KAFKA_SASL_PASSWORD_FILE=" + passwordFile,
		},
		"token":       {brokers, "WALRELAY_DATABASE_URL=postgres://db/shop", "WALRELAY_ADMIN_TOKEN=hunter4-and-more-of-it"},
		"short token": {brokers, "WALRELAY_DATABASE_URL=postgres://db/shop", "WALRELAY_ADMIN_TOKEN=hunter5"},
		"oauth": {
			brokers, "WALRELAY_DATABASE_URL=postgres://db/shop", "WALRELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER",
			"WALRELAY_KAFKA_OAUTH_TOKEN_URL=https://relay:hunter2@idp/token", "WALRELAY_KAFKA_OAUTH_CLIENT_SECRET=hunter2",
		},
		"both": {
			brokers, "WALRELAY_DATABASE_URL=postgres://db/shop", "WALRELAY_KAFKA_SASL_PASSWORD=hunter2",
			"WALRELAY_KAFKA_SASL_PASSWORD_FILE=" + passwordFile,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A fault besides keeps run from starting, so that only the configuration speaks.
			r := execute(t, append(env, "WALRELAY_COMPRESSION=zip", "WALRELAY_LOG_LEVEL=debug"), "run")
			require.Equal(t, exitUsage, r.code)
			require.NotContains(t, r.stdout+r.stderr, "hunter")
			r = execute(t, env, "config")
			require.NotContains(t, r.stdout+r.stderr, "hunter")
		})
	}
}

func TestConfig_ShowsHostDatabaseAndUser(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"postgres://relay:hunter2@db:5433,db2/shop": "host=db,db2 port=5433,5432 user=relay " +
			"password=(redacted) dbname=shop",
		"host=/run/pg user='a b' password=x dbname=d": "host=/run/pg port=5432 user='a b' password=(redacted) dbname=d",
	} {
		values, r := configured(t, minimal("WALRELAY_DATABASE_URL="+text))
		require.Equal(t, exitOK, r.code, r.stderr)
		require.Equal(t, want, values["WALRELAY_DATABASE_URL"])
	}
}

// A secret in a file is what the file holds at that moment; what it cannot be is said without it.
func TestSecrets_AreReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	var s Settings
	require.Nil(t, s.readConnString())
	require.Nil(t, s.adminToken())
	s.AdminToken.raw, s.DatabaseURLFile.Text, s.AdminTokenFile.Text = "the-first-of-tokens", path, path
	s.AdminTokenFile.variable = "WALRELAY_ADMIN_TOKEN_FILE"
	url, token := s.readConnString(), s.adminToken()
	for _, text := range []string{"postgres://a:hunter2@b/c", "another-of-the-tokens"} {
		write(text + "\n")
		read, err := url()
		require.NoError(t, err)
		require.Equal(t, text, string(read))
	}
	read, err := token()
	require.NoError(t, err)
	require.Equal(t, "another-of-the-tokens", read)
	write("hunter2")
	_, err = token()
	require.ErrorContains(t, err, "WALRELAY_ADMIN_TOKEN_FILE="+path+" must hold at least 16 of letters")
	require.NotContains(t, err.Error(), "hunter")
	write("")
	_, err = url()
	require.ErrorContains(t, err, "must not be an empty file")
}

func TestSecrets_FileWithoutItsLastNewline(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "password")
	for content, want := range map[string]string{
		"secret": "secret", "secret\n": "secret", "secret\r\n": "secret", "secret\n\n": "secret\n", "a secret": "a secret",
	} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		var s Settings
		var f faults
		s.KafkaSASLPasswordFile.Text = path
		s.loadSecrets(&f)
		require.NoError(t, f.err())
		require.Equal(t, want, s.KafkaSASLPassword.Reveal())
	}

	require.NoError(t, os.WriteFile(path, []byte("\n"), 0o600))
	var s Settings
	var f faults
	s.KafkaSASLPasswordFile.Text = path
	s.loadSecrets(&f)
	require.ErrorContains(t, f.err(), "must not be an empty file")
}

// A secret that is only to be had from the environment ends up in process listings and crash reports.
func TestSecrets_EachHasAFile(t *testing.T) {
	t.Parallel()
	var c cli
	parser, err := kong.New(&c)
	require.NoError(t, err)
	settings := declaredIn(parser.Model)
	files := map[string]*Text{}
	for _, d := range settings {
		if file, ok := d.value.(*Text); ok {
			files[d.variable] = file
		}
	}
	secrets := 0
	for _, d := range settings {
		secret, ok := d.value.(*Secret)
		if !ok {
			continue
		}
		secrets++
		file := files[d.variable+"_FILE"]
		require.NotNil(t, file, "%s has no sibling", d.variable)
		file.Text = filepath.Join(t.TempDir(), "secret")
		require.NoError(t, os.WriteFile(file.Text, []byte("of a file\n"), 0o600))
		var f faults
		c.loadSecrets(&f)
		require.NoError(t, f.err())
		require.Equal(t, "of a file", secret.Reveal(), d.variable)
		secret.raw, file.Text = "", ""
	}
	require.GreaterOrEqual(t, secrets, 3)
}

func TestSecrets_OfAFileAreReadAnew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(path, []byte("first\n"), 0o600))
	s := Settings{KafkaSASLPasswordFile: Text{input{variable: "WALRELAY_KAFKA_SASL_PASSWORD_FILE"}, path}}
	s.KafkaSASLMechanism.Text = "PLAIN"
	password := s.kafkaSASL().Password
	for _, want := range []string{"first", "second"} {
		require.NoError(t, os.WriteFile(path, []byte(want+"\n"), 0o600))
		got, err := password()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.NoError(t, os.Remove(path))
	_, err := password()
	require.ErrorContains(t, err, "WALRELAY_KAFKA_SASL_PASSWORD_FILE="+path+" must be a readable file: no such file")

	s = Settings{}
	s.KafkaSASLMechanism.Text, s.KafkaSASLPassword.raw = "PLAIN", "of the environment"
	got, err := s.kafkaSASL().Password()
	require.NoError(t, err)
	require.Equal(t, "of the environment", got)
}

func TestExposed_NamesWhatTravelsInTheClear(t *testing.T) {
	t.Parallel()
	s := Settings{KafkaBrokers: Brokers{Addrs: []string{"kafka.example:9092", "localhost:9092", "[::1]:9092"}}}
	require.Empty(t, s.exposed())
	s.KafkaTLS.variable, s.KafkaSASLMechanism.Text = "WALRELAY_KAFKA_TLS", "PLAIN"
	require.Equal(t, []string{
		"broker kafka.example:9092 is logged in to by PLAIN without TLS, which anybody on the way can read: " +
			"set WALRELAY_KAFKA_TLS=true",
	}, s.exposed())
	s.KafkaSASLMechanism.Text = "SCRAM-SHA-512"
	require.Empty(t, s.exposed(), "which shows no secret")
	s.KafkaSASLMechanism.Text, s.KafkaTLS.Value = "OAUTHBEARER", true
	s.KafkaOAuthTokenURL.Text = "https://idp.example/token"
	require.Empty(t, s.exposed())
	s.KafkaOAuthTokenURL.Text = "http://idp.example/token"
	require.Len(t, s.exposed(), 1)
	require.Contains(t, s.exposed()[0], "idp.example")
	s.KafkaOAuthTokenURL.Text = "http://127.0.0.1:8080/token"
	require.Empty(t, s.exposed())
}
