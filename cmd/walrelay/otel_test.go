package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const otlpPrefix = "OTEL_EXPORTER_OTLP_"

func TestOTLP_Reads(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		env environment
		url string
	}{
		{nil, "http://localhost:4318/v1/traces"},
		{environment{"ENDPOINT": "https://collector.example"}, "https://collector.example/v1/traces"},
		{environment{"ENDPOINT": " http://[::1]:4318/base/ "}, "http://[::1]:4318/base/v1/traces"},
		{environment{"TRACES_ENDPOINT": "http://a", "ENDPOINT": "wrong"}, "http://a/"},
		{environment{"TRACES_ENDPOINT": "http://a/as-it-is?key=1"}, "http://a/as-it-is?key=1"},
	} {
		r := otlpReader{env: environment{}}
		for name, value := range test.env {
			r.env[otlpPrefix+name] = value
		}
		c := r.read()
		require.Empty(t, r.faults)
		require.Empty(t, r.hints)
		require.Equal(t, test.url, c.url)
		require.Equal(t, 10*time.Second, c.timeout)
		require.False(t, c.gzip)
	}
	r := otlpReader{env: environment{
		otlpPrefix + "HEADERS": "x-a=1, Authorization=Bearer%20b%3D", otlpPrefix + "TIMEOUT": "1500",
		otlpPrefix + "TRACES_COMPRESSION": "gzip", otlpPrefix + "COMPRESSION": "none",
	}}
	c := r.read()
	require.Empty(t, r.faults)
	require.Equal(t, http.Header{"X-A": {"1"}, "Authorization": {"Bearer b="}}, c.headers)
	require.Equal(t, 1500*time.Millisecond, c.timeout)
	require.True(t, c.gzip)
}

func TestOTLP_Faults(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, []byte("no certificate"), 0o600))
	for _, test := range []struct{ name, value, fault string }{
		{"ENDPOINT", "collector.example:4318", "must be a URL"},
		{"ENDPOINT", "grpc://hunter2", "must be a URL"},
		{"ENDPOINT", "http://:hunter2", "must be a URL"},
		{"TRACES_ENDPOINT", "http://", "must be a URL"},
		{"PROTOCOL", "grpc", "must be http/protobuf"},
		{"TRACES_PROTOCOL", "http/json", "must be http/protobuf"},
		{"HEADERS", "hunter2", "must be name=value"},
		{"TRACES_HEADERS", "a=b,hunter2", "must be name=value"},
		{"HEADERS", "a=%hunter2", "must be name=value"},
		{"HEADERS", "a b=hunter2", "must be name=value"},
		{"HEADERS", "a=hunter2%0d%0ab: c", "must be name=value"},
		{"TIMEOUT", "10s", "must be a positive number of milliseconds"},
		{"TIMEOUT", "0", "must be a positive number of milliseconds"},
		{"COMPRESSION", "zstd", "must be gzip or none"},
		{"CERTIFICATE", file, "no certificate"},
		{"CERTIFICATE", file + ".none", "no such file"},
		{"CLIENT_CERTIFICATE", file, "need each other"},
		{"CLIENT_KEY", file, "need each other"},
	} {
		r := otlpReader{env: environment{otlpPrefix + test.name: test.value}}
		r.read()
		require.Len(t, r.faults, 1, "%s=%s", test.name, test.value)
		require.Contains(t, r.faults[0], test.fault)
		require.NotContains(t, r.faults[0], "hunter2")
	}
	for _, test := range []struct {
		env  environment
		hint string
	}{
		{environment{otlpPrefix + "ENDPOINT": "http://a:4317"}, "4317"},
		{environment{otlpPrefix + "ENDPOINT": "http://u:hunter2@a", otlpPrefix + "HEADERS": "a=hunter2"}, "without TLS"},
	} {
		r := otlpReader{env: test.env}
		r.read()
		require.Empty(t, r.faults)
		require.Len(t, r.hints, 1)
		require.Contains(t, r.hints[0], test.hint)
		require.NotContains(t, r.hints[0], "hunter2")
	}
}
