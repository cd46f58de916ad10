package cdc

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/checkpoint"
)

// prepareRun collects what the sink has to know. A verdict to try again is used up by trying.
func (s *Stream) prepareRun(ctx context.Context, server *Server, reg *Registration) (checkpoint.Run, error) {
	run := checkpoint.Run{Mailbox: checkpoint.NewMailbox(), Partitions: reg.Partitions, Line: s.line(server, reg)}
	var err error
	if run.Verdicts, err = server.Registry().Releases(ctx); err != nil {
		return run, err
	}
	if s.cfg.FollowKey {
		if run.DeadKeys, err = server.Registry().DeadKeys(ctx); err != nil {
			return run, err
		}
	}
	for position, verdict := range run.Verdicts {
		if verdict == checkpoint.VerdictRetry {
			if err := server.Registry().ConsumeRelease(ctx, position); err != nil {
				return run, err
			}
		}
	}
	return run, nil
}

// line is what a state in Kafka has to agree with.
func (s *Stream) line(server *Server, reg *Registration) checkpoint.Line {
	return checkpoint.Line{
		Epoch: reg.Epoch, Origin: reg.Origin, SystemID: server.SystemID, Slot: s.cfg.Slot, Routing: s.cfg.Routing,
		Timeline: server.Timeline, Confirmed: max(reg.Slot.ConfirmedFlush, reg.Confirmed),
		Left: func(timeline uint32) (pglogrepl.LSN, bool) {
			if timeline == server.Timeline {
				return reg.Written, true
			}
			return server.Timelines().Left(timeline)
		},
	}
}

// begin starts the sink's run. That may take as long as the brokers are away, so it is done beside
// the status reports, which keep the slot ours.
func (s *session) begin(ctx context.Context, run checkpoint.Run) error {
	s.board.enter(StateConnecting, "reaching the brokers")
	for attempt := 0; ; attempt++ {
		beginErr, err := s.beside(ctx, func(ctx context.Context) error { return s.sink.Begin(ctx, run) })
		if err != nil {
			return err
		}
		if beginErr == nil {
			return s.recordOrigin(ctx, run.Line)
		}
		if state, ok := errors.AsType[*checkpoint.StateError](beginErr); ok {
			return &FatalError{Object: quoted("stream", s.cfg.Stream), Problem: state.Problem, Remedy: state.Remedy}
		}
		if behind, ok := errors.AsType[*checkpoint.EpochBehindError](beginErr); ok {
			return behind
		}
		s.board.fail("kafka", beginErr)
		s.board.enter(StateConnecting, "start producing: "+beginErr.Error())
		s.log.Warn("cannot start producing, trying again", zap.Error(beginErr), zap.Int("attempt", attempt+1))
		pause := backoff(s.cfg, attempt)
		again := time.Now().Add(pause)
		nudge := time.AfterFunc(pause, s.nudge)
		err = s.wait(ctx, func() bool { return !time.Now().Before(again) })
		nudge.Stop()
		if err != nil {
			return err
		}
	}
}

// recordOrigin writes down that a line of states has begun, before anything is published on it: a
// later start then knows that there must be a state.
func (s *session) recordOrigin(ctx context.Context, line checkpoint.Line) error {
	if s.cfg.Delivery != ExactlyOnce || line.Origin != 0 {
		return nil
	}
	return s.consult(ctx, func(ctx context.Context) error {
		return s.guard.use(ctx, func(ctx context.Context) error {
			return s.guard.registry.recordOrigin(ctx, line.Epoch)
		})
	})
}
