package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// collector is the transport of OpenTelemetry's exporter: OTLP over HTTP in protobuf, by
// https://opentelemetry.io/docs/specs/otlp/#otlphttp. OpenTelemetry's own, otlptracehttp, brings gRPC with it: another
// 2 MB of binary and 1.7 MB resident, in every process that exports nothing.
type collector struct {
	config otlpConfig
	client *http.Client
	last   chan struct{} // closed when the process stops: what fails from then on is not repeated
}

var _ otlptrace.Client = (*collector)(nil)

func newCollector(config otlpConfig) *collector {
	return &collector{
		config: config,
		client: &http.Client{
			Timeout: config.timeout,
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, TLSClientConfig: config.tls, ForceAttemptHTTP2: true,
				MaxIdleConns: 1, IdleConnTimeout: time.Minute,
			},
			// Headers are for the host that was configured.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		last: make(chan struct{}),
	}
}

// Start implements otlptrace.Client.
func (*collector) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *collector) Stop(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. What may succeed later is tried again until ctx ends.
func (c *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// An ExportTraceServiceRequest has the same fields.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	if c.config.gzip {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(body) // to memory
		_ = w.Close()
		body = packed.Bytes()
	}
	const most = 5 * time.Second
	for pause := most / 8; ; pause = min(2*pause, most) {
		again, err := c.post(ctx, body)
		if _, passing := errors.AsType[passingError](err); !passing {
			return err
		}
		timer := time.NewTimer(max(again, pause/2+rand.N(pause/2)))
		select {
		case <-timer.C:
		case <-c.last:
			timer.Stop()
			return err
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// passingError may be another one, or none, a moment later.
type passingError struct{ error }

// rejectedError says that the collector took an export but for some of its spans.
type rejectedError struct{ spans int64 }

func (e rejectedError) Error() string { return fmt.Sprintf("the collector rejects %d spans", e.spans) }

// post sends an export once. Its errors hold nothing of what was sent, nor of what the collector says, which may repeat
// that. The pause is the one that a collector asks for which is too busy.
func (c *collector) post(ctx context.Context, body []byte) (pause time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.config.url, bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("the URL cannot be used")
	}
	request.Header = c.config.headers.Clone()
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("User-Agent", "walrelay/"+buildVersion().version)
	if c.config.gzip {
		request.Header.Set("Content-Encoding", "gzip")
	}
	response, err := c.client.Do(request)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL
		}
		return 0, passingError{err}
	}
	defer func() { _ = response.Body.Close() }()
	const most = 64 << 10 // bytes of an answer that anybody looks at
	answer, err := io.ReadAll(io.LimitReader(response.Body, most))
	if response.StatusCode/100 == 2 {
		if n := rejected(answer); err == nil && n > 0 {
			return 0, rejectedError{n}
		}
		return 0, nil
	}
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return time.Duration(seconds) * time.Second, passingError{answered(response)}
	default:
		return 0, answered(response)
	}
}

func answered(response *http.Response) error {
	return fmt.Errorf("the collector answers %d %s", response.StatusCode, http.StatusText(response.StatusCode))
}

// rejected is how many spans an ExportTraceServiceResponse says were not taken: partial_success (1), and in it
// rejected_spans (1). The generated type is in a package that needs gRPC.
func rejected(answer []byte) int64 {
	partial, _ := protowire.ConsumeBytes(first(answer, protowire.BytesType))
	n, _ := protowire.ConsumeVarint(first(partial, protowire.VarintType))
	return int64(n)
}

// first is what a message's field 1 holds, still encoded; nil when it has none of the kind, or is no message.
func first(message []byte, want protowire.Type) []byte {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil
		}
		size := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if size < 0 {
			return nil
		}
		if number == 1 && kind == want {
			return message[tag : tag+size]
		}
		message = message[tag+size:]
	}
	return nil
}
