package cdc

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTLSWarnings(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(block), 0o600))
	for _, variable := range []string{"PGHOST", "PGSSLMODE", "PGSSLROOTCERT", "PGSERVICE"} {
		t.Setenv(variable, "")
	}
	t.Setenv("HOME", t.TempDir()) // where a root.crt would change what require means
	for _, test := range []struct {
		conn string
		want []string // host:port and mode
	}{
		{"postgres://u:hunter2@db.example/shop", []string{"db.example:5432: sslmode=prefer"}},
		{"host=db.example user=u password=hunter2", []string{"db.example:5432: sslmode=prefer"}},
		{"postgres://db.example:5433/shop?sslmode=disable", []string{"db.example:5433: sslmode=disable"}},
		{"postgres://db.example/shop?sslmode=allow", []string{"db.example:5432: sslmode=allow"}},
		{"postgres://db.example/shop?sslmode=require", []string{"db.example:5432: sslmode=require"}},
		{"postgres://db.example/shop?sslmode=require&sslrootcert=" + ca, []string{"db.example:5432: sslmode=verify-ca"}},
		{"postgres://db.example/shop?sslmode=verify-ca&sslrootcert=" + ca, []string{"db.example:5432: sslmode=verify-ca"}},
		{"postgres://db.example/shop?sslmode=verify-full&sslrootcert=" + ca, nil},
		{"postgres://db.example/shop?sslrootcert=system", nil},
		{"postgres://10.0.0.1/shop", []string{"10.0.0.1:5432: sslmode=prefer"}},
		{"postgres://[2001:db8::1]/shop", []string{"[2001:db8::1]:5432: sslmode=prefer"}},
		{"postgres://a,b:5433,127.0.0.1,[::1],localhost/shop", []string{"a:5432: sslmode=prefer", "b:5433: sslmode=prefer"}},
		{"postgres://a,b/shop?sslmode=require", []string{"a:5432: sslmode=require", "b:5432: sslmode=require"}},
		{"postgres://a,b,a/shop?sslmode=disable", []string{"a:5432: sslmode=disable", "b:5432: sslmode=disable"}},
		{"postgres://a,a/shop?sslmode=require", []string{"a:5432: sslmode=require"}},
		{"postgres://a,a/shop?sslmode=allow", []string{"a:5432: sslmode=allow"}},
		{"host=/run/postgresql user=u", nil},
		{"postgres://localhost/shop", nil},
		{"postgres://127.8.9.10/shop?sslmode=disable", nil},
	} {
		warnings, err := TLSWarnings(&Config{ConnString: Secret(test.conn)})
		require.NoError(t, err, test.conn)
		require.Len(t, warnings, len(test.want), "%s: %s", test.conn, warnings)
		for i, want := range test.want {
			require.Contains(t, warnings[i], "PostgreSQL at "+want)
			require.Contains(t, warnings[i], "set sslmode=verify-full")
			require.NotContains(t, warnings[i], "hunter2")
		}
	}

	t.Setenv("PGHOST", "db.example")
	t.Setenv("PGSSLMODE", "require")
	warnings, err := TLSWarnings(new(Config))
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "db.example:5432: sslmode=require")

	_, err = TLSWarnings(&Config{ConnString: "postgres://u:hunter2@h/d?sslmode=hunter2"})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
}
