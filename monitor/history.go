package monitor

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// The history covers half an hour in some 70 kB.
const (
	sampleInterval = 5 * time.Second
	maxSamples     = 360
)

// sample is one point of the history. What this process knows by itself is always in it. What only the
// database can tell is in it if a scrape or a reader of the status has asked since the sample before: a
// server that nobody looks at asks nothing.
type sample struct {
	Number int64     `json:"n"` // counts from 1 while the process lives
	At     time.Time `json:"at"`
	State  State     `json:"state"`
	Ready  bool      `json:"ready"`

	EventsPerSecond       float64 `json:"events_per_second"` // read from the log
	AcknowledgedPerSecond float64 `json:"acknowledged_per_second"`
	// Commit to acknowledgement of what was acknowledged since the sample before; null: nothing was.
	P50Seconds *float64 `json:"p50_seconds"`
	P99Seconds *float64 `json:"p99_seconds"`

	InFlightEvents int `json:"in_flight_events"`
	// SecondsBehind is by the clock offset last measured; null while another instance has the slot.
	SecondsBehind *float64 `json:"seconds_behind"`

	ConfirmedBytes *int64 `json:"confirmed_bytes"`
	RetainedBytes  *int64 `json:"retained_bytes"`
	// Silent says that the database was asked and did not answer: nothing may be drawn across it.
	Silent bool `json:"silent,omitempty"`
}

// history keeps the samples, and what the database answered since the last of them. Safe for concurrent use.
type history struct {
	mu      sync.Mutex
	samples []sample
	last    int64  // number of the newest
	events  uint64 // that the stream had read by then
	at      time.Time

	lag    *Lag
	silent bool
}

// heard notes the database's answer; nil is none.
func (h *history) heard(lag *Lag) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lag, h.silent = lag, lag == nil
}

// add completes the sample and keeps it in place of the oldest. acked is what was acknowledged since the last.
func (h *history) add(s sample, events, acked uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	s.Number = h.last
	if passed := s.At.Sub(h.at).Seconds(); passed > 0 && events >= h.events {
		s.EventsPerSecond, s.AcknowledgedPerSecond = float64(events-h.events)/passed, float64(acked)/passed
	}
	h.events, h.at = events, s.At
	if h.lag != nil {
		s.ConfirmedBytes, s.RetainedBytes = new(h.lag.ConfirmedBytes), new(h.lag.RetainedBytes)
	}
	s.Silent = h.silent
	h.lag, h.silent = nil, false
	if len(h.samples) == maxSamples {
		h.samples = slices.Delete(h.samples, 0, 1)
	}
	h.samples = append(h.samples, s)
}

// after returns the samples with higher numbers; an empty list is no nil, which would be null in JSON.
func (h *history) after(number int64) []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := int64(len(h.samples))
	newer := min(max(h.last-number, 0), kept)
	return append([]sample{}, h.samples[kept-newer:]...)
}

// newest is the last sample, nil before the first.
func (h *history) newest() *sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.samples) == 0 {
		return nil
	}
	return new(h.samples[len(h.samples)-1])
}

// sample takes one.
func (s *Server) sample() {
	status, now := s.cfg.Status(), s.cfg.Now()
	ready, _ := s.cfg.Limits.Ready(&status, now)
	acked, p50, p99 := s.observer.recent.take()
	s.history.add(sample{
		At: now, State: status.State, Ready: ready, P50Seconds: p50, P99Seconds: p99,
		InFlightEvents: status.InFlightEvents, SecondsBehind: status.knownBehind(now.Add(status.ClockOffset)),
	}, status.Events, acked)
}

// keepHistory samples until ctx ends.
func (s *Server) keepHistory(ctx context.Context) {
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.sample()
		case <-ctx.Done():
			return
		}
	}
}

// chronicle is the document of /status/history.
type chronicle struct {
	Began           time.Time `json:"began"` // of the process: numbers start again with another one
	IntervalSeconds float64   `json:"interval_seconds"`
	Samples         []sample  `json:"samples"`
}

// serveHistory answers with the samples after the number ?after=, or all.
func (s *Server) serveHistory(w http.ResponseWriter, r *http.Request) {
	var after int64
	if text := r.URL.Query().Get("after"); text != "" {
		var err error
		if after, err = strconv.ParseInt(text, 10, 64); err != nil {
			http.Error(w, "after must be the number of a sample", http.StatusBadRequest)
			return
		}
	}
	body, err := json.Marshal(chronicle{s.began, s.interval.Seconds(), s.history.after(max(after, 0))})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body)
}
