package cdc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// Backfill publishes the rows that were in the outbox tables before the slot was there. It comes before
// the stream, so that a key's older events precede its newer ones. What it publishes has no position.
type Backfill interface {
	// Plan writes down that there is to be one. It is called before the slot is created, so that a crash
	// in between is no gap; by instances that start together, also when another has created it meanwhile.
	Plan(ctx context.Context) error
	// Due reports whether one was planned that is not finished.
	Due(ctx context.Context) (bool, error)
	// Run carries it out, from where an earlier attempt came to, and returns once everything is
	// acknowledged. It reads in the snapshot, which the session that created the slot exports: with the
	// stream after it, no row is missing and none comes twice. Empty: that session has ended, and rows of
	// the present come with it and again in the stream. It returns ErrBackfillElsewhere while another
	// process is at it. progress is called now and then, with rows; total is an estimate.
	Run(ctx context.Context, snapshot string, progress func(done, total int64)) error
}

// ErrBackfillElsewhere says that another instance is publishing what comes before the stream.
var ErrBackfillElsewhere = errors.New("another instance publishes the rows from before the slot")

// backfill carries out what is left of one, while the server's slot waits for the stream.
func (s *Stream) backfill(ctx context.Context, server *Server) error {
	if s.cfg.Backfill == nil {
		return nil
	}
	if due, err := s.cfg.Backfill.Due(ctx); err != nil || !due {
		return err
	}
	if s.board.enter(StateBackfilling, "publishing the rows from before the slot") {
		s.log.Info("publishing the rows from before the slot; the stream begins after them",
			zap.Bool("in_the_slots_snapshot", server.snapshot != ""))
	}
	s.board.update(func(st *Status) { st.LastProgress = time.Now() })
	working, halt := context.WithCancelCause(ctx)
	defer halt(nil)
	err := s.ticking(func() error {
		return s.cfg.Backfill.Run(working, server.snapshot, func(done, total int64) {
			now := time.Now()
			s.board.update(func(st *Status) {
				st.Reason = fmt.Sprintf("published %d of about %d rows from before the slot", done, max(total, done))
				st.LastProgress = now
			})
		})
	}, func() {
		switch pause, err := server.Registry().Paused(ctx); {
		case pause != nil:
			halt(&pausedError{*pause})
		case server.SQL.IsClosed():
			halt(err)
		}
	})
	if err != nil && ctx.Err() == nil && working.Err() != nil {
		return context.Cause(working)
	}
	if err != nil {
		return fmt.Errorf("backfill: %w", err)
	}
	s.log.Info("the rows from before the slot are published")
	return nil
}
