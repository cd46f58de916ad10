package cdc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// Stream carries one slot into one sink. See the package comment for its states.
type Stream struct {
	cfg   Config
	log   *zap.Logger
	sink  Sink
	board *board
	lag   *LagReader

	seen   *witness        // handed from session to session
	warned map[string]bool // warnings that the log has already
	holder int32           // process that holds the slot, as last logged

	checked  bool     // Config.Check has passed
	presence presence // while standing by
	spent    spending
}

// New returns a stream. It does no I/O. The configuration must be valid.
func New(cfg Config, sink Sink) (*Stream, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Stream{
		cfg: cfg, log: cfg.Logger, sink: sink, board: newBoard(&cfg), seen: &witness{}, warned: map[string]bool{},
		spent: spending{unknown: map[string]bool{}},
	}
	s.lag = NewLagReader(&s.cfg)
	s.presence = presence{cfg: &s.cfg, log: s.log}
	return s, nil
}

// Status returns a snapshot. Safe for concurrent use.
func (s *Stream) Status() Status { return s.board.snapshot() }

// ClockOffset is the server's clock minus the local one, as last measured. Safe for concurrent use.
func (s *Stream) ClockOffset() time.Duration { return s.board.clockOffset() }

// Lag asks the server about the slot. Safe for concurrent use; ctx should end within a second.
func (s *Stream) Lag(ctx context.Context) (Lag, error) { return s.lag.Lag(ctx) }

// Run streams until ctx ends, and then returns nil after a drain. It tries for ever what trying can
// mend; a *FatalError is what it cannot.
func (s *Stream) Run(ctx context.Context) error {
	defer s.board.enter(StateStopped, "stopped")
	defer func() { _ = s.lag.Close(context.WithoutCancel(ctx)) }()
	if warnings, err := TLSWarnings(&s.cfg); err == nil { // else a session says what is wrong
		s.warn(warnings)
	}
	defer s.presence.hide(ctx)
	for attempt := 0; ; {
		began := time.Now()
		streamed, err := s.session(ctx)
		var paused *pausedError
		var changed *checkpoint.PartitionsChangedError
		var behind *checkpoint.EpochBehindError
		switch {
		case ctx.Err() != nil && (err == nil || !Fatal(err)):
			if err != nil && streamed {
				s.log.Warn("stopped without a last confirmation: what was in flight will be delivered again", zap.Error(err))
			}
			return nil
		case Fatal(err):
			s.board.fail(kindOf(err), err)
			return err
		case errors.Is(err, errReleased), errors.Is(err, errResumed), errors.As(err, &paused), errors.As(err, &changed):
			attempt = 0
			continue
		case errors.As(err, &behind): // the epoch is above it now
			continue
		}
		if streamed && time.Since(began) > s.cfg.BackoffMax {
			attempt = 0
		}
		if !s.holdOff(ctx, err, attempt) {
			return nil
		}
		attempt++
	}
}

// holdOff reports why the stream does not stream, and waits before the next attempt.
func (s *Stream) holdOff(ctx context.Context, err error, attempt int) bool {
	// The slot is the lock. Look often, so that a takeover takes seconds.
	wait := time.Second/2 + rand.N(time.Second/2)
	active, ok := errors.AsType[*SlotActiveError](err)
	switch {
	case ok:
		reason := fmt.Sprintf("server process %d holds slot %s; waiting for it", active.PID, s.cfg.Slot)
		if s.board.enter(StateStandby, reason) || s.holder != active.PID {
			s.log.Info("standing by: another session holds the slot", zap.Int32("pid", active.PID))
		}
		s.holder = active.PID
		s.serve(s.presence.show(ctx))
	case errors.Is(err, ErrBackfillElsewhere):
		if s.board.enter(StateStandby, ErrBackfillElsewhere.Error()) {
			s.log.Info("standing by: " + ErrBackfillElsewhere.Error())
		}
		s.serve(s.presence.show(ctx))
	default:
		wait = backoff(&s.cfg, attempt)
		s.presence.hide(ctx)
		s.serve(0)
		s.board.fail(kindOf(err), err)
		s.board.enter(StateConnecting, err.Error())
		s.log.Warn("stream interrupted, trying again",
			zap.Error(err), zap.Int("attempt", attempt+1), zap.Duration("in", wait))
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// serve notes the server's process that serves this instance.
func (s *Stream) serve(pid int32) { s.board.update(func(st *Status) { st.Backend = pid }) }

// backoff is the pause after the attempt: doubling from BackoffMin to BackoffMax, the upper half random.
func backoff(cfg *Config, attempt int) time.Duration {
	d := cfg.BackoffMax
	if attempt < 16 {
		d = min(d, cfg.BackoffMin<<attempt)
	}
	return d/2 + rand.N(d/2+1)
}

// kindOf labels an error for the metrics.
func kindOf(err error) string {
	var decode *decoder.Error
	switch {
	case errors.As(err, &decode):
		return "decode"
	case errors.Is(err, errSink):
		return "kafka"
	default:
		return "postgres"
	}
}

func (s *Stream) warn(warnings []string) {
	for _, w := range warnings {
		if !s.warned[w] {
			s.warned[w] = true
			s.log.Warn(w)
		}
	}
}
