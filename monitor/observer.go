package monitor

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Observer counts what the brokers answered, by topic. The sink calls it from any goroutine, once
// for each batch; it never blocks.
type Observer struct {
	events    *prometheus.CounterVec
	bytes     *prometheus.CounterVec
	latency   *prometheus.HistogramVec
	records   *prometheus.HistogramVec
	throttled *prometheus.CounterVec
	renamed   *prometheus.CounterVec

	recent latencies // of all topics
}

func newObserver(reg prometheus.Registerer) (*Observer, error) {
	topic := []string{"topic"}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, topic)
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, topic)
	}
	o := &Observer{
		events: counter("walrelay_published_events_total", "Events that the brokers acknowledged."),
		bytes:  counter("walrelay_published_bytes_total", "Bytes, uncompressed, that the brokers acknowledged."),
		latency: histogram("walrelay_commit_to_ack_seconds",
			"Time from an event's commit to the brokers' acknowledgement, on the database server's clock.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}),
		records: histogram("walrelay_batch_records", "Records of an acknowledged batch.",
			[]float64{1, 4, 16, 64, 256, 1024, 4096, 16384}),
		throttled: counter("walrelay_throttle_seconds_total", "Time for which the brokers' quotas delayed requests."),
		renamed: counter("walrelay_renamed_events_total",
			"Events whose topic got other characters, since a topic cannot have the template's; repetitions count."),
	}
	for _, c := range []prometheus.Collector{o.events, o.bytes, o.latency, o.records, o.throttled, o.renamed} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return o, nil
}

// Acked counts an acknowledged batch: its bytes, uncompressed, the commit times of its events and the
// moment of the acknowledgement, both on the database server's clock. The slice is not kept.
func (o *Observer) Acked(topic string, bytes int, commits []time.Time, now time.Time) {
	o.events.WithLabelValues(topic).Add(float64(len(commits)))
	o.bytes.WithLabelValues(topic).Add(float64(bytes))
	o.records.WithLabelValues(topic).Observe(float64(len(commits)))
	o.throttled.WithLabelValues(topic) // so that a rate has a zero to begin with
	o.recent.add(commits, now)
	latency := o.latency.WithLabelValues(topic)
	for _, commit := range commits {
		// The offset between the clocks is only measured now and then, so the sign may be wrong.
		latency.Observe(max(0, now.Sub(commit).Seconds()))
	}
}

// Throttled counts the time by which a broker's quota delays requests for the topic.
func (o *Observer) Throttled(topic string, d time.Duration) {
	o.throttled.WithLabelValues(topic).Add(max(0, d.Seconds()))
}

// Renamed counts an event whose topic got other characters than the template gave it.
func (o *Observer) Renamed(topic string) { o.renamed.WithLabelValues(topic).Inc() }
