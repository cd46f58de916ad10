package monitor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
)

// lagTimeout limits how long a scrape waits for the database.
const lagTimeout = time.Second

// closeTimeout limits the wait for requests in progress when the server closes.
const closeTimeout = 2 * time.Second

// Config says what a Server shows. All fields are required but Token and Now.
type Config struct {
	// Addr is what to listen on, host:port.
	Addr string
	// Token returns what requests for data must bear. It is asked at each, from any goroutine, so that one that was
	// changed is taken up; while it fails nobody is let in. Optional: without it everything is open.
	Token func() (string, error)

	Stream, Slot      string
	Version, Revision string

	// Status returns a snapshot of the stream. It never waits for the network and may be called from
	// any goroutine.
	Status func() Status
	// Lag asks the server. It may be called from several goroutines and returns when ctx ends.
	Lag func(ctx context.Context) (Lag, error)

	Limits Limits
	Logger *zap.Logger
	// Now is the local clock. Default: time.Now.
	Now func() time.Time
}

// Server answers scrapes and probes.
type Server struct {
	cfg       Config
	log       *zap.Logger
	gate      gate
	registry  *prometheus.Registry // what lives as long as the process
	labels    prometheus.Labels
	observer  *Observer
	lagErrors prometheus.Counter
	page      *page

	began    time.Time     // local clock
	interval time.Duration // between two samples of the history
	history  history
}

// New registers the metrics. It does no I/O.
func New(cfg Config) (*Server, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, gate: gate{token: cfg.Token, log: cfg.Logger}, registry: prometheus.NewRegistry(),
		labels: prometheus.Labels{"stream": cfg.Stream, "slot": cfg.Slot},
		lagErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "walrelay_lag_scrape_errors_total", Help: "Scrapes for which the server did not tell the slot's lag.",
		}),
	}
	s.began, s.interval = cfg.Now(), sampleInterval
	s.history.at = s.began
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "walrelay_build_info", Help: "1, labelled with what is running.",
		ConstLabels: prometheus.Labels{"version": cfg.Version, "revision": cfg.Revision},
	})
	build.Set(1)
	own := prometheus.WrapRegistererWith(s.labels, s.registry)
	err := errors.Join(
		own.Register(build),
		own.Register(s.lagErrors),
		s.registry.Register(collectors.NewGoCollector()),
		s.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if s.observer, err = newObserver(own); err != nil {
		return nil, err
	}
	s.page, err = newPage()
	return s, err
}

// Observer is what the sink reports to.
func (s *Server) Observer() *Observer { return s.observer }

// Run listens and answers until ctx ends. It returns nil then, after the requests in progress.
func (s *Server) Run(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", s.cfg.Addr)
	if err != nil {
		return fmt.Errorf("listen for probes and scrapes: %w; set WALRELAY_ADMIN_ADDR to an address that is free", err)
	}
	return s.Serve(ctx, listener)
}

// Serve is Run on a listener, which it closes.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      15 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          zap.NewStdLog(s.log),
	}
	s.log.Info("admin server listens", zap.Stringer("address", listener.Addr()))

	var sampling sync.WaitGroup
	defer sampling.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sampling.Go(func() { s.keepHistory(ctx) })

	served := make(chan error, 1) // one result, so that the goroutine ends whoever reads
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve probes and scrapes: %w", err)
	case <-ctx.Done():
	}
	closing, end := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer end()
	if err := server.Shutdown(closing); err != nil {
		_ = server.Close() // a client that does not read must not keep the process
	}
	<-served //nolint:errcheck // http.ErrServerClosed
	return nil
}
