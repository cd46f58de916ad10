package cdc

import (
	"context"
	"time"
)

// wait attends to everything but reading until done, or until something ends the session.
func (s *session) wait(ctx context.Context, done func() bool) error {
	timer := time.NewTimer(s.interval)
	defer timer.Stop()
	defer func() { s.listening = time.Now() }()
	ended := ctx.Done()
	for {
		if err := s.attend(ctx); err != nil {
			return err
		}
		if done() {
			return nil
		}
		if ctx.Err() != nil {
			ended = nil // it is known
		}
		timer.Reset(max(time.Until(s.lastStatus.Add(s.interval)), time.Millisecond))
		select {
		case <-ended:
		case <-s.guard.down:
		case <-s.nudged:
		case <-timer.C:
		}
	}
}

// waitForRoom lets acknowledgements make room, while status reports go on.
func (s *session) waitForRoom(ctx context.Context) error {
	s.flush()
	return s.wait(ctx, func() bool {
		if s.tracker.Full() {
			s.sink.Full() // again whenever something was settled, and was not enough
			return false
		}
		return true
	})
}

// nudge has a wait look again. Safe for concurrent use.
func (s *session) nudge() {
	select {
	case s.nudged <- struct{}{}:
	default:
	}
}

// watch passes the mailbox's wake on and interrupts an idle read, so that outcomes, the guard's
// failure and the wish to stop are noticed at once and not at the next status.
func (s *session) watch(ctx context.Context, stop <-chan struct{}) {
	down := s.guard.down
	for {
		select {
		case <-ctx.Done():
			return
		case <-stop:
			stop = nil
		case <-down:
			down = nil
		case <-s.mailbox.Wake():
		}
		s.nudge()
		if s.waiting.Load() {
			_ = s.conn.SetReadDeadline(time.Unix(1, 0))
		}
	}
}

// consult is beside for work without which the session cannot go on.
func (s *session) consult(ctx context.Context, work func(context.Context) error) error {
	workErr, err := s.beside(ctx, work)
	if err != nil {
		return err
	}
	return workErr
}

// beside works while the server is kept informed, until that ends the session, by its second result.
func (s *session) beside(ctx context.Context, work func(context.Context) error) (workErr, err error) {
	done := make(chan error, 1)
	working, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a transaction that has begun is read to its end
	defer cancel()
	go func() {
		done <- work(working)
		s.nudge()
	}()
	err = s.wait(ctx, func() bool {
		select {
		case workErr = <-done:
			return true
		default:
			return false
		}
	})
	if err != nil {
		cancel()
		<-done //nolint:errcheck // it returns soon after its context has ended; err says why
	}
	return workErr, err
}
