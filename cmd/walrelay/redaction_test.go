package main

import (
	"os"
	"path/filepath"
	"testing"

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
