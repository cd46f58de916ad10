package monitor

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// snapshot turns one status and, if the server answered, one lag into metrics. It lives for one
// scrape, so no value can outlive its time.
type snapshot struct {
	status *Status
	lag    *Lag // nil: the server did not answer, and its gauges are absent
	ready  bool
	now    time.Time
}

// Describe sends nothing: the collector is unchecked, since its metrics come and go.
func (snapshot) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s snapshot) Collect(ch chan<- prometheus.Metric) {
	m := metrics(ch)
	s.collectStream(m)
	s.collectTotals(m)
	s.collectRetention(m)
	s.collectSpans(m)
	if s.lag != nil {
		s.collectLag(m)
	}
}

func (s snapshot) collectStream(m metrics) {
	st := s.status
	// Every state is always there, so that an alert has something to begin with.
	states := []State{Connecting, Standby, Streaming, Backfilling, Paused, Stuck, Draining, Stopped}
	if !slices.Contains(states, st.State) {
		states = append(states, st.State)
	}
	for _, state := range states {
		m.gauge("walrelay_state", "1 for the state that the stream is in.", boolean(state == st.State),
			"state", string(state))
	}
	m.gauge("walrelay_ready", "1 when /readyz answers 200.", boolean(s.ready))
	m.gauge("walrelay_epoch", "Epoch of the stream's positions.", float64(st.Epoch))
	m.gauge("walrelay_received_lsn", "Highest log position that the server has sent, in bytes.", float64(st.Received))
	m.gauge("walrelay_frontier_lsn", "Log position before which everything is settled, in bytes.", float64(st.Frontier))
	m.gauge("walrelay_confirmed_lsn", "Log position last reported to the server as flushed, in bytes.",
		float64(st.Confirmed))
	m.gauge("walrelay_in_flight_events", "Events read but not yet acknowledged.", float64(st.InFlightEvents))
	m.gauge("walrelay_in_flight_bytes", "Bytes of events read but not yet acknowledged.", float64(st.InFlightBytes))
	m.age("walrelay_seconds_since_last_received", "Time since the last byte from the server.", s.now, st.LastReceived)
	m.age("walrelay_seconds_since_last_event", "Time since the last event was read.", s.now, st.LastEvent)
	m.age("walrelay_seconds_since_last_progress",
		"Time since the oldest event in flight was last settled, or nothing was in flight.", s.now, st.LastProgress)
	m.age("walrelay_seconds_since_last_confirmed",
		"Time since the confirmed position last moved, or had nothing to move to.", s.now, st.LastConfirmed)
	m.gauge("walrelay_clock_offset_seconds", "The server's clock minus the local one, as last measured.",
		st.ClockOffset.Seconds())
	if st.WALBudget > 0 {
		m.gauge("walrelay_wal_budget_bytes", "Write-ahead log that the server may keep for the slot.", float64(st.WALBudget))
		m.gauge("walrelay_wal_budget_exceeded", "1 while the server keeps more.", boolean(st.OverBudget))
	}
	s.collectTroubles(m)
}

// collectTroubles names the oldest troubles and counts all of them.
func (s snapshot) collectTroubles(m metrics) {
	troubles := s.status.Troubles
	m.gauge("walrelay_troubles", "Topics and brokers that hold delivery up at present.", float64(len(troubles)))
	for _, t := range troubles[:min(len(troubles), shownTroubles)] {
		m.gauge("walrelay_trouble_seconds",
			"How long the topic or broker has held delivery up; absent otherwise, and for all but the oldest 20.",
			max(0, s.now.Sub(t.Since).Seconds()), "object", t.Object, "error", t.Kind)
	}
}

func (s snapshot) collectTotals(m metrics) {
	st := s.status
	m.counter("walrelay_events_total", "Events read from the log.", st.Events)
	m.counter("walrelay_transactions_total", "Transactions read from the log.", st.Transactions)
	m.counter("walrelay_reconnects_total", "Connections to the server after the first.", st.Reconnects)
	m.counter("walrelay_diverged_events_total",
		"Events that were published, and are not in the database that took over.", st.Diverged)
	m.counters("walrelay_ignored_changes_total", "Changes read that are not events.", "kind", st.Ignored,
		"update", "delete", "truncate", "message", "insert", "stray-message")
	m.counters("walrelay_poison_events_total", "Events that could not be delivered, by what was done.",
		"action", st.Poison, "stopped", "dead-lettered", "skipped", "unfit")
	m.counters("walrelay_errors_total", "Errors after which the stream tried again.", "kind", st.Errors,
		"postgres", "kafka", "decode")
}

// collectRetention sends nothing while retention is off.
func (s snapshot) collectRetention(m metrics) {
	r := s.status.Retention
	if r == nil {
		return
	}
	m.counter("walrelay_retention_deleted_rows_total", "Rows that retention deleted.", r.Rows)
	m.counter("walrelay_retention_dropped_partitions_total", "Partitions that retention dropped.", r.Partitions)
	m.counter("walrelay_retention_errors_total", "Errors after which retention tried again.", r.Errors)
	m.age("walrelay_seconds_since_last_retention", "Time since retention had last gone through all tables.",
		s.now, r.LastRun)
	m.age("walrelay_retention_oldest_row_seconds",
		"Age of the oldest row; absent when no index on the column tells it, or there is none.",
		s.now.Add(s.status.ClockOffset), r.Oldest)
}

// collectSpans sends nothing without tracing.
func (s snapshot) collectSpans(m metrics) {
	spans := s.status.Spans
	if spans == nil {
		return
	}
	m.counter("walrelay_spans_exported_total", "Spans that the collector took.", spans.Exported)
	m.counters("walrelay_spans_lost_total",
		"Spans that were lost: the export failed, or the queue was full since it was too slow.",
		"reason", map[string]uint64{"export": spans.Failed, "queue": spans.Dropped})
}

func (s snapshot) collectLag(m metrics) {
	lag := s.lag
	m.gauge("walrelay_lag_confirmed_bytes", "Write-ahead log not yet confirmed.", float64(lag.ConfirmedBytes))
	m.gauge("walrelay_lag_retained_bytes", "Write-ahead log that the server keeps for the slot.",
		float64(lag.RetainedBytes))
	m.gauge("walrelay_lag_seconds",
		"Age of the oldest undelivered transaction on the server's clock; 0 when there is none.",
		s.status.SecondsBehind(lag.ServerTime))
	m.gauge("walrelay_slot_active", "1 while a session reads the slot.", boolean(lag.Active))
	if lag.Shows() {
		m.gauge("walrelay_slot_standbys",
			"Instances that wait for the slot; absent when the role may not see the server's activity.", float64(lag.Standbys()))
	}
	statuses := []string{"reserved", "extended", "unreserved", "lost"}
	if !slices.Contains(statuses, lag.WALStatus) {
		statuses = append(statuses, lag.WALStatus)
	}
	for _, status := range statuses {
		m.gauge("walrelay_slot_wal_status", "1 for the slot's wal_status.", boolean(status == lag.WALStatus),
			"status", status)
	}
	if lag.SafeWALBytes != nil {
		m.gauge("walrelay_slot_safe_wal_bytes",
			"Write-ahead log that may still be written before the slot is lost; absent without a limit.",
			float64(*lag.SafeWALBytes))
	}
	m.gauge("walrelay_slot_catalog_xmin_age", "Age of the slot's catalog_xmin, in transactions.",
		float64(lag.CatalogXminAge))
}

// metrics sends constant metrics of one scrape.
type metrics chan<- prometheus.Metric

// send takes labels as name, value, name, value.
func (m metrics) send(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	desc := prometheus.NewDesc(name, help, names, nil)
	metric, err := prometheus.NewConstMetric(desc, kind, value, values...)
	if err != nil {
		metric = prometheus.NewInvalidMetric(desc, err)
	}
	m <- metric
}

func (m metrics) gauge(name, help string, value float64, labels ...string) {
	m.send(prometheus.GaugeValue, name, help, value, labels...)
}

func (m metrics) counter(name, help string, value uint64, labels ...string) {
	m.send(prometheus.CounterValue, name, help, float64(value), labels...)
}

// counters sends one counter for each key. Some are always there, so that a rate has a zero to begin with.
func (m metrics) counters(name, help, label string, values map[string]uint64, always ...string) {
	for _, key := range always {
		m.counter(name, help, values[key], label, key)
	}
	for key, value := range values {
		if !slices.Contains(always, key) {
			m.counter(name, help, value, label, key)
		}
	}
}

// age is absent when nothing happened yet.
func (m metrics) age(name, help string, now, then time.Time) {
	if !then.IsZero() {
		m.gauge(name, help, max(0, now.Sub(then).Seconds()))
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
