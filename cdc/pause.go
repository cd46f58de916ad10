package cdc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
)

// Pause says that a stream rests until it is resumed: no instance streams. The slot stays where it is, so
// the server keeps the log that is written meanwhile.
type Pause struct {
	Since  time.Time // on the server's clock
	By     string
	Reason string // may be empty
}

// String is one line for people.
func (p Pause) String() string {
	text := "paused since " + p.Since.UTC().Format(time.RFC3339) + " by " + p.By
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

// Of returns the registry of another stream on the same connection.
func (r *Registry) Of(stream string) *Registry { return &Registry{db: r.db, stream: stream} }

// Pause lets the stream rest. A running instance notices within its status interval, delivers and confirms
// what is in flight, within its shutdown time, and lets go of the slot. A later pause replaces who and why.
func (r *Registry) Pause(ctx context.Context, by, reason string) error {
	return r.setPause(ctx, "pause stream", `paused_at = coalesce(paused_at, now()), paused_by = $2, pause_reason = $3`,
		by, reason)
}

// Resume lets the stream go on, within its status interval. It does no harm to one that is not paused.
func (r *Registry) Resume(ctx context.Context) error {
	return r.setPause(ctx, "resume stream", `paused_at = NULL, paused_by = NULL, pause_reason = NULL`)
}

func (r *Registry) setPause(ctx context.Context, verb, set string, args ...any) error {
	tag, err := r.db.Exec(ctx, "UPDATE walrelay.streams SET "+set+", updated_at = now() WHERE name = $1",
		append([]any{r.stream}, args...)...)
	if err != nil {
		return Diagnose(fmt.Errorf("%s: %w", verb, err))
	}
	if tag.RowsAffected() == 0 {
		return notRegistered(r.stream)
	}
	return nil
}

// Paused returns nil when the stream is not paused, or not registered.
func (r *Registry) Paused(ctx context.Context) (*Pause, error) {
	var p Pause
	err := r.db.QueryRow(ctx, `SELECT paused_at, coalesce(paused_by, ''), coalesce(pause_reason, '')
		FROM walrelay.streams WHERE name = $1 AND paused_at IS NOT NULL`, r.stream).Scan(&p.Since, &p.By, &p.Reason)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // not paused is an answer
	}
	if err != nil {
		return nil, Diagnose(fmt.Errorf("look for a pause: %w", err))
	}
	return &p, nil
}

// pausedError ends a session in good order.
type pausedError struct{ Pause }

func (e *pausedError) Error() string { return "the stream is " + e.String() }

// errResumed ends the wait of a paused stream.
var errResumed = errors.New("the stream is resumed")

// awaitResume returns nil at once unless the stream is paused. Otherwise it lets go of the replication
// connection and looks at the registry until that says something else, which is errResumed.
func (s *Stream) awaitResume(ctx context.Context, server *Server) error {
	pause, err := server.Registry().Paused(ctx)
	if err != nil || pause == nil {
		return err
	}
	if err := s.sink.End(ctx); err != nil {
		return fmt.Errorf("end the sink's run: %w", err)
	}
	_ = server.Repl.Close(ctx) // what has not ended well has ended all the same
	s.serve(0)
	ticker := time.NewTicker(s.cfg.StatusInterval)
	defer ticker.Stop()
	for pause != nil {
		if s.board.enter(StatePaused, pause.String()) {
			s.log.Warn("stream is paused: the server keeps the log that is written meanwhile",
				zap.Time("since", pause.Since),
				zap.String("by", pause.By), zap.String("reason", pause.Reason),
				zap.String("to_go_on", "walrelay stream resume "+s.cfg.Stream))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		if pause, err = server.Registry().Paused(ctx); err != nil {
			return err
		}
	}
	s.log.Info("stream is resumed")
	return errResumed
}
