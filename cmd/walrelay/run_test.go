package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/cdc/retention"
	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/monitor"
	"github.com/walrelay/walrelay/sink"
)

// output collects what several goroutines write.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// field returns the first value of a key in the log.
func (o *output) field(key string) string {
	for line := range strings.SplitSeq(o.String(), "\n") {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) == nil {
			if value, ok := entry[key].(string); ok {
				return value
			}
		}
	}
	return ""
}

// Neither PostgreSQL nor Kafka answers: the process lives, is not ready, says why, and shows no secret.
func TestRun_NothingAnswers(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancelCause(t.Context())
	var log output
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, []string{"run"}, []string{
			"WALRELAY_DATABASE_URL=postgres://relay:hunter2@127.0.0.1:1/shop", "WALRELAY_KAFKA_BROKERS=127.0.0.1:1",
			"WALRELAY_KAFKA_SASL_MECHANISM=PLAIN", "WALRELAY_KAFKA_SASL_USERNAME=u", "WALRELAY_KAFKA_SASL_PASSWORD=hunter3",
			"WALRELAY_ADMIN_ADDR=127.0.0.1:0", "WALRELAY_ADMIN_TOKEN=hunter4-and-more-of-it",
			"WALRELAY_LOG_LEVEL=debug", "WALRELAY_BACKOFF_MAX=200ms",
		}, io.Discard, &log)
	}()
	require.Eventually(t, func() bool { return log.field("address") != "" }, time.Minute, 10*time.Millisecond)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+log.field("address")+path, nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer hunter4-and-more-of-it")
		response, err := client.Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode, string(body)
	}
	require.Eventually(t, func() bool {
		code, text := get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(text, "refused")
	}, time.Minute, 50*time.Millisecond)
	code, _ := get("/livez")
	require.Equal(t, http.StatusOK, code)
	code, status := get("/status")
	require.Equal(t, http.StatusOK, code)
	code, metrics := get("/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, metrics, "walrelay_lag_scrape_errors_total")
	require.NotContains(t, metrics, "walrelay_lag_confirmed_bytes")

	stop(errSignal)
	require.Equal(t, exitOK, <-done, log.String())
	require.Contains(t, log.String(), "stopped by signal")
	require.NotContains(t, log.String()+status+metrics, "hunter")
	for line := range strings.Lines(log.String()) {
		require.Equal(t, 1, strings.Count(line, `"slot":"walrelay"`), line)
		require.Equal(t, 1, strings.Count(line, `"stream":"walrelay"`), line)
	}
}

func TestRun_AddressInUse(t *testing.T) {
	t.Parallel()
	var log output
	code := run(t.Context(), []string{"run"}, []string{
		"WALRELAY_DATABASE_URL=postgres://127.0.0.1:1/shop", "WALRELAY_KAFKA_BROKERS=127.0.0.1:1",
		"WALRELAY_ADMIN_ADDR=192.0.2.1:1", // TEST-NET-1: no address of this host
	}, io.Discard, &log)
	require.Equal(t, exitError, code)
	require.Contains(t, log.String(), "listen for probes and scrapes")
}

func TestShown_CarriesEverything(t *testing.T) {
	t.Parallel()
	now := time.Now()
	shown := shownStatus(cdc.Status{
		State: cdc.StateStuck, Since: now, Reason: "r", Backend: 14, SystemID: "s", Epoch: 1, Timeline: 2,
		Received: 3, Frontier: 4, Confirmed: 5, InFlightEvents: 6, InFlightBytes: 7,
		OldestUnsettled: now, ClockOffset: 8, LastReceived: now, LastEvent: now, LastProgress: now,
		LastConfirmed: now, LastTick: now,
		Transactions: 9, Events: 10, Ignored: map[string]uint64{"update": 1},
		Poison:     map[checkpoint.Action]uint64{checkpoint.Skipped: 2},
		Reconnects: 11, Diverged: 13, OverBudget: true,
		Errors: map[string]uint64{"kafka": 3}, LastError: "e", LastErrorAt: now,
		Stuck: &checkpoint.Poison{EventID: "id", Table: "t", Topic: "p", Reason: "why", Size: 12},
	}, []sink.Trouble{{Object: "topic a", Since: now, Kind: "missing", Error: "why"}})
	require.Equal(t, []string{"WALBudget", "Retention", "Spans"}, zeroFields(t, shown), "which are off")
	require.Empty(t, zeroFields(t, *shownRetention(retention.Stats{
		Rows: 1, Partitions: 2, Errors: 3, Oldest: now, LastRun: now, LastError: "e", LastErrorAt: now,
	})))
	require.Equal(t, monitor.Stuck, shown.State)
	require.Equal(t, uint64(2), shown.Poison["skipped"])
	require.Equal(t, []monitor.Trouble{{Object: "topic a", Since: now, Kind: "missing", Reason: "why"}}, shown.Troubles)
	require.Equal(t, checkpoint.Position{}.String(), shown.StuckOn.Position)

	require.Empty(t, zeroFields(t, shownLag(cdc.Lag{
		Current: 1, ConfirmedFlush: 2, Restart: 3, ConfirmedBytes: 4, RetainedBytes: 5, Active: true, ActivePID: 6,
		WALStatus: "lost", InvalidationReason: "x", SafeWALSize: new(int64(7)), CatalogXminAge: 8, ServerTime: now,
		Instances: []cdc.Instance{{PID: 9, Active: true, Application: "a", Client: "c", Since: now, State: "s"}},
	})))
}

// zeroFields names the fields of a struct that hold nothing.
func zeroFields(t *testing.T, v any) (names []string) {
	t.Helper()
	value := reflect.ValueOf(v)
	for i := range value.NumField() {
		if value.Field(i).IsZero() {
			names = append(names, value.Type().Field(i).Name)
		}
	}
	return names
}
