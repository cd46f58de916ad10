package cdc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/checkpoint"
)

// guard is the goroutine beside a session that owns the SQL connection. Every status interval it
//
//  1. records poison events and partition counts that the session handed over,
//  2. checks that the publication still sends every row,
//  3. looks whether the operator has paused the stream,
//  4. records the frontier in the registry,
//
// and only then allows the session to confirm that frontier. So nothing is confirmed past a hole in
// the publication, nothing before it is recorded what became of each event, and a slot that is
// beyond the registry was moved by somebody else.
type guard struct {
	server   *Server
	registry *Registry
	cfg      *Config
	log      *zap.Logger
	mailbox  *checkpoint.Mailbox
	halt     context.CancelCauseFunc // makes the session drain
	// verdicts were given to this run and are still in the registry.
	verdicts map[checkpoint.Position]checkpoint.Verdict

	poke chan struct{} // do a round now
	down chan struct{} // closed once err is set

	sql      chan struct{} // full while the connection and the fields below are in use
	verified PublicationState
	recorded pglogrepl.LSN // in the registry
	at       time.Time     // when
	rounds   int
	board    *board
	spent    *spending

	mu         sync.Mutex
	frontier   pglogrepl.LSN
	settledAt  time.Time     // of the frontier: see session.settledAt
	committed  pglogrepl.LSN // end of the last transaction that had events
	confirmed  pglogrepl.LSN // as last reported to the server
	poison     []checkpoint.Poison
	partitions map[string]int32
	stuck      *checkpoint.Poison
	allowed    pglogrepl.LSN
	covered    pglogrepl.LSN // see Session.Covered
	offset     time.Duration
	err        error
}

const (
	// An idle stream follows the server's keepalives. Recording that writes log itself, which
	// brings the next keepalive: so small steps are taken rarely.
	lazyBytes    = 256 << 10
	lazyInterval = time.Minute

	clockRounds = 30 // rounds between two measurements of the server's clock
)

func newGuard(
	s *Server, state PublicationState, start, recorded pglogrepl.LSN, run checkpoint.Run, halt context.CancelCauseFunc,
) *guard {
	verdicts := maps.Clone(run.Verdicts)
	maps.DeleteFunc(verdicts, func(_ checkpoint.Position, v checkpoint.Verdict) bool {
		return v == checkpoint.VerdictRetry // used up by trying
	})
	return &guard{
		server: s, registry: s.Registry(), cfg: s.cfg, log: s.log, mailbox: run.Mailbox, verdicts: verdicts, halt: halt,
		sql: make(chan struct{}, 1), poke: make(chan struct{}, 1), down: make(chan struct{}),
		verified: state, recorded: recorded, at: time.Now(), frontier: start, allowed: start, confirmed: start,
		partitions: map[string]int32{},
	}
}

// run works until ctx ends or something is wrong, which the session learns from failed.
func (g *guard) run(ctx context.Context) {
	ticker := time.NewTicker(g.cfg.StatusInterval)
	defer ticker.Stop()
	for {
		if err := g.round(ctx, false); err != nil {
			if ctx.Err() == nil {
				g.mu.Lock()
				g.err = err
				g.mu.Unlock()
				close(g.down)
			}
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-g.poke:
		}
	}
}

// failed returns why the guard ended, nil while it works.
func (g *guard) failed() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// report tells the guard how far everything is settled and confirmed.
func (g *guard) report(frontier, committed, confirmed pglogrepl.LSN, settledAt time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.frontier, g.committed, g.confirmed, g.settledAt = frontier, committed, confirmed, settledAt
}

// mayConfirm is how far the session may confirm.
func (g *guard) mayConfirm() (pglogrepl.LSN, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.allowed, g.offset
}

// rest waits for the round under way and allows no other: to end it in the middle of a query would
// cost the connection.
func (g *guard) rest(ctx context.Context) error { return g.acquire(ctx) }

// record hands over what must be in the database before anything behind it is confirmed.
func (g *guard) record(poison []checkpoint.Poison, partitions []checkpoint.Partitions) {
	g.mu.Lock()
	g.poison = append(g.poison, poison...)
	for _, p := range partitions {
		g.partitions[p.Topic] = p.Count
	}
	g.mu.Unlock()
	g.knock()
}

// watch makes the guard look for the operator's verdict on a stuck event.
func (g *guard) watch(p checkpoint.Poison) {
	g.mu.Lock()
	g.stuck = &p
	g.mu.Unlock()
	g.knock()
}

func (g *guard) knock() {
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

// use works on the SQL connection between two rounds. What has begun gets some time beyond the end of ctx: to end a
// query in the middle would cost the connection, which the last confirmation needs.
func (g *guard) use(ctx context.Context, work func(context.Context) error) error {
	if err := g.acquire(ctx); err != nil {
		return err
	}
	defer g.release()
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(farewellTimeout, cancel)
		<-working.Done()
		timer.Stop()
	})
	defer stop()
	return work(working)
}

func (g *guard) acquire(ctx context.Context) error {
	select {
	case g.sql <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *guard) release() { <-g.sql }

// round is one turn of the guard. The last one of a session takes small steps too.
func (g *guard) round(ctx context.Context, last bool) error {
	if err := g.acquire(ctx); err != nil {
		return err
	}
	defer g.release()
	g.mu.Lock()
	frontier, committed, confirmed, stuck := g.frontier, g.committed, g.confirmed, g.stuck
	settledAt := g.settledAt
	poison, partitions := g.poison, g.partitions
	g.poison, g.partitions = nil, map[string]int32{}
	g.mu.Unlock()

	if len(partitions) > 0 {
		if err := g.registry.RecordPartitions(ctx, partitions); err != nil {
			return err
		}
	}
	if err := g.recordPoison(ctx, poison); err != nil {
		return err
	}
	if err := g.forgetVerdicts(ctx, confirmed); err != nil {
		return err
	}
	if err := g.checkPublication(ctx); err != nil {
		return err
	}
	if g.rounds%clockRounds == 0 {
		if err := g.measureClock(ctx); err != nil {
			return err
		}
	}
	g.rounds++
	if !last {
		if err := g.checkBudget(ctx); err != nil {
			return err
		}
	}
	pause, err := g.registry.Paused(ctx)
	if err != nil {
		return err
	}
	if pause != nil {
		g.halt(&pausedError{*pause})
	}
	if stuck != nil {
		if err := g.lookForVerdict(ctx, stuck); err != nil {
			return err
		}
	}
	small := frontier-g.recorded < lazyBytes && time.Since(g.at) < lazyInterval
	lazy := small && g.recorded >= committed && !last
	if frontier > g.recorded && !lazy {
		if err := g.registry.Confirm(ctx, frontier, g.server.Timeline, settledAt); err != nil {
			return err
		}
		g.recorded, g.at = frontier, time.Now()
	}
	g.mu.Lock()
	g.allowed = max(g.allowed, min(frontier, g.recorded))
	if confirmed >= committed { // nothing between there and the frontier was an event
		confirmed = max(confirmed, frontier)
	}
	g.covered = max(g.covered, confirmed)
	g.mu.Unlock()
	return nil
}

// coveredTo is what Session.Covered says.
func (g *guard) coveredTo() pglogrepl.LSN {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.covered
}

func (g *guard) checkPublication(ctx context.Context) error {
	state, err := g.server.CheckPublication(ctx)
	if err != nil {
		if fatal, ok := errors.AsType[*FatalError](err); ok {
			from := g.verified.LSN
			if state.OID == 0 { // no publication: the slot has to go, and with it what is not confirmed
				from = g.recorded
			}
			fatal.Problem += "; " + gapBetween(from, g.now(ctx))
			return g.dated(ctx, err)
		}
		return err
	}
	if err := state.Since(g.verified, g.verified.LSN, g.cfg); err != nil {
		return g.dated(ctx, err)
	}
	state.follow(g.verified)
	g.server.viaRootSince = state.ViaRootSince
	if !state.Equal(g.verified) {
		g.log.Warn("publication was altered; every insert is still published",
			zap.String("publication", g.cfg.Publication), zap.Stringer("verified_lsn", g.verified.LSN),
			zap.Stringer("lsn", state.LSN))
		if err := g.registry.recordPublication(ctx, state); err != nil {
			return err
		}
	}
	g.verified = state
	return nil
}

// dated has a fault of the publication say from when on rows are missing, as far as the registry can be asked.
func (g *guard) dated(ctx context.Context, err error) error {
	row, unread := g.registry.load(ctx)
	if unread != nil || row == nil {
		return err
	}
	return row.dated(err, g.cfg.Stream)
}

// now is the server's write position, for messages: 0/0 when it cannot be read.
func (g *guard) now(ctx context.Context) (lsn pglogrepl.LSN) {
	_ = g.server.SQL.QueryRow(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&lsn)
	return lsn
}

// measureClock finds how far the server's clock is ahead of ours, to within half a round trip.
func (g *guard) measureClock(ctx context.Context) error {
	var theirs time.Time
	before := time.Now()
	if err := g.server.SQL.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&theirs); err != nil {
		return Diagnose(fmt.Errorf("read the server's clock: %w", err))
	}
	took := time.Since(before)
	g.mu.Lock()
	g.offset = theirs.Sub(before.Add(took / 2))
	g.mu.Unlock()
	return nil
}
