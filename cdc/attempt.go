package cdc

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

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
	}, func() {})
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

// ticking says that the stream is alive while work takes its time. look is called now and then meanwhile.
func (s *Stream) ticking(work func() error, look func()) error {
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
			look()
		}
	}
}

// meet reports what the server does not have of what this process has published before.
func (s *Stream) meet(server *Server) {
	s.warn(server.warnings)
	s.lag.follow(server)
	d := s.seen.meet(server)
	if d == nil {
		return
	}
	s.board.update(func(st *Status) { st.Diverged += d.events })
	s.log.Warn("events that were published are not in the database which took over: consumers have seen them, "+
		"the database has forgotten them", zap.Uint64("events", d.events), zap.Uint32("timeline", d.timeline),
		zap.Stringer("from_lsn", d.from), zap.Stringer("to_lsn", d.to), zap.Uint32("new_timeline", server.Timeline))
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
