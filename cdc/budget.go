package cdc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
)

// Budget limits the write-ahead log that the server keeps for the slot. It is looked at once in each status
// interval while a session holds the slot, also while that waits for the brokers or for a verdict. Without a
// session nobody looks: max_slot_wal_keep_size is the server's own limit.
type Budget struct {
	// Bytes is the limit; 0: none.
	Bytes int64
	// Action is what happens beyond it.
	Action BudgetAction
	// Pause names the streams that BudgetPause pauses.
	Pause []string
}

// BudgetAction is what happens when a slot keeps more log than allowed.
type BudgetAction string

// The actions. Each of them reports as well.
const (
	BudgetAlert BudgetAction = "alert"        // nothing else
	BudgetPause BudgetAction = "pause-others" // other streams rest until half of the budget is free again
	BudgetDrop  BudgetAction = "drop-slot"    // the slot is dropped and the stream ends: see giveUp
)

// How long a slot must be over its budget, and not shrink, before it is dropped. The server moves restart_lsn in
// steps, which take a minute and more where few events are: that of a stream which confirms is waited for longer.
const (
	budgetPatience     = 30 * time.Second
	budgetLongPatience = 5 * time.Minute
)

// spending is what is known of the budget; it outlives sessions.
type spending struct {
	over  bool
	since time.Time // when the time of patience began
	then  int64     // bytes kept at that moment

	unknown map[string]bool // streams that cannot be paused, as the log has it
}

// overBudgetError ends a session whose slot is to be dropped.
type overBudgetError struct{ retained int64 }

func (e *overBudgetError) Error() string {
	return fmt.Sprintf("the slot keeps %d bytes of write-ahead log, which is over its budget", e.retained)
}

// checkBudget measures what the server keeps, and acts.
func (g *guard) checkBudget(ctx context.Context) error {
	budget := g.cfg.Budget
	if budget.Bytes == 0 {
		return nil
	}
	var retained, unconfirmed int64
	err := g.server.SQL.QueryRow(ctx, `SELECT coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::int8,
			coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn), 0)::int8
		FROM pg_replication_slots WHERE slot_name = $1`, g.cfg.Slot).Scan(&retained, &unconfirmed)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil // the next start says what that means
	case err != nil:
		return Diagnose(fmt.Errorf("measure the slot: %w", err))
	}
	over := retained > budget.Bytes
	g.board.update(func(s *Status) { s.OverBudget = over })
	if over != g.spent.over {
		g.spent.over, g.spent.since, g.spent.then = over, time.Now(), retained
		fields := []zap.Field{
			zap.Int64("retained_bytes", retained), zap.Int64("budget_bytes", budget.Bytes),
			zap.String("action", string(budget.Action)),
		}
		if over {
			g.log.Warn("the server keeps more log for the slot than its budget allows", fields...)
		} else {
			g.log.Info("the slot is within its budget again", fields...)
		}
	}
	if budget.Action == BudgetPause {
		return g.pauseOthers(ctx, over, retained < budget.Bytes/2)
	}
	if budget.Action != BudgetDrop || !over {
		return nil
	}
	if retained < g.spent.then { // it catches up
		g.spent.since, g.spent.then = time.Now(), retained
	}
	patience := budgetPatience
	if unconfirmed <= budget.Bytes {
		patience = budgetLongPatience
	}
	if time.Since(g.spent.since) >= patience {
		return &overBudgetError{retained: retained}
	}
	return nil
}

// pauseOthers lets streams of lesser value rest, and ends the rest that this stream has asked for, which may
// have been before a restart.
func (g *guard) pauseOthers(ctx context.Context, over, enough bool) error {
	by := "stream " + g.cfg.Stream
	for _, name := range g.cfg.Budget.Pause {
		if !over && !enough {
			return nil
		}
		other := g.registry.Of(name)
		pause, err := other.Paused(ctx)
		if err != nil {
			return err
		}
		switch {
		case over && pause == nil:
			err = other.Pause(ctx, by, "the WAL budget of stream "+g.cfg.Stream+" is used up")
		case enough && pause != nil && pause.By == by:
			err = other.Resume(ctx)
		default:
			continue
		}
		if Fatal(err) { // there is no such stream: no reason to end this one
			if !g.spent.unknown[name] {
				g.log.Warn("a stream cannot be paused for the budget", zap.String("name", name), zap.Error(err))
			}
			g.spent.unknown[name] = true
			continue
		}
		if err != nil {
			return err
		}
		g.log.Info("a stream of lesser value was told what to do, because of the budget",
			zap.String("name", name), zap.Bool("paused", over))
	}
	return nil
}

// giveUpTimeout limits the wait for the server's end of the session.
const giveUpTimeout = 30 * time.Second

// giveUp drops the slot, so that the disk of the database does not run full, and states the gap. The session has
// ended. Like Registry.Confirm it does not wait for synchronous standbys: the disk may run full without them too,
// and one that forgets it knows all the same that the slot is gone, and since when.
func (s *Stream) giveUp(ctx context.Context, server *Server, over *overBudgetError) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	_ = server.Repl.Close(ctx) // what has not ended well has ended all the same
	if err := s.dropSlot(ctx, server); err != nil {
		return err
	}
	var confirmed, until pglogrepl.LSN
	var now time.Time
	gap := registryRow{Settled: zeroIsNull(s.board.snapshot().OldestUnsettled)}
	err := server.SQL.QueryRow(ctx, `
		UPDATE walrelay.streams SET updated_at = now(), given_up = jsonb_build_object('at', now(),
			'since', coalesce($2, settled_at), 'confirmed_lsn', confirmed_lsn, 'until_lsn', pg_current_wal_lsn(),
			'retained_bytes', $3::int8)
		FROM (SELECT set_config('synchronous_commit', 'local', true)) AS local (setting)
		WHERE name = $1 AND local.setting IS NOT NULL
		RETURNING confirmed_lsn::text, given_up ->> 'until_lsn', now(), (given_up ->> 'since')::timestamptz`,
		s.cfg.Stream, gap.Settled, over.retained).Scan(&confirmed, &until, &now, &gap.Settled)
	if err != nil {
		return Diagnose(fmt.Errorf("record that the slot is given up: %w", err))
	}
	since := "an unknown time"
	if gap.Settled != nil {
		since = gap.Settled.UTC().Format(time.RFC3339)
	}
	return &FatalError{
		Object: quoted("slot", s.cfg.Slot),
		Problem: fmt.Sprintf("was dropped: it kept %d bytes of write-ahead log, more than WALRELAY_WAL_BUDGET allows (%d), "+
			"and WALRELAY_WAL_BUDGET_ACTION is %s; %s, that is from %s to %s", over.retained, s.cfg.Budget.Bytes, BudgetDrop,
			gapBetween(confirmed, until), since, now.UTC().Format(time.RFC3339)),
		Remedy: "make sure that the disk has room and the stream can deliver, " +
			republishSince(s.cfg.Stream, gap.gapSince()),
	}
}

// dropSlot drops the slot as soon as its walsender has noticed that we are gone. It asks more often than an
// instance that stands by.
func (s *Stream) dropSlot(ctx context.Context, server *Server) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := server.SQL.Exec(ctx, "SELECT pg_drop_replication_slot($1)", s.cfg.Slot)
		switch sqlState(err) {
		case "55006": // object_in_use
		case "42704": // undefined_object: somebody else was faster
			return nil
		default:
			if err != nil {
				return Diagnose(fmt.Errorf("drop slot: %w", err))
			}
			s.log.Warn("slot dropped: the log that it kept is free")
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("drop slot: %w", err)
		case <-ticker.C:
		}
	}
}

func zeroIsNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
