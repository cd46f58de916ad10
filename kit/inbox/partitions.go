package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walrelay/walrelay/kit/tx"
)

// Partitions records as Table does, in walrelay_kit.inbox_timed, whose partitions are ranges of
// Message.Time: old ones are dropped as a whole, which costs nothing and leaves no bloat behind.
//
// The unique key of a partitioned table must contain what it is partitioned by. So the time has to be one that
// comes with the message and is the same in every delivery; the same id with another time is another
// message. A message older than Keep cannot be judged any more and is refused with ErrTooOld. Replays of
// walrelay have no commit time: where they may come, take a time of the event's own for every record.
//
// All consumers of a database share the table, and so the setting. A longer Keep reaches back only
// as far as there are records: what was dropped before is not known again.
type Partitions struct {
	Retention
	// Width is the range of one partition: an hour at least, whole minutes, no more than Keep. A day is good.
	Width time.Duration
}

var (
	// ErrTooOld is returned by Partitions for a message whose record may have been dropped already.
	ErrTooOld = errors.New("message is older than the records that are kept")
	// ErrNoPartition is returned by Partitions when Maintain has not made the partition that the message
	// belongs to, or the message comes from the future.
	ErrNoPartition = errors.New("no partition for the message's time, has Maintain run?")
	// ErrWidth is returned for a Width that is out of its bounds.
	ErrWidth = errors.New("a partition's width must be whole minutes, at least an hour, and no more than is kept")
)

// Validate reports whether width and retention fit.
func (p Partitions) Validate() error {
	if p.Width < time.Hour || p.Width%time.Minute != 0 || p.Width > p.Keep {
		return fmt.Errorf("%s: %w", p.Width, ErrWidth)
	}
	return p.Retention.Validate()
}

// Record implements Recorder. It needs Time.
func (p Partitions) Record(ctx context.Context, t tx.Tx, m Message) (Outcome, error) {
	if err := p.Validate(); err != nil {
		return Undone, err
	}
	if m.Time.IsZero() {
		return Undone, fmt.Errorf("time is required: %w", ErrIncomplete)
	}
	var expired, noted bool
	err := t.QueryRow(ctx, `
		WITH message AS (SELECT $3::timestamptz AS sent_at, $3::timestamptz < now() - $5::interval AS expired),
		noted AS (
			INSERT INTO walrelay_kit.inbox_timed (consumer, message_id, sent_at, digest)
			SELECT $1::text, $2::text, sent_at, $4::bytea FROM message WHERE NOT expired
			ON CONFLICT DO NOTHING RETURNING 1)
		SELECT expired, EXISTS (SELECT FROM noted) FROM message`,
		m.Consumer, m.ID, m.Time, m.Digest, p.Keep).Scan(&expired, &noted)
	switch {
	case noPartition(err):
		return Undone, fmt.Errorf("%s: %w", m.Time.UTC().Format(time.RFC3339), ErrNoPartition)
	case err != nil:
		return Undone, err
	case expired:
		return Undone, fmt.Errorf("%s: %w", m.Time.UTC().Format(time.RFC3339), ErrTooOld)
	case noted:
		return Applied, nil
	}
	return compare(ctx, t, m, `SELECT digest FROM walrelay_kit.inbox_timed
		WHERE consumer = $1 AND message_id = $2 AND sent_at = $3`, m.Consumer, m.ID, m.Time)
}

// noPartition recognises "no partition of relation … found for row": a check_violation that names the
// table and no constraint (ExecFindPartition in src/backend/executor/execPartition.c).
func noPartition(err error) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && server.Code == "23514" && server.TableName == "inbox_timed" && server.ConstraintName == ""
}
