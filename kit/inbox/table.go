package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/kit/tx"
)

// Table records each message as a row of walrelay_kit.inbox, whose primary key is (consumer, id). It knows
// every message in any order, however often it was published, until Expire forgets it.
type Table struct{}

// Record implements Recorder.
func (Table) Record(ctx context.Context, t tx.Tx, m Message) (Outcome, error) {
	// Of two transactions that insert the same key, the second waits for the first: it finds a duplicate
	// when that commits, and inserts when that rolls back.
	tag, err := t.Exec(ctx, `INSERT INTO walrelay_kit.inbox (consumer, message_id, digest) VALUES ($1, $2, $3)
		ON CONFLICT DO NOTHING`, m.Consumer, m.ID, m.Digest)
	if err != nil {
		return Undone, err
	}
	if tag.RowsAffected() == 1 {
		return Applied, nil
	}
	return compare(ctx, t, m, `SELECT digest FROM walrelay_kit.inbox WHERE consumer = $1 AND message_id = $2`,
		m.Consumer, m.ID)
}

// compare returns Duplicate unless the query finds another digest than the message's.
func compare(ctx context.Context, t tx.Tx, m Message, query string, args ...any) (Outcome, error) {
	if m.Digest == nil {
		return Duplicate, nil
	}
	var digest []byte
	err := t.QueryRow(ctx, query, args...).Scan(&digest)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // expired at this moment
	case err != nil:
		return Undone, fmt.Errorf("read digest: %w", err)
	case digest != nil && !bytes.Equal(digest, m.Digest):
		return Undone, fmt.Errorf("consumer %s, message %s: %w", m.Consumer, m.ID, ErrBodyChanged)
	}
	return Duplicate, nil
}

// Expire deletes up to limit records that are older than keep.Keep, and returns how many. Call it until
// that is less than limit, each time in a transaction of its own, so that no lock is held for long.
func (Table) Expire(ctx context.Context, t tx.Tx, keep Retention, limit int) (deleted int64, err error) {
	if err := keep.Validate(); err != nil {
		return 0, err
	}
	tag, err := t.Exec(ctx, `DELETE FROM walrelay_kit.inbox WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM walrelay_kit.inbox WHERE seen_at < now() - $1::interval LIMIT $2 FOR UPDATE SKIP LOCKED))`,
		keep.Keep, limit)
	if err != nil {
		return 0, fmt.Errorf("expire records: %w", err)
	}
	return tag.RowsAffected(), nil
}
