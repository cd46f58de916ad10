package cdc

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/checkpoint"
)

// settle takes the mail and settles what is acknowledged or, of poison, written down.
func (s *session) settle() error {
	s.mailbox.Take(&s.mail)
	s.reached = max(s.reached, s.mail.Reached)
	before := s.tracker.Settled()
	for _, seqs := range [][]uint64{s.mail.Settled, s.mail.Recorded} {
		if err := s.tracker.Settle(seqs); err != nil {
			return fmt.Errorf("settle: %w", err)
		}
	}
	s.counters.settled += s.tracker.Settled() - before
	if len(s.mail.Recorded) > 0 {
		s.sink.Recorded(s.mail.Recorded)
	}
	return nil
}

// settled is how far the log may be confirmed. In exactly-once delivery that also needs a state in
// Kafka: without one, the events before it would be published again after a crash.
func (s *session) settled() pglogrepl.LSN {
	if s.cfg.Delivery == ExactlyOnce {
		return min(s.tracker.Frontier(), s.reached)
	}
	return s.tracker.Frontier()
}

// settledAt is a time before which every event that was committed is settled: the commit time of the oldest
// that is not, or of the last one that was read.
func (s *session) settledAt() time.Time {
	if oldest, ok := s.tracker.Oldest(); ok {
		return oldest
	}
	return s.committedAt
}

// adopt takes the last keepalive for the frontier when nothing is in flight.
func (s *session) adopt() {
	if s.tracker.Idle() && s.keepalive > s.tracker.Frontier() && s.tracker.Adopt(s.keepalive) {
		s.sink.Reached(s.keepalive)
	}
}

// takeMail settles what the sink reports, and adopts the last keepalive when nothing is left.
func (s *session) takeMail(ctx context.Context) error {
	if err := s.settle(); err != nil {
		return err
	}
	if len(s.mail.Poison) > 0 || len(s.mail.Partitions) > 0 {
		if err := s.takePoison(ctx); err != nil {
			return err
		}
	}
	s.adopt()
	s.guard.report(s.settled(), s.committed, s.confirmed, s.settledAt())
	if s.mail.Err != nil {
		return fmt.Errorf("%w: %w", errSink, s.mail.Err)
	}
	return nil
}

// takePoison hands over what the guard has to record; a stopped event freezes the session.
func (s *session) takePoison(ctx context.Context) error {
	recordable := make([]checkpoint.Poison, 0, len(s.mail.Poison))
	var stuck *checkpoint.Poison
	for _, p := range s.mail.Poison {
		if p.Action != checkpoint.Stopped {
			s.board.update(func(st *Status) { st.Poison[p.Action]++ })
			recordable = append(recordable, p)
		} else if stuck == nil || p.Position.Compare(stuck.Position) < 0 {
			stuck = &p
		}
	}
	if len(recordable) > 0 || len(s.mail.Partitions) > 0 {
		s.guard.record(recordable, s.mail.Partitions)
	}
	if stuck == nil || s.stuck != nil {
		return nil
	}
	return s.freeze(ctx, *stuck)
}

// freeze keeps slot and connection while one event waits for the operator. It returns when that has
// decided, or with any other end of the session.
func (s *session) freeze(ctx context.Context, p checkpoint.Poison) error {
	s.stuck = &p
	release := fmt.Sprintf("walrelay stream release %s --verdict retry|skip|dead-letter", p.Position)
	s.board.enter(StateStuck, fmt.Sprintf("event %s of %s at %s cannot be delivered: %s; `%s` goes on",
		p.EventID, p.Table, p.Position, p.Reason, release))
	s.board.update(func(st *Status) {
		st.Stuck = &p
		st.Poison[checkpoint.Stopped]++
	})
	s.log.Error("stream is stuck at an event", append(poisonFields(p), zap.String("to_go_on", release))...)
	s.guard.watch(p)
	return s.wait(ctx, func() bool { return false })
}
