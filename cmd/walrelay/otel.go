package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// otlpConfig is where spans are sent to, and how.
type otlpConfig struct {
	url     string
	headers http.Header
	timeout time.Duration // of an attempt
	gzip    bool
	tls     *tls.Config
}

// otlpReader reads the variables OTEL_EXPORTER_OTLP_*, whose meaning and defaults are those of
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/. No value is told: headers and URLs may hold secrets.
type otlpReader struct {
	env    environment
	faults []string // with any of them nothing can be sent as it is meant
	hints  []string
}

// variable is the one of a name that counts: that of traces alone has precedence.
func (r *otlpReader) variable(name string) (variable, value string) {
	variable = "OTEL_EXPORTER_OTLP_TRACES_" + name
	if value = strings.TrimSpace(r.env[variable]); value == "" {
		variable = "OTEL_EXPORTER_OTLP_" + name
		value = strings.TrimSpace(r.env[variable])
	}
	return variable, value
}

func (r *otlpReader) fault(variable, rule string) { r.faults = append(r.faults, variable+" "+rule) }

func (r *otlpReader) read() otlpConfig {
	c := otlpConfig{timeout: 10 * time.Second}
	if name, value := r.variable("PROTOCOL"); value != "" && value != "http/protobuf" {
		r.fault(name, "must be http/protobuf, nothing else is spoken")
	}
	endpoint := r.endpoint()
	c.url = endpoint.String()
	c.headers = r.headers()
	if len(c.headers) > 0 && endpoint.Scheme == "http" && !loopback(endpoint.Hostname()) {
		r.hints = append(r.hints, "headers travel to "+endpoint.Host+" without TLS, which anybody on the way can read: "+
			"use an https URL")
	}
	if name, value := r.variable("TIMEOUT"); value != "" {
		n, err := strconv.Atoi(value)
		if err != nil || n <= 0 {
			r.fault(name, "must be a positive number of milliseconds")
		}
		c.timeout = time.Duration(n) * time.Millisecond
	}
	switch name, value := r.variable("COMPRESSION"); value {
	case "", "none":
	case "gzip":
		c.gzip = true
	default:
		r.fault(name, "must be gzip or none")
	}
	c.tls = r.tls()
	return c
}

// endpoint is the URL that spans are posted to.
func (r *otlpReader) endpoint() *url.URL {
	name, value := r.variable("ENDPOINT")
	if value == "" {
		value = "http://localhost:4318"
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		r.fault(name, "must be a URL with http or https and a host, as in http://collector:4318")
		return &url.URL{}
	}
	if u.Port() == "4317" {
		r.hints = append(r.hints, name+" has port 4317, by convention that of gRPC; OTLP over HTTP has 4318")
	}
	switch {
	case !strings.Contains(name, "TRACES"): // of all kinds of telemetry
		u = u.JoinPath("v1/traces")
	case u.Path == "":
		u.Path = "/"
	}
	return u
}

func (r *otlpReader) headers() http.Header {
	name, value := r.variable("HEADERS")
	headers := http.Header{}
	if value == "" {
		return headers
	}
	for header := range strings.SplitSeq(value, ",") {
		key, value, ok := strings.Cut(header, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !ok || err != nil || !httpguts.ValidHeaderFieldName(key) ||
			!httpguts.ValidHeaderFieldValue(value) {
			r.fault(name, "must be name=value, comma-separated, with what is special in values percent-encoded")
			return headers
		}
		headers.Set(key, value)
	}
	return headers
}

func (r *otlpReader) tls() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if name, file := r.variable("CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		config.RootCAs = x509.NewCertPool()
		if err == nil && !config.RootCAs.AppendCertsFromPEM(pem) {
			err = errors.New("no certificate in PEM is in it")
		}
		if err != nil {
			r.fault(name, "must be a file of authorities: "+reason(err))
		}
	}
	name, file := r.variable("CLIENT_CERTIFICATE")
	keyName, keyFile := r.variable("CLIENT_KEY")
	switch {
	case file == "" && keyFile == "":
	case file == "" || keyFile == "":
		r.fault(name, "and "+keyName+" need each other")
	default:
		pair, err := tls.LoadX509KeyPair(file, keyFile)
		if err != nil {
			r.fault(name, "and "+keyName+" must be files of a certificate and its key: "+reason(err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// positive is a variable's number, or else the default.
func (e environment) positive(name string, or int) int {
	if n, err := strconv.Atoi(strings.TrimSpace(e[name])); err == nil && n > 0 {
		return n
	}
	return or
}
