package main

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// sample is an export of two spans.
func sample() []*tracepb.ResourceSpans {
	spans := []*tracepb.Span{{Name: "a"}, {Name: "b"}}
	return []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: spans}}}}
}

// upload sends the sample to a server that answers so, until ctx ends.
func upload(
	t *testing.T, answer http.HandlerFunc, env environment, change func(*collector, context.CancelCauseFunc),
) error {
	t.Helper()
	server := httptest.NewServer(answer)
	defer server.Close()
	if env == nil {
		env = environment{}
	}
	env[otlpPrefix+"ENDPOINT"] = server.URL
	reader := otlpReader{env: env}
	c := newCollector(reader.read())
	require.Empty(t, reader.faults)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if change != nil {
		change(c, cancel)
	}
	err := c.UploadTraces(ctx, sample())
	require.NoError(t, c.Stop(ctx))
	return err
}

func TestCollector_Sends(t *testing.T) {
	t.Parallel()
	for _, compression := range []string{"none", "gzip"} {
		var got collectorpb.ExportTraceServiceRequest
		require.NoError(t, upload(t, func(_ http.ResponseWriter, r *http.Request) {
			require.Equal(t, "/v1/traces", r.URL.Path)
			require.Equal(t, "application/x-protobuf", r.Header.Get("Content-Type"))
			require.Equal(t, "it is", r.Header.Get("X-Secret"))
			require.Contains(t, r.Header.Get("User-Agent"), "walrelay/")
			body := io.Reader(r.Body)
			if r.Header.Get("Content-Encoding") == "gzip" {
				body, _ = gzip.NewReader(body)
			}
			raw, err := io.ReadAll(body)
			require.NoError(t, err)
			require.NoError(t, proto.Unmarshal(raw, &got))
		}, environment{otlpPrefix + "COMPRESSION": compression, otlpPrefix + "HEADERS": "x-secret=it%20is"}, nil))
		require.True(t, proto.Equal(&collectorpb.ExportTraceServiceRequest{ResourceSpans: sample()}, &got))
	}
}

func TestCollector_RepeatsWhatMayPass(t *testing.T) {
	t.Parallel()
	for _, code := range []int{429, 502, 503, 504} {
		attempts := 0
		require.NoError(t, upload(t, func(w http.ResponseWriter, _ *http.Request) {
			if attempts++; attempts == 1 {
				w.WriteHeader(code)
			}
		}, nil, nil))
		require.Equal(t, 2, attempts)
	}
	asked := make(chan time.Time, 2)
	require.NoError(t, upload(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked <- time.Now(); len(asked) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}, nil, nil))
	first, second := <-asked, <-asked
	require.GreaterOrEqual(t, second.Sub(first), time.Second)
}

// Neither what was sent nor what the collector says of it is in an error.
func TestCollector_GivesUp(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	refuse := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://"+r.Host+"/elsewhere")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, r.Header.Get("Authorization"))
		}
	}
	for code, text := range map[int]string{
		307: "307 Temporary Redirect", 400: "400 Bad Request", 401: "401 Unauthorized", 413: "413", 500: "500",
	} {
		attempts := 0
		err := upload(t, func(w http.ResponseWriter, r *http.Request) {
			attempts++
			refuse(code)(w, r)
		}, environment{otlpPrefix + "HEADERS": "Authorization=" + secret}, nil)
		require.ErrorContains(t, err, text)
		require.NotContains(t, err.Error(), secret)
		require.Equal(t, 1, attempts)
	}
	for name, stop := range map[string]func(*collector, context.CancelCauseFunc){
		"with its context":      func(_ *collector, cancel context.CancelCauseFunc) { cancel(errors.New("over")) },
		"when the process ends": func(c *collector, _ context.CancelCauseFunc) { close(c.last) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := upload(t, func(w http.ResponseWriter, r *http.Request) { refuse(503)(w, r) }, nil, stop)
			require.Error(t, err)
		})
	}
}

func TestCollector_PartialSuccess(t *testing.T) {
	t.Parallel()
	for want, answer := range map[int64]*collectorpb.ExportTraceServiceResponse{
		0: {PartialSuccess: &collectorpb.ExportTracePartialSuccess{ErrorMessage: "only a warning"}},
		2: {PartialSuccess: &collectorpb.ExportTracePartialSuccess{RejectedSpans: 2, ErrorMessage: "why"}},
	} {
		raw, err := proto.Marshal(answer)
		require.NoError(t, err)
		err = upload(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(raw) }, nil, nil)
		var partly rejectedError
		require.Equal(t, want > 0, errors.As(err, &partly))
		require.Equal(t, want, partly.spans)
	}
	for _, garbage := range []string{"", "{}", "\xff", "\x0a\xff\x01", "\x08\x01", "\x0a\x02\x08\xff"} {
		require.Zero(t, rejected([]byte(garbage)))
	}
}
