package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

// Handler answers what the package's documentation lists. What holds data wants the token, if there is one.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", s.gate.guard(s.serveMetrics))
	mux.HandleFunc("GET /livez", s.serveLive)
	mux.HandleFunc("GET /readyz", s.serveReady)
	mux.HandleFunc("GET /status", s.gate.guard(s.serveStatus))
	mux.HandleFunc("GET /status/history", s.gate.guard(s.serveHistory))
	mux.HandleFunc("GET /status/summary", s.gate.guard(s.serveSummary))
	mux.HandleFunc("GET /{$}", s.servePage)
	return mux
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	gatherer, err := s.gatherer(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{ErrorLog: zap.NewStdLog(s.log)}).ServeHTTP(w, r)
}

// gatherer asks the stream and the server now, and joins the answers to what the process has counted.
func (s *Server) gatherer(ctx context.Context) (prometheus.Gatherer, error) {
	lag := s.askLag(ctx)
	// The status comes second: events that settled while the server was asked must not count as lag.
	status, now := s.cfg.Status(), s.cfg.Now()
	ready, _ := s.cfg.Limits.Ready(&status, now)
	scrape := prometheus.NewRegistry()
	err := prometheus.WrapRegistererWith(s.labels, scrape).Register(
		snapshot{status: &status, lag: lag, ready: ready, now: now})
	if err != nil {
		return nil, fmt.Errorf("register the scrape's metrics: %w", err)
	}
	return prometheus.Gatherers{s.registry, scrape}, nil
}

// askLag returns nil when the server does not answer in time, and counts that.
func (s *Server) askLag(ctx context.Context) *Lag {
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	lag, err := s.cfg.Lag(ctx)
	if err != nil {
		s.lagErrors.Inc()
		s.log.Debug("lag is unknown", zap.Error(err))
		s.history.heard(nil)
		return nil
	}
	s.history.heard(&lag)
	return &lag
}

func (s *Server) serveLive(w http.ResponseWriter, _ *http.Request) {
	status := s.cfg.Status()
	ok, text := s.cfg.Limits.alive(&status, s.cfg.Now())
	answer(w, ok, text)
}

// serveReady tells whoever bears no token the verdict and the state alone: a probe has no secrets, and the
// reason may name hosts, tables and event ids.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	status := s.cfg.Status()
	ok, reason := s.cfg.Limits.Ready(&status, s.cfg.Now())
	switch {
	case s.gate.admits(r):
		answer(w, ok, s.name()+": "+reason)
	case ok:
		answer(w, ok, "ready: "+string(status.State))
	default:
		answer(w, ok, "not ready: "+string(status.State))
	}
}

// name is the slot's, and the stream's where that has its own.
func (s *Server) name() string {
	if s.cfg.Stream == s.cfg.Slot {
		return "slot " + s.cfg.Slot
	}
	return "slot " + s.cfg.Slot + ", stream " + s.cfg.Stream
}

// answer writes a probe's verdict.
func answer(w http.ResponseWriter, ok bool, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = io.WriteString(w, text+"\n")
}

// report is the document of /status.
type report struct {
	Stream   string    `json:"stream"`
	Slot     string    `json:"slot"`
	Version  string    `json:"version"`
	Revision string    `json:"revision"`
	Now      time.Time `json:"now"`   // local clock
	Began    time.Time `json:"began"` // of the process
	Ready    bool      `json:"ready"`
	Verdict  string    `json:"verdict"` // why it is ready, or not
	Status   Status    `json:"status"`
	// Lag is null when the server did not answer within a second.
	Lag *Lag `json:"lag"`
	// SecondsBehind is null together with Lag, and while another instance reads the slot.
	SecondsBehind *float64 `json:"seconds_behind"`
}

// report asks the stream and the server now.
func (s *Server) report(ctx context.Context) *report {
	lag := s.askLag(ctx)
	doc := &report{
		Stream: s.cfg.Stream, Slot: s.cfg.Slot, Version: s.cfg.Version, Revision: s.cfg.Revision,
		Began: s.began, Status: s.cfg.Status(), Now: s.cfg.Now(), Lag: lag,
	}
	doc.Ready, doc.Verdict = s.cfg.Limits.Ready(&doc.Status, doc.Now)
	if lag != nil {
		doc.SecondsBehind = doc.Status.knownBehind(lag.ServerTime)
	}
	return doc
}

func (s *Server) serveStatus(w http.ResponseWriter, r *http.Request) {
	doc := s.report(r.Context())
	body, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(body, '\n'))
}
