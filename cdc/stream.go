package cdc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
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
	if warnings, err := TLSWarnings(s.cfg.ConnString); err == nil { // else a session says what is wrong
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

// session connects, checks, acquires the slot and streams. It reports whether it came to streaming.
func (s *Stream) session(ctx context.Context) (streamed bool, err error) {
	server, err := dialNewer(ctx, &s.cfg, s.seen)
	if err != nil {
		return false, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		server.Close(closing)
	}()
	s.meet(server)
	warnings, err := server.Preflight(ctx)
	if err != nil {
		return false, err
	}
	s.warn(warnings)
	if s.cfg.Check != nil && !s.checked {
		if err := s.cfg.Check(ctx, server.SQL); err != nil {
			return false, err
		}
		s.checked = true
	}
	if err := s.awaitResume(ctx, server); err != nil {
		return false, err
	}
	var found *Registration
	err = s.ticking(func() error { // a new slot waits for every transaction that is open
		var err error
		found, err = server.Register(ctx)
		return err
	})
	if err != nil {
		return false, err
	}
	if err := s.backfill(ctx, server); err != nil {
		return false, err
	}
	if err := server.StartReplication(ctx, found.Confirmed); err != nil {
		return false, err
	}
	s.presence.hide(ctx)
	s.serve(int32(server.Repl.PID()))
	reg, err := server.Claim(ctx)
	if err != nil {
		return false, err
	}
	s.warn(reg.Warnings)
	if err := s.keepEpoch(ctx, server, reg); err != nil {
		return false, err
	}
	run, err := s.prepareRun(ctx, server, reg)
	if err != nil {
		return false, err
	}
	return s.stream(ctx, server, max(reg.Slot.ConfirmedFlush, found.Confirmed), reg, run)
}

// ticking says that the stream is alive while work takes its time.
func (s *Stream) ticking(work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	ticker := time.NewTicker(s.cfg.StatusInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			return err
		case now := <-ticker.C:
			s.board.update(func(st *Status) { st.LastTick = now })
		}
	}
}

// meet reports what the server does not have of what this process has published before.
func (s *Stream) meet(server *Server) {
	s.warn(server.warnings)
	d := s.seen.meet(server)
	if d == nil {
		return
	}
	s.board.update(func(st *Status) { st.Diverged += d.events })
	s.log.Warn("events that were published are not in the database which took over: consumers have seen them, "+
		"the database has forgotten them", zap.Uint64("events", d.events), zap.Uint32("timeline", d.timeline),
		zap.Stringer("from_lsn", d.from), zap.Stringer("to_lsn", d.to), zap.Uint32("new_timeline", server.Timeline))
}

// keepEpoch raises the epoch where the server's registry has one under which the positions to come would
// lie behind published ones.
func (s *Stream) keepEpoch(ctx context.Context, server *Server, reg *Registration) (err error) {
	if reg.Epoch >= s.seen.epoch {
		return nil
	}
	if reg.Epoch, err = server.Registry().keepEpoch(ctx, s.seen.epoch); err != nil {
		return err
	}
	s.log.Info("epoch raised: the database went back behind published positions",
		zap.Uint32("epoch", reg.Epoch))
	return nil
}

// stream runs a session, which begins at start, with its guard beside it.
func (s *Stream) stream(
	ctx context.Context, server *Server, start pglogrepl.LSN, reg *Registration, run checkpoint.Run,
) (bool, error) {
	streaming, halt := context.WithCancelCause(ctx) // ends with ctx, or when the stream is paused
	defer halt(nil)
	// Guard and watch outlive ctx, since a drain needs them.
	beside, cancel := context.WithCancel(context.WithoutCancel(ctx))
	guard := newGuard(server, reg.Publication, start, reg.Confirmed, run, halt)
	guard.board, guard.spent = s.board, &s.spent
	sess := &session{
		cfg: &s.cfg, log: s.log, server: server, conn: server.Repl.Conn(), sink: s.sink, board: s.board, guard: guard,
		seen: s.seen, epoch: reg.Epoch,
		warn: s.warn,
		decoder: decoder.New(decoder.Config{
			Mappings: s.cfg.Mappings, Messages: s.cfg.Messages, Epoch: reg.Epoch, Timeline: server.Timelines().At,
		}),
		tracker: checkpoint.NewTracker(start, s.cfg.Window), mailbox: run.Mailbox, nudged: make(chan struct{}, 1),
		received: start, confirmed: start, reached: start,
		lastStatus: time.Now(), interval: server.StatusInterval(),
	}
	if s.cfg.MarkTransactions {
		sess.held = new(holdback)
	}
	server.Repl.Frontend().SetMaxBodyLen(s.cfg.MaxMessageBytes)

	var group sync.WaitGroup
	group.Go(func() { guard.run(beside) })
	group.Go(func() { sess.watch(beside, streaming.Done()) })
	err := sess.begin(streaming, run)
	if err == nil {
		s.board.update(func(st *Status) {
			st.SystemID, st.Epoch, st.Timeline = server.SystemID, reg.Epoch, server.Timeline
		})
		s.board.begin(server)
		s.board.enter(StateStreaming, "")
		s.log.Info("streaming", zap.Stringer("confirmed_lsn", start),
			zap.Uint32("epoch", reg.Epoch), zap.Uint32("timeline", server.Timeline), zap.Int("server_version", server.Version))
		err = sess.run(streaming)
	}
	changed, repartitioned := errors.AsType[*checkpoint.PartitionsChangedError](err)
	behind, lived := errors.AsType[*checkpoint.EpochBehindError](err)
	if repartitioned || lived {
		_ = guard.rest(ctx) // if ctx has ended, raising the epoch says so
	}
	s.board.end()
	cancel()
	group.Wait()
	s.board.update(func(st *Status) { st.Reconnects++ })

	switch {
	case repartitioned:
		return true, s.adoptPartitions(ctx, server, changed)
	case lived:
		return true, s.raiseEpochAbove(ctx, server, behind)
	}
	if over, ok := errors.AsType[*overBudgetError](err); ok {
		return true, s.giveUp(ctx, server, over)
	}
	paused, ok := errors.AsType[*pausedError](context.Cause(streaming))
	if ok && ctx.Err() == nil && (err == nil || errors.Is(err, paused)) {
		return true, paused
	}
	return true, err
}

// adoptPartitions starts a new epoch for a topic that has another number of partitions now. The
// session has drained, so nothing is in flight under the old one.
func (s *Stream) adoptPartitions(
	ctx context.Context, server *Server, changed *checkpoint.PartitionsChangedError,
) error {
	epoch, err := server.Registry().RaiseEpoch(ctx, map[string]int32{changed.Topic: changed.Count})
	if err != nil {
		return err
	}
	s.log.Info("epoch raised: a topic has another number of partitions", zap.String("topic", changed.Topic),
		zap.Int32("recorded", changed.Recorded), zap.Int32("partitions", changed.Count), zap.Uint32("epoch", epoch))
	return changed
}

// raiseEpochAbove starts an epoch that consumers have not seen yet.
func (s *Stream) raiseEpochAbove(ctx context.Context, server *Server, behind *checkpoint.EpochBehindError) error {
	epoch, err := server.Registry().raiseEpochAbove(ctx, behind.Found)
	if err != nil {
		return err
	}
	s.log.Info("epoch raised: an earlier life of the stream wrote a state",
		zap.Uint32("found", behind.Found), zap.Uint32("epoch", epoch))
	return behind
}

func (s *Stream) warn(warnings []string) {
	for _, w := range warnings {
		if !s.warned[w] {
			s.warned[w] = true
			s.log.Warn(w)
		}
	}
}
