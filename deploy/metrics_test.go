package deploy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/monitor"
)

// families are the metrics that a scrape answers with: name, label, values of that label.
type families map[string]map[string]map[string]bool

// exposition is what a monitor answers a scrape with that has seen everything once.
func exposition(t *testing.T) string {
	t.Helper()
	now := time.Now()
	server, err := monitor.New(monitor.Config{
		Stream: "orders", Slot: "orders", Version: "v1", Revision: "abc", Logger: zap.NewNop(),
		Status: func() monitor.Status {
			return monitor.Status{
				State: monitor.Streaming, LastReceived: now, LastEvent: now, LastProgress: now, LastConfirmed: now,
				Retention: &monitor.Retention{Oldest: now, LastRun: now},
				Troubles:  []monitor.Trouble{{Object: "topic orders", Since: now, Kind: "missing"}},
			}
		},
		Lag: func(context.Context) (monitor.Lag, error) {
			return monitor.Lag{WALStatus: "reserved", SafeWALBytes: new(int64), Instances: []monitor.Instance{}}, nil
		},
	})
	require.NoError(t, err)
	server.Observer().Acked("orders", 1, []time.Time{now}, now)
	server.Observer().Throttled("orders", time.Second)

	recorder := httptest.NewRecorder()
	server.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, recorder.Code)
	return recorder.Body.String()
}

// scrape takes it apart.
func scrape(t *testing.T) families {
	t.Helper()
	found := make(families)
	for line := range strings.SplitSeq(exposition(t), "\n") {
		if name, labels, ok := sample(line); ok {
			found.add(name, labels)
		}
	}
	require.Greater(t, len(found), 30)
	return found
}

var (
	selector = regexp.MustCompile(`^((?:walrelay|process|go)_\w+)(?:\{(.*)\})? `)
	matcher  = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"([^"]*)"`)
)

// sample splits a line of Prometheus text.
func sample(line string) (name, labels string, ok bool) {
	match := selector.FindStringSubmatch(line)
	if match == nil {
		return "", "", false
	}
	return match[1], match[2], true
}

func (f families) add(name, labels string) {
	if f[name] == nil {
		f[name] = make(map[string]map[string]bool)
	}
	for _, label := range matcher.FindAllStringSubmatch(labels, -1) {
		if f[name][label[1]] == nil {
			f[name][label[1]] = make(map[string]bool)
		}
		f[name][label[1]][label[2]] = true
	}
}

// closed are the labels whose values are all there in every scrape.
var closed = map[string]bool{"state": true, "status": true, "action": true, "kind": true}

// foreign are the labels that the scraper or PromQL adds.
var foreign = map[string]bool{"instance": true, "job": true, "namespace": true, "alertname": true}

func TestMetrics_Exist(t *testing.T) {
	t.Parallel()
	known := scrape(t)
	labels := make(map[string]bool)
	for _, family := range known {
		for label := range family {
			labels[label] = true
		}
	}
	for _, path := range []string{"prometheus/alerts.yaml", "prometheus/alerts_test.yaml", "grafana/walrelay.json"} {
		for _, name := range regexp.MustCompile(`\bwalrelay_\w+`).FindAllString(read(t, path), -1) {
			require.Contains(t, known, name, path)
		}
		document := parse(t, path)
		expressions := append(texts(document, "expr"), texts(document, "series")...)
		require.Greater(t, len(expressions), 10, path)
		for _, expression := range expressions {
			checkSelectors(t, known, path+": "+expression, expression)
			for _, by := range regexp.MustCompile(`(?:by|on|ignoring) \(([^)]*)\)`).FindAllStringSubmatch(expression, -1) {
				for label := range strings.SplitSeq(by[1], ",") {
					label = strings.TrimSpace(label)
					require.True(t, labels[label] || foreign[label], "%s: label %s", path, label)
				}
			}
		}
	}
}

// The panels that draw states and slot's conditions draw every one.
func TestDashboard_States(t *testing.T) {
	t.Parallel()
	expressions := strings.Join(texts(parse(t, "grafana/walrelay.json"), "expr"), "\n")
	for name, label := range map[string]string{"walrelay_state": "state", "walrelay_slot_wal_status": "status"} {
		values := scrape(t)[name][label]
		require.Greater(t, len(values), 3)
		for value := range values {
			require.Contains(t, expressions, label+`="`+value+`"`, name)
		}
	}
}

// checkSelectors checks the labels of every metric{label="value"}.
func checkSelectors(t *testing.T, known families, where, expression string) {
	t.Helper()
	for _, match := range regexp.MustCompile(`\b(walrelay_\w+)\{([^}]*)\}`).FindAllStringSubmatch(expression, -1) {
		for _, label := range matcher.FindAllStringSubmatch(match[2], -1) {
			if foreign[label[1]] {
				continue
			}
			require.Contains(t, known[match[1]], label[1], where)
			if !closed[label[1]] {
				continue
			}
			for value := range strings.SplitSeq(label[2], "|") {
				require.Contains(t, known[match[1]][label[1]], value, where)
			}
		}
	}
}
