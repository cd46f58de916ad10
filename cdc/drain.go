package cdc

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/checkpoint"
)

// drain ends a session in good order: what is in flight gets its time, the last position is
// recorded and confirmed, and the server is told that we are done. ctx has ended.
func (s *session) drain(ctx context.Context) error {
	s.waiting.Store(false)
	s.board.enter(StateDraining, "stopping: waiting for acknowledgements")
	s.stopping(ctx) // sets giveUp, if a failed read came before it
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), s.giveUp)
	defer cancel()
	s.sink.Flush()
	timer := time.NewTimer(s.interval)
	defer timer.Stop()
	for s.stuck == nil && s.mail.Err == nil && (s.unsettled() > 0 || s.settled() < s.committed) {
		select {
		case <-s.mailbox.Wake():
		case <-s.nudged:
		case <-timer.C:
			if err := s.status(time.Now()); err != nil {
				return err
			}
			timer.Reset(s.interval)
		case <-s.guard.down:
			return s.guard.failed()
		case <-ctx.Done():
			s.log.Warn("stopped before everything was acknowledged: it will be delivered again",
				zap.Int("events", s.unsettled()))
			return s.farewell(ctx)
		}
	}
	return s.farewell(ctx)
}

// unsettled takes the mail and counts what is left. Errors of the run end the wait, nothing more.
func (s *session) unsettled() int {
	if err := s.settle(); err != nil {
		s.mail.Err = err
	}
	if len(s.mail.Partitions) > 0 {
		s.guard.record(nil, s.mail.Partitions)
	}
	for _, p := range s.mail.Poison {
		if p.Action == checkpoint.Stopped {
			s.stuck = &p
		} else {
			s.guard.record([]checkpoint.Poison{p}, nil)
		}
	}
	s.adopt()
	events, _ := s.tracker.InFlight()
	return events
}

// farewell records and confirms what is settled and ends the stream, so that a restart repeats nothing.
func (s *session) farewell(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTimeout)
	defer cancel()
	if err := s.guard.failed(); err != nil { // and may have lost what it was handed to record
		return fmt.Errorf("record the last position: %w", err)
	}
	s.guard.report(s.settled(), s.committed, s.confirmed, s.settledAt())
	if err := s.guard.round(ctx, true); err != nil {
		return fmt.Errorf("record the last position: %w", err)
	}
	now := time.Now()
	if err := s.status(now); err != nil {
		return err
	}
	s.publish()
	s.log.Info("last position confirmed", zap.Stringer("confirmed_lsn", s.confirmed))
	return s.endCopy(ctx)
}

const farewellTimeout = 5 * time.Second

// endCopy sends CopyDone and reads until the server has ended the command, which proves that it has
// taken the last status in. Data that still arrives belongs to the next session.
func (s *session) endCopy(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	if err := s.conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("end stream: %w", err)
	}
	frontend := s.server.Repl.Frontend()
	frontend.Send(&pgproto3.CopyDone{})
	if err := frontend.Flush(); err != nil {
		return fmt.Errorf("end stream: %w", err)
	}
	for {
		msg, err := frontend.Receive()
		if err != nil {
			return fmt.Errorf("end stream: %w", err)
		}
		if _, ok := msg.(*pgproto3.ReadyForQuery); ok {
			return nil
		}
	}
}
