package retention

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/decoder"
)

// Stream is what retention asks of the stream whose rows it deletes. Both are safe for concurrent use.
type Stream interface {
	// Session returns what the present session has confirmed; ok is false when none streams.
	Session() (session cdc.Session, ok bool)
	// Connect opens a connection to the server of a session.
	Connect(ctx context.Context, session cdc.Session) (*pgx.Conn, error)
}

var _ Stream = (*cdc.Stream)(nil)

// Outbox is an outbox table.
type Outbox struct {
	decoder.Mapping
	// Column is the column of the row's time: of type timestamptz, timestamp (read as UTC) or date.
	Column string
}

// Config says what is deleted. All fields are required.
type Config struct {
	// Limit is the age from which a row may be deleted. Greater than 0.
	Limit time.Duration
	// Tables are the outbox tables.
	Tables []Outbox
	// Stream is the stream's name in the registry.
	Stream string
	Logger *zap.Logger
}

// Stats says what was done since the process started. Zero times: not yet.
type Stats struct {
	Rows       uint64 // deleted
	Partitions uint64 // dropped
	Errors     uint64

	// Oldest is the time of the oldest row of all tables, on the server's clock, when it was last looked at. Zero
	// without an index on the column: to find it would mean to read the table.
	Oldest time.Time
	// LastRun is when all tables had last been gone through.
	LastRun time.Time

	LastError   string // empty once a run went through again
	LastErrorAt time.Time
}

// Keeper deletes what is no longer kept.
type Keeper struct {
	cfg  Config
	log  *zap.Logger
	idle time.Duration // pause when nothing is left to delete

	conn    *pgx.Conn // on the server of session; nil: none
	session uint64    // number of the session for which conn was opened
	tables  []table

	mu    sync.Mutex
	stats Stats
}

// New returns a keeper. It does no I/O.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, log: cfg.Logger, idle: min(max(cfg.Limit/10, idleMin), idleMax)}
}

// Stats returns what was done so far. Safe for concurrent use.
func (k *Keeper) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stats
}

func (k *Keeper) count(change func(*Stats)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.stats)
}

const (
	// share is the part of the time in which retention may work: the pause after work is as much longer.
	share = 10
	// askInterval is how often the stream is asked for what it has confirmed.
	askInterval = 200 * time.Millisecond
	// idleMin and idleMax bound the pause when nothing is left to delete, which is a tenth of the limit.
	idleMin, idleMax = time.Second, time.Minute
	backoffMax       = time.Minute
)

var (
	// errNoSession says that the stream does not stream, or does so on another connection than before.
	errNoSession = errors.New("the stream's session has ended")
	errIdle      = errors.New("nothing is left to delete")
)

// Run works until ctx ends. Whatever goes wrong is counted, logged once and tried again: the stream does
// not depend on it.
func (k *Keeper) Run(ctx context.Context, stream Stream) {
	defer k.hangUp(ctx)
	for failures := 0; ctx.Err() == nil; {
		err := k.round(ctx, stream)
		pause := time.Duration(0) // a round has paused after each of its statements
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errNoSession):
			k.hangUp(ctx)
			pause = idleMin
		case errors.Is(err, errIdle):
			failures = 0
			k.recovered()
			pause = k.idle
		case err != nil:
			k.hangUp(ctx)
			k.failed(err)
			pause = min(time.Second<<min(failures, 10), backoffMax)
			pause = pause/2 + rand.N(pause/2+1)
			failures++
		default:
			failures = 0
			k.recovered()
		}
		if rest(ctx, pause) != nil {
			return
		}
	}
}

// failed counts an error, and logs it when it is another one than the last.
func (k *Keeper) failed(err error) {
	text := err.Error()
	var known bool
	k.count(func(s *Stats) {
		known = s.LastError == text
		s.Errors++
		s.LastError, s.LastErrorAt = text, time.Now()
	})
	if !known {
		k.log.Warn("outbox is not cleaned, trying again", zap.Error(err))
	}
}

func (k *Keeper) recovered() {
	var before string
	k.count(func(s *Stats) {
		before, s.LastError = s.LastError, ""
		s.LastRun = time.Now()
	})
	if before != "" {
		k.log.Info("outbox is cleaned again")
	}
}

// round goes through all tables once. It returns errIdle when it found nothing to delete.
func (k *Keeper) round(ctx context.Context, stream Stream) error {
	if err := k.connect(ctx, stream); err != nil {
		return err
	}
	var since *string // a time in the server's text, since it may be infinite
	err := k.conn.QueryRow(ctx, "SELECT covered_since::text FROM walrelay.streams WHERE name = $1", k.cfg.Stream).
		Scan(&since)
	if err != nil {
		return fmt.Errorf("read registry: %w", cdc.Diagnose(err))
	}
	if since == nil {
		return errNoSession // the registry is ahead of us: the slot is being given up
	}
	idle := true
	var failed error
	for i := range k.tables {
		t := &k.tables[i]
		done, err := k.clean(ctx, stream, t, *since)
		idle = idle && !done
		if err != nil && (ctx.Err() != nil || errors.Is(err, errNoSession)) {
			return err
		}
		if err != nil { // the other tables need not wait for this one
			failed = errors.Join(failed, t.diagnose(err))
		}
	}
	if err := k.lookForOldest(ctx); failed == nil {
		failed = err
	}
	if failed == nil && idle {
		return errIdle
	}
	return failed
}

// clean deletes one choice of rows, or drops one partition. done is false when there was nothing to do.
func (k *Keeper) clean(ctx context.Context, stream Stream, t *table, since string) (done bool, err error) {
	if err := t.mayDelete(); err != nil {
		return false, err
	}
	if t.droppable {
		return k.dropPartitions(ctx, stream, t, since)
	}
	chosen, err := k.choose(ctx, t, since)
	if err != nil || len(chosen) == 0 {
		return false, err
	}
	if err := k.awaitCovered(ctx, stream, t); err != nil {
		return false, err
	}
	return k.remove(ctx, stream, t, since, chosen)
}

// connect makes sure that conn is open on the server of the present session.
func (k *Keeper) connect(ctx context.Context, stream Stream) error {
	session, ok := stream.Session()
	if !ok {
		return errNoSession
	}
	if k.conn != nil && k.session == session.Number && !k.conn.IsClosed() {
		return nil
	}
	k.hangUp(ctx)
	conn, err := stream.Connect(ctx, session)
	if err != nil {
		return err
	}
	k.conn, k.session = conn, session.Number
	// Plans need the values: they say which partitions are looked at. What a crash undoes is done again.
	if _, err := conn.Exec(ctx, "SET plan_cache_mode = force_custom_plan; SET synchronous_commit = off"); err != nil {
		return fmt.Errorf("prepare connection: %w", err)
	}
	k.tables, err = fitting(ctx, conn, &k.cfg)
	return err
}

func (k *Keeper) hangUp(ctx context.Context) {
	if k.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = k.conn.Close(ctx) // it is of no use any more, however it ends
	k.conn = nil
}

// covered is how far the session for which conn was opened has come.
func (k *Keeper) covered(stream Stream) (pglogrepl.LSN, error) {
	session, ok := stream.Session()
	if !ok || session.Number != k.session {
		return 0, errNoSession
	}
	return session.Covered, nil
}

// awaitCovered waits until everything that is visible now is confirmed: by the stream, however long that
// takes, and by others that read the table.
func (k *Keeper) awaitCovered(ctx context.Context, stream Stream, t *table) error {
	end, err := fence(ctx, k.conn)
	if err != nil {
		return err
	}
	for {
		switch covered, err := k.covered(stream); {
		case err != nil:
			return err
		case covered >= end:
			return k.awaitOthers(ctx, t, end)
		}
		if err := rest(ctx, askInterval); err != nil {
			return err
		}
	}
}

// awaitOthers looks at the other registered streams with a slot that read the table: their events are as dear.
func (k *Keeper) awaitOthers(ctx context.Context, t *table, fence pglogrepl.LSN) error {
	const slowest = `
		SELECT r.name, coalesce(s.confirmed_flush_lsn, '0/0')::text
		FROM walrelay.streams r JOIN pg_replication_slots s ON s.slot_name = r.slot AND s.database = current_database()
		WHERE r.name <> $1 AND EXISTS (SELECT FROM jsonb_array_elements(r.publication_state -> 'tables') AS p
			WHERE p ->> 'schema' = $2 AND p ->> 'table' = $3)
		ORDER BY s.confirmed_flush_lsn NULLS FIRST LIMIT 1`
	for end := time.Now().Add(2 * time.Minute); ; {
		var other string
		var confirmed pglogrepl.LSN
		err := k.conn.QueryRow(ctx, slowest, k.cfg.Stream, t.Schema, t.Table).Scan(&other, &confirmed)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err != nil:
			return fmt.Errorf("look at other streams: %w", err)
		case confirmed >= fence:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("rows are kept for stream %q, whose slot stays behind", other)
		}
		if err := rest(ctx, time.Second); err != nil {
			return err
		}
	}
}

// rest waits.
func rest(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
