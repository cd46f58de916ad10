package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// get answers one request without a network.
func (f *fixture) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	f.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return recorder.Code, recorder.Body.String()
}

// scrape returns the samples of walrelay's own metrics: name{labels} to value, without the labels
// that all of them have.
func (f *fixture) scrape(t *testing.T) map[string]string {
	t.Helper()
	code, body := f.get(t, "/metrics")
	require.Equal(t, http.StatusOK, code, body)
	common := regexp.MustCompile(`(slot|stream)="[^"]*",?`)
	samples := make(map[string]string)
	for line := range strings.SplitSeq(body, "\n") {
		if !strings.HasPrefix(line, "walrelay_") {
			continue
		}
		require.Contains(t, line, `slot="orders_slot"`)
		require.Contains(t, line, `stream="orders"`)
		line = common.ReplaceAllString(line, "")
		space := strings.LastIndexByte(line, ' ')
		name, value := line[:space], line[space+1:]
		samples[strings.NewReplacer(",}", "}", "{}", "").Replace(name)] = value
	}
	return samples
}

func TestMetrics_Values(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	samples := f.scrape(t)
	for name, want := range map[string]string{
		`walrelay_build_info{revision="abc",version="v1"}`: "1",
		"walrelay_lag_confirmed_bytes":                     "768",
		"walrelay_lag_retained_bytes":                      "1024",
		"walrelay_lag_seconds":                             "2", // both times on the server's clock
		"walrelay_seconds_since_last_event":                "1.5",
		"walrelay_seconds_since_last_received":             "1",
		"walrelay_seconds_since_last_progress":             "2",
		"walrelay_seconds_since_last_confirmed":            "3",
		"walrelay_troubles":                                "0",
		"walrelay_slot_active":                             "1",
		`walrelay_slot_wal_status{status="reserved"}`:      "1",
		`walrelay_slot_wal_status{status="lost"}`:          "0",
		"walrelay_slot_safe_wal_bytes":                     "4096",
		"walrelay_slot_catalog_xmin_age":                   "12",
		"walrelay_slot_standbys":                           "1",
		`walrelay_state{state="streaming"}`:                "1",
		`walrelay_state{state="stuck"}`:                    "0",
		"walrelay_ready":                                   "1",
		"walrelay_epoch":                                   "4",
		"walrelay_confirmed_lsn":                           "4.294967552e+09",
		"walrelay_in_flight_events":                        "5",
		"walrelay_in_flight_bytes":                         "5000",
		"walrelay_events_total":                            "700",
		"walrelay_transactions_total":                      "70",
		`walrelay_ignored_changes_total{kind="update"}`:    "3",
		`walrelay_ignored_changes_total{kind="delete"}`:    "0",
		`walrelay_ignored_changes_total{kind="odd"}`:       "1",
		`walrelay_poison_events_total{action="skipped"}`:   "2",
		`walrelay_poison_events_total{action="stopped"}`:   "0",
		"walrelay_reconnects_total":                        "1",
		"walrelay_diverged_events_total":                   "9",
		`walrelay_errors_total{kind="kafka"}`:              "6",
		"walrelay_lag_scrape_errors_total":                 "0",
	} {
		require.Equal(t, want, samples[name], name)
	}
}

func TestMetrics_NothingUnsettledIsNoLag(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	status, lag := streaming(), healthyLag()
	status.OldestUnsettled, status.LastEvent, lag.SafeWALBytes = time.Time{}, time.Time{}, nil
	f.status.Store(&status)
	f.lag.Store(&lag)
	samples := f.scrape(t)
	require.Equal(t, "0", samples["walrelay_lag_seconds"])
	require.NotContains(t, samples, "walrelay_seconds_since_last_event", "no event yet")
	require.NotContains(t, samples, "walrelay_slot_safe_wal_bytes", "no limit")
}

// A gauge that keeps its last good value hides the outage: it must go.
func TestMetrics_LagOfASilentServerIsAbsent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := []string{
		"walrelay_lag_confirmed_bytes", "walrelay_lag_retained_bytes", "walrelay_lag_seconds", "walrelay_slot_active",
		`walrelay_slot_wal_status{status="reserved"}`, "walrelay_slot_safe_wal_bytes", "walrelay_slot_catalog_xmin_age",
	}
	before := f.scrape(t)
	for _, name := range server {
		require.Contains(t, before, name)
	}

	f.lag.Store(nil)
	for n, want := range []string{"1", "2"} {
		samples := f.scrape(t)
		for _, name := range server {
			require.NotContains(t, samples, name, "scrape %d", n)
		}
		require.Equal(t, want, samples["walrelay_lag_scrape_errors_total"])
		require.Equal(t, "1.5", samples["walrelay_seconds_since_last_event"], "the local clock goes on")
	}

	lag := healthyLag()
	f.lag.Store(&lag)
	require.Contains(t, f.scrape(t), "walrelay_lag_confirmed_bytes")
}

// What holds delivery up has a name while it does, and its gauge goes with it. The topics come from the
// rows, so there may be any number of them.
func TestMetrics_Troubles(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	status := streaming()
	for i := range 100 {
		status.Troubles = append(status.Troubles, Trouble{
			Object: fmt.Sprintf("topic %d", i), Since: noon().Add(-90 * time.Second), Kind: "missing", Reason: "no such topic",
		})
	}
	f.status.Store(&status)
	named := func(samples map[string]string) (n int) {
		for name := range samples {
			if strings.HasPrefix(name, "walrelay_trouble_seconds") {
				n++
			}
		}
		return n
	}
	samples := f.scrape(t)
	require.Equal(t, "90", samples[`walrelay_trouble_seconds{error="missing",object="topic 0"}`])
	require.Equal(t, "100", samples["walrelay_troubles"])
	require.Equal(t, 20, named(samples))
	_, body := f.get(t, "/status")
	var doc struct{ Status struct{ Troubles []Trouble } }
	require.NoError(t, json.Unmarshal([]byte(body), &doc))
	require.Equal(t, status.Troubles, doc.Status.Troubles)

	status.Troubles = nil
	f.status.Store(&status)
	samples = f.scrape(t)
	require.Equal(t, "0", samples["walrelay_troubles"])
	require.Zero(t, named(samples))
	_, body = f.get(t, "/status")
	require.NotContains(t, body, "troubles")
}

func TestMetrics_Retention(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.NotContains(t, f.scrape(t), "walrelay_retention_errors_total")
	status := streaming()
	status.Retention = &Retention{
		Rows: 3, Partitions: 2, Errors: 1, Oldest: noon().Add(ahead - time.Hour), LastRun: noon().Add(-time.Second),
	}
	f.status.Store(&status)
	samples := f.scrape(t)
	for name, value := range map[string]string{
		"walrelay_retention_deleted_rows_total":       "3",
		"walrelay_retention_dropped_partitions_total": "2",
		"walrelay_retention_errors_total":             "1",
		"walrelay_seconds_since_last_retention":       "1",
		"walrelay_retention_oldest_row_seconds":       "3600",
	} {
		require.Contains(t, samples, name)
		require.Equal(t, value, samples[name], name)
	}
}

// Without tracing there is nothing of spans.
func TestMetrics_Spans(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.NotContains(t, f.scrape(t), "walrelay_spans_exported_total")
	status := streaming()
	status.Spans = &Spans{Exported: 5, Failed: 3, Dropped: 2}
	f.status.Store(&status)
	samples := f.scrape(t)
	require.Equal(t, "5", samples["walrelay_spans_exported_total"])
	require.Equal(t, "3", samples[`walrelay_spans_lost_total{reason="export"}`])
	require.Equal(t, "2", samples[`walrelay_spans_lost_total{reason="queue"}`])
}

func TestMetrics_LagWaitsNoLongerThanASecond(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	limit := make(chan time.Duration, 1)
	f.cfg.Lag = func(ctx context.Context) (Lag, error) {
		deadline, ok := ctx.Deadline()
		require.True(t, ok)
		limit <- time.Until(deadline)
		<-ctx.Done()
		return Lag{}, ctx.Err()
	}
	require.NotContains(t, f.scrape(t), "walrelay_lag_seconds")
	require.LessOrEqual(t, <-limit, time.Second)
}

func TestMetrics_Lint(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Observer().Acked("orders", 100, []time.Time{noon()}, noon())
	f.Observer().Throttled("orders", time.Second)
	f.Observer().Renamed("orders")
	status := streaming()
	status.Troubles = []Trouble{{Object: "topic orders", Since: noon(), Kind: "missing", Reason: "no such topic"}}
	status.Retention, status.WALBudget = &Retention{Oldest: noon(), LastRun: noon()}, 1
	status.Spans = &Spans{}
	f.status.Store(&status)
	gatherer, err := f.gatherer(t.Context())
	require.NoError(t, err)
	families, err := gatherer.Gather()
	require.NoError(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)

	names := make(map[string]bool)
	for _, family := range families {
		names[family.GetName()] = true
		require.NotEmpty(t, family.GetHelp(), family.GetName())
	}
	for _, name := range namedInSource(t) {
		require.True(t, names[name], "%s is not linted: make it appear in the test", name)
	}
	require.True(t, names["go_goroutines"])
	require.True(t, names["process_open_fds"])
}

// namedInSource are all metrics that the package can send.
func namedInSource(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	found := make(map[string]bool)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(`"(walrelay_[a-z_]+)"`).FindAllStringSubmatch(string(source), -1) {
			found[match[1]] = true
		}
	}
	require.Greater(t, len(found), 30)
	return slices.Collect(maps.Keys(found))
}

func TestObserver_CountsByTopic(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o, now := f.Observer(), noon()
	o.Acked("a", 300, []time.Time{now.Add(-2 * time.Second), now.Add(-20 * time.Millisecond), now.Add(time.Second)}, now)
	o.Acked("a", 10, []time.Time{now}, now)
	o.Acked("b", 1, nil, now)
	o.Throttled("b", 1500*time.Millisecond)

	samples := f.scrape(t)
	for name, want := range map[string]string{
		`walrelay_published_events_total{topic="a"}`:                  "4",
		`walrelay_published_bytes_total{topic="a"}`:                   "310",
		`walrelay_published_bytes_total{topic="b"}`:                   "1",
		`walrelay_commit_to_ack_seconds_count{topic="a"}`:             "4",
		`walrelay_commit_to_ack_seconds_sum{topic="a"}`:               "2.02", // a commit ahead of the clock counts 0
		`walrelay_commit_to_ack_seconds_bucket{topic="a",le="0.001"}`: "2",
		`walrelay_commit_to_ack_seconds_bucket{topic="a",le="0.025"}`: "3",
		`walrelay_commit_to_ack_seconds_bucket{topic="a",le="60"}`:    "4",
		`walrelay_batch_records_sum{topic="a"}`:                       "4",
		`walrelay_batch_records_count{topic="a"}`:                     "2",
		`walrelay_throttle_seconds_total{topic="b"}`:                  "1.5",
	} {
		require.Equal(t, want, samples[name], name)
	}
}

func TestProbes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	code, body := f.get(t, "/readyz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "slot orders_slot, stream orders: streaming\n", body)
	code, _ = f.get(t, "/livez")
	require.Equal(t, http.StatusOK, code)

	status := streaming()
	status.State, status.Reason = Connecting, "kafka: no brokers"
	status.LastTick = noon().Add(-time.Hour)
	f.status.Store(&status)
	f.lag.Store(nil)
	code, body = f.get(t, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "slot orders_slot, stream orders: connecting: kafka: no brokers\n", body)
	code, _ = f.get(t, "/livez")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "0", f.scrape(t)["walrelay_ready"])

	code, _ = f.get(t, "/other")
	require.Equal(t, http.StatusNotFound, code)
}

func TestStatus_Document(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, body := f.get(t, "/status")
	var doc map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &doc))
	require.Equal(t, "orders", doc["stream"])
	require.Equal(t, true, doc["ready"])
	require.InDelta(t, 2, doc["seconds_behind"], 0)
	require.Equal(t, "1/100", doc["status"].(map[string]any)["confirmed_lsn"])
	require.Equal(t, "1/400", doc["lag"].(map[string]any)["current_lsn"])
	require.NotContains(t, body, "0001-01-01", "what has not happened is left out")

	f.lag.Store(nil)
	_, body = f.get(t, "/status")
	require.NoError(t, json.Unmarshal([]byte(body), &doc))
	require.Nil(t, doc["lag"])
	require.Nil(t, doc["seconds_behind"])
}

func TestServer_ServesUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx, listener) }()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	url := "http://" + listener.Addr().String() + "/readyz"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, "slot orders_slot, stream orders: streaming\n", string(body))

	cancel()
	require.NoError(t, <-done)
	_, err = client.Do(request)
	require.Error(t, err)
}

func TestServer_AddressInUse(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	f := newFixture(t)
	f.cfg.Addr = listener.Addr().String()
	require.ErrorContains(t, f.Run(t.Context()), "listen for probes and scrapes")
}

func BenchmarkObserver_Acked(b *testing.B) {
	s, err := New(Config{
		Stream: "s", Slot: "s", Logger: zap.NewNop(),
		Status: func() Status { return Status{} },
		Lag:    func(context.Context) (Lag, error) { return Lag{}, nil },
	})
	require.NoError(b, err)
	commits := make([]time.Time, 1000)
	for i := range commits {
		commits[i] = noon().Add(-time.Duration(i) * time.Millisecond)
	}
	o := s.Observer()
	b.ReportAllocs()
	for b.Loop() {
		o.Acked("orders", 1<<20, commits, noon())
	}
}

var _ prometheus.Collector = snapshot{}
