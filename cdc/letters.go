package cdc

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/checkpoint"
)

// Letter is what is recorded of an event that did not reach its topic.
type Letter struct {
	Position checkpoint.Position
	EventID  string
	Table    string // as decoder.Mapping.Name has it
	Topic    string // that the event was meant for; empty: none could be derived
	// KeyDigest and PayloadDigest are SHA-256; nil for a null key or payload.
	KeyDigest, PayloadDigest []byte

	Size     int64 // bytes of the record as it would have been produced
	Reason   string
	Action   checkpoint.Action
	Follow   bool // later events of its key go to the dead-letter topic too
	Recorded time.Time

	Redriven   time.Time // when it was published after all; zero: it was not
	RedrivenBy string    // database role
}

// Letters returns the stream's, oldest first: with all of them also those that were redriven.
func (r *Registry) Letters(ctx context.Context, all bool) ([]Letter, error) {
	rows, err := r.db.Query(ctx, `
		SELECT position, event_id, table_name, topic, key_digest, payload_digest, size, reason, action,
			follow, recorded_at,
			coalesce(redriven_at, '0001-01-01 00:00:00+00'), coalesce(redriven_by, '')
		FROM walrelay.dead_letters WHERE stream = $1 AND ($2 OR redriven_at IS NULL)
		ORDER BY position COLLATE "C"`, r.stream, all)
	if err != nil {
		return nil, Diagnose(fmt.Errorf("read dead letters: %w", err))
	}
	letters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Letter, err error) {
		var position string
		err = row.Scan(&position, &l.EventID, &l.Table, &l.Topic, &l.KeyDigest, &l.PayloadDigest, &l.Size, &l.Reason,
			&l.Action, &l.Follow, &l.Recorded, &l.Redriven, &l.RedrivenBy)
		if err == nil {
			l.Position, err = checkpoint.ParsePosition(position)
		}
		return l, err
	})
	if err != nil {
		return nil, Diagnose(fmt.Errorf("read dead letters: %w", err))
	}
	return letters, nil
}

// RecordRedriven records that the brokers have acknowledged the event in a topic of its own. It waits
// for synchronous standbys: one that forgot it would have the event published twice.
func (r *Registry) RecordRedriven(ctx context.Context, p checkpoint.Position) error {
	return r.exec(ctx, "record redriven event", `
		UPDATE walrelay.dead_letters SET redriven_at = now(), redriven_by = current_user
		WHERE stream = $1 AND position = $2`, r.stream, p.String())
}

// ReleaseKeys lets later events of a key go to their topic again, from the next start on, where no
// letter of the key is left that was not redriven. It returns how many keys those are.
func (r *Registry) ReleaseKeys(ctx context.Context) (keys int64, err error) {
	err = r.db.QueryRow(ctx, `
		WITH released AS (
			UPDATE walrelay.dead_letters d SET follow = false
			WHERE stream = $1 AND follow AND NOT EXISTS (
				SELECT FROM walrelay.dead_letters o
				WHERE o.stream = d.stream AND o.topic = d.topic AND o.key_digest = d.key_digest AND o.redriven_at IS NULL)
			RETURNING topic, key_digest)
		SELECT count(*) FROM (SELECT DISTINCT topic, key_digest FROM released) AS keys`, r.stream).Scan(&keys)
	if err != nil {
		return 0, Diagnose(fmt.Errorf("release keys: %w", err))
	}
	return keys, nil
}

// HoldLetters makes this connection the only one that redrives letters of the stream, until FreeLetters
// or its end, of which the server may hear late. It reports whether no other does.
func (r *Registry) HoldLetters(ctx context.Context) (held bool, err error) {
	err = r.db.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtextextended('walrelay dead letters ' || $1, 0))", r.stream).
		Scan(&held)
	if err != nil {
		return false, Diagnose(fmt.Errorf("lock dead letters: %w", err))
	}
	return held, nil
}

// FreeLetters ends HoldLetters, so that the next command need not wait for the server to notice.
func (r *Registry) FreeLetters(ctx context.Context) error {
	return r.exec(ctx, "unlock dead letters",
		"SELECT pg_advisory_unlock(hashtextextended('walrelay dead letters ' || $1, 0))", r.stream)
}
