package e2e

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/walrelay/walrelay/testenv"
)

// collectorSecret is in a header that every export must bear.
const collectorSecret = "s3cr3t-of-the-collector"

// collector receives spans by OTLP over HTTP, in protobuf.
type collector struct {
	*httptest.Server
	addr string

	mu       sync.Mutex
	resource map[string]string
	spans    []*tracepb.Span
	bodies   []string
}

// newCollector starts one and has the setup export to it.
func newCollector(t *testing.T, s *setup) *collector {
	t.Helper()
	c := &collector{addr: testenv.Addr(t)}
	c.listen(t)
	for name, value := range map[string]string{
		"WALRELAY_TRACES": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + c.addr,
		"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20" + collectorSecret, "OTEL_BSP_SCHEDULE_DELAY": "50",
	} {
		s.set(name, value)
	}
	return c
}

// listen starts the server, which may have been closed, at its address.
func (c *collector) listen(t *testing.T) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", c.addr)
	require.NoError(t, err)
	c.Server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(c.receive)}}
	c.Start()
	t.Cleanup(c.Close)
}

// receive answers as the protocol says, and refuses with what it was sent.
func (c *collector) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var export collectorpb.ExportTraceServiceRequest
	switch token := r.Header.Get("Authorization"); {
	case err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces",
		r.Header.Get("Content-Type") != "application/x-protobuf", proto.Unmarshal(body, &export) != nil:
		w.WriteHeader(http.StatusBadRequest)
		return
	case token != "Bearer "+collectorSecret:
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "not allowed: "+token)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodies = append(c.bodies, string(body))
	for _, resource := range export.ResourceSpans {
		c.resource = map[string]string{}
		for _, a := range resource.Resource.Attributes {
			c.resource[a.Key] = a.Value.GetStringValue()
		}
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// received is every span so far.
func (c *collector) received() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clip(c.spans)
}

// sent is every export so far, as it came.
func (c *collector) sent() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clip(c.bodies)
}

// messages is how many records the batches of spans hold.
func messages(spans []*tracepb.Span) (n int) {
	for _, span := range spans {
		n += int(number(span, "messaging.batch.message_count"))
	}
	return n
}

func number(span *tracepb.Span, key string) int64 {
	for _, a := range span.Attributes {
		if a.Key == key {
			return a.Value.GetIntValue()
		}
	}
	return -1
}

func textOf(span *tracepb.Span, key string) string {
	for _, a := range span.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}
