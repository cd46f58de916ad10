package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/kit/tx"
)

// ParkedMessage is a message that is not tried any more.
type ParkedMessage struct {
	Message

	Attempts int
	// Reason is the text of the last error. What the application puts into its errors is in it.
	Reason string
	Since  time.Time
}

var (
	// ErrNotParked is returned for a message that is not parked, or not any more.
	ErrNotParked = errors.New("message is not parked")
	// ErrPassed is returned by Release for a message with a position: a mark may have passed it, and then its
	// next delivery would be taken for a repetition. Use Retry.
	ErrPassed = errors.New("message has a position and cannot be released, only retried")
)

const parkedColumns = `SELECT consumer, message_id, coalesce(stream, ''), coalesce(topic, ''), coalesce(partition, 0),
	coalesce(position, ''), sent_at, digest, body, attempts, reason, parked_at
	FROM walrelay_kit.inbox_attempts WHERE parked_at IS NOT NULL AND consumer = $1`

func scanParked(row pgx.CollectableRow) (p ParkedMessage, err error) {
	var sent *time.Time
	err = row.Scan(&p.Consumer, &p.ID, &p.Stream, &p.Topic, &p.Partition, (*string)(&p.Position), &sent,
		&p.Digest, &p.Body, &p.Attempts, &p.Reason, &p.Since)
	if sent != nil {
		p.Time = *sent
	}
	return p, err
}

// List returns up to limit parked messages, those parked first before the others.
func (Parking) List(ctx context.Context, t tx.Tx, consumer string, limit int) ([]ParkedMessage, error) {
	rows, err := t.Query(ctx, parkedColumns+` ORDER BY parked_at, message_id LIMIT $2`, consumer, limit)
	if err != nil {
		return nil, fmt.Errorf("list parked messages: %w", err)
	}
	parked, err := pgx.CollectRows(rows, scanParked)
	if err != nil {
		return nil, fmt.Errorf("list parked messages: %w", err)
	}
	return parked, nil
}

// lock reads a parked message and keeps others from it until the transaction ends.
func lock(ctx context.Context, t tx.Tx, consumer, id string) (ParkedMessage, error) {
	rows, err := t.Query(ctx, parkedColumns+` AND message_id = $2 FOR UPDATE`, consumer, id)
	if err != nil {
		return ParkedMessage{}, fmt.Errorf("read parked message: %w", err)
	}
	parked, err := pgx.CollectExactlyOneRow(rows, scanParked)
	if errors.Is(err, pgx.ErrNoRows) {
		return ParkedMessage{}, fmt.Errorf("consumer %s, message %s: %w", consumer, id, ErrNotParked)
	}
	if err != nil {
		return ParkedMessage{}, fmt.Errorf("read parked message: %w", err)
	}
	return parked, nil
}

// Retry applies a parked message now, from what was kept of it, and removes it from the parked ones in
// the same transaction. When effect fails, the message stays parked with the new reason. r must be the
// consumer's Recorder, HighWater as it is: its mark has passed the message since.
func (Parking) Retry(ctx context.Context, db DB, r Recorder, consumer, id string,
	effect func(ctx context.Context, t tx.Tx, m Message) error,
) (Outcome, error) {
	outcome, err := inTx(ctx, db, func(t tx.Tx) (Outcome, error) {
		parked, err := lock(ctx, t, consumer, id)
		if err != nil {
			return Undone, err
		}
		outcome, err := r.Record(ctx, t, parked.Message)
		if err != nil {
			return Undone, fmt.Errorf("record message: %w", err)
		}
		if isHighWater(r) || outcome == Applied {
			if err := effect(ctx, t, parked.Message); err != nil {
				return Undone, fmt.Errorf("apply message: %w", err)
			}
			outcome = Applied
		}
		return outcome, settle(ctx, t, parked.Message)
	})
	if err == nil || errors.Is(err, ErrNotParked) || blameless(err) {
		return outcome, err
	}
	ctx, cancel := uncancelled(ctx)
	defer cancel()
	_, noted := db.Exec(ctx, `UPDATE walrelay_kit.inbox_attempts SET attempts = attempts + 1, reason = $3
		WHERE consumer = $1 AND message_id = $2 AND parked_at IS NOT NULL`, consumer, id, reason(err))
	if noted != nil {
		err = errors.Join(err, fmt.Errorf("note failure: %w", noted))
	}
	return Undone, err
}

// Release lets the next delivery of a parked message be tried anew, for senders that deliver again
// whenever they are asked to. What was kept of it is dropped.
func (Parking) Release(ctx context.Context, t tx.Tx, consumer, id string) error {
	parked, err := lock(ctx, t, consumer, id)
	if err != nil {
		return err
	}
	if !parked.Position.None() {
		return ErrPassed
	}
	return settle(ctx, t, parked.Message)
}

// Discard gives a parked message up for good: it is recorded as if it had been applied. What the Recorder
// itself refuses (ErrTooOld, ErrState, …) can only be discarded with r nil, unrecorded.
func (Parking) Discard(ctx context.Context, t tx.Tx, r Recorder, consumer, id string) error {
	parked, err := lock(ctx, t, consumer, id)
	if err != nil {
		return err
	}
	if r != nil {
		if _, err := r.Record(ctx, t, parked.Message); err != nil {
			return fmt.Errorf("record message: %w", err)
		}
	}
	return settle(ctx, t, parked.Message)
}

// Expire deletes up to limit counts of messages that never came again, and returns how many. Parked
// messages stay until somebody decides about them.
func (Parking) Expire(ctx context.Context, t tx.Tx, keep Retention, limit int) (deleted int64, err error) {
	if err := keep.Validate(); err != nil {
		return 0, err
	}
	tag, err := t.Exec(ctx, `DELETE FROM walrelay_kit.inbox_attempts WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM walrelay_kit.inbox_attempts WHERE parked_at IS NULL AND started_at < now() - $1::interval
		LIMIT $2 FOR UPDATE SKIP LOCKED))`, keep.Keep, limit)
	if err != nil {
		return 0, fmt.Errorf("expire attempts: %w", err)
	}
	return tag.RowsAffected(), nil
}

func nullTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}
