package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walrelay/walrelay/kit/tx"
)

// Parking puts a message aside that fails again and again, so that those behind it get their turn.
//
// An attempt is counted in walrelay_kit.inbox_attempts before it begins, in a transaction of its own: it
// survives the effect's rollback and the end of the process, so a message that kills its consumer is
// parked too. That costs a statement before (whose commit does not wait for the disk) and one within
// the effect's transaction, which removes the count.
//
// A parked message breaks the order of its key: later ones are applied without it. With HighWater the mark passes
// it in the transaction that parks it, so an old owner of the partition cannot apply it any more. A HighWater within a
// RecorderFunc is not recognised as one, and its Duplicate is taken for applied: take Table alone then.
type Parking struct {
	// After is the number of attempts after which a message is parked, 1 at least.
	After int
}

var (
	// ErrTransient marks an effect's error that is not the message's fault, such as a service that is away
	// (fmt.Errorf("…: %w", inbox.ErrTransient)): the attempt does not count.
	ErrTransient = errors.New("transient")
	// ErrPoison marks an effect's error that no further attempt can mend: the message is parked at once.
	ErrPoison = errors.New("poison")
	// ErrAttempts is returned for an After below 1.
	ErrAttempts = errors.New("attempts before parking must be at least 1")

	errUnanswered = errors.New("attempts ended without an answer, perhaps with their process")
	errSettled    = errors.New("another consumer has settled the message")
)

// Do is the function Do with attempts counted. After the last one the outcome is Parked, without an
// error: the message is kept with its Body and the error's text, see List. So is every later delivery of it.
//
// An attempt does not count when ctx ended meanwhile, when no transaction could begin, when only other
// transactions were in the way (lock_timeout among it), after ErrNoPartition and after ErrTransient. While
// the database cannot be written to, none does.
func (p Parking) Do(ctx context.Context, db DB, r Recorder, m Message, effect Effect) (Outcome, error) {
	if p.After < 1 {
		return Undone, ErrAttempts
	}
	if m.Consumer == "" || m.ID == "" {
		return Undone, fmt.Errorf("consumer and id are required: %w", ErrIncomplete)
	}
	tried, err := repeat(ctx, func() (attempt, error) { return begin(ctx, db, m) })
	switch {
	case err != nil:
		return Undone, fmt.Errorf("count attempt: %w", err)
	case tried.parked:
		return Parked, nil
	case tried.number > p.After:
		effect = func(context.Context, tx.Tx) error { // unless it turns out to be a duplicate
			return fmt.Errorf("%d %w: %w", tried.number-1, errUnanswered, ErrPoison)
		}
	}
	outcome, err := inTx(ctx, db, func(t tx.Tx) (Outcome, error) {
		outcome, err := Once(ctx, t, r, m, effect)
		if err != nil {
			return Undone, err
		}
		if outcome == Duplicate && isHighWater(r) {
			return passed(ctx, t, m)
		}
		return outcome, settle(ctx, t, m)
	})
	if err != nil {
		return p.fail(ctx, db, r, m, tried.number, err)
	}
	return outcome, nil
}

type attempt struct {
	number int
	parked bool
}

// begin counts an attempt. When the server crashes before it has written that to disk, the attempt is
// forgotten, which does no harm.
func begin(ctx context.Context, db DB, m Message) (a attempt, err error) {
	err = db.QueryRow(ctx, `INSERT INTO walrelay_kit.inbox_attempts AS a (consumer, message_id, attempts)
		SELECT $1::text, $2::text, 1 FROM set_config('synchronous_commit', 'off', true)
		ON CONFLICT (consumer, message_id) DO UPDATE
			SET attempts = a.attempts + (a.parked_at IS NULL)::integer, started_at = now()
		RETURNING attempts, parked_at IS NOT NULL`, m.Consumer, m.ID).Scan(&a.number, &a.parked)
	return a, err
}

// settle removes the count within the transaction of the effect, so that both are there or neither.
func settle(ctx context.Context, t tx.Tx, m Message) error {
	_, err := t.Exec(ctx, `DELETE FROM walrelay_kit.inbox_attempts WHERE consumer = $1 AND message_id = $2`,
		m.Consumer, m.ID)
	if err != nil {
		return fmt.Errorf("settle attempts: %w", err)
	}
	return nil
}

// passed tells apart what a mark cannot: another consumer has parked the message, and then it stays so, or
// it was applied.
func passed(ctx context.Context, t tx.Tx, m Message) (Outcome, error) {
	var parked bool
	err := t.QueryRow(ctx, `SELECT parked_at IS NOT NULL FROM walrelay_kit.inbox_attempts
		WHERE consumer = $1 AND message_id = $2 FOR UPDATE`, m.Consumer, m.ID).Scan(&parked)
	switch {
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return Undone, fmt.Errorf("read attempts: %w", err)
	case parked:
		return Parked, nil
	}
	return Duplicate, settle(ctx, t, m)
}

// fail notes what became of an attempt, also when ctx has ended.
func (p Parking) fail(ctx context.Context, db DB, r Recorder, m Message, number int, cause error) (Outcome, error) {
	innocent := ctx.Err() != nil || blameless(cause)
	ctx, cancel := uncancelled(ctx)
	defer cancel()
	var err error
	switch {
	case innocent:
		_, err = db.Exec(ctx, `UPDATE walrelay_kit.inbox_attempts SET attempts = attempts - 1
			WHERE consumer = $1 AND message_id = $2 AND parked_at IS NULL`, m.Consumer, m.ID)
	case number >= p.After || errors.Is(cause, ErrPoison):
		var outcome Outcome
		outcome, err = inTx(ctx, db, func(t tx.Tx) (Outcome, error) { return park(ctx, t, r, m, cause) })
		if err == nil {
			return outcome, nil
		}
		if errors.Is(err, errSettled) { // the next delivery will tell
			err = nil
		}
	default:
		err = note(ctx, db, m, cause)
	}
	if err != nil {
		return Undone, errors.Join(cause, fmt.Errorf("note failure: %w", err))
	}
	return Undone, cause
}

// blameless reports an error that says nothing about the message.
func blameless(err error) bool {
	return errors.Is(err, ErrTransient) || errors.Is(err, ErrNoPartition) || errors.Is(err, errBegin) ||
		conflict(err) || lockTimeout(err)
}

// lockTimeout recognises lock_not_available, of lock_timeout: another transaction was in the way.
func lockTimeout(err error) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && server.Code == "55P03"
}

// park keeps the message. A high-water mark passes it in the same transaction, unless it has: so of two consumers
// that have the partition, one cannot apply what the other has parked, nor park what the other has applied.
func park(ctx context.Context, t tx.Tx, r Recorder, m Message, cause error) (Outcome, error) {
	if isHighWater(r) && markable(m) == nil {
		outcome, err := r.Record(ctx, t, m)
		if err != nil {
			return Undone, fmt.Errorf("record message: %w", err)
		}
		if outcome == Duplicate {
			return passed(ctx, t, m)
		}
	}
	tag, err := t.Exec(ctx, `UPDATE walrelay_kit.inbox_attempts SET parked_at = coalesce(parked_at, now()), reason = $3,
			stream = nullif($4, ''), topic = nullif($5, ''), partition = CASE WHEN $5 <> '' THEN $6::integer END,
			position = nullif($7, ''), sent_at = $8, digest = $9, body = $10
		WHERE consumer = $1 AND message_id = $2`,
		m.Consumer, m.ID, reason(cause), m.Stream, m.Topic, m.Partition, string(m.Position), nullTime(m.Time),
		m.Digest, m.Body)
	if err != nil {
		return Undone, fmt.Errorf("park message: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return Undone, errSettled
	}
	return Parked, nil
}

func note(ctx context.Context, t tx.Tx, m Message, cause error) error {
	_, err := t.Exec(ctx, `UPDATE walrelay_kit.inbox_attempts SET reason = $3 WHERE consumer = $1 AND message_id = $2`,
		m.Consumer, m.ID, reason(cause))
	return err
}

// reason is the error's text as far as a column takes it: no zero bytes, and not without end.
func reason(err error) string {
	text := strings.ReplaceAll(err.Error(), "\x00", "")
	return strings.ToValidUTF8(text[:min(len(text), 1000)], "")
}
