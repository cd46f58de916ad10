package cdc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// Release records an operator's verdict on a stuck event. A later verdict replaces an earlier one.
func (r *Registry) Release(ctx context.Context, p checkpoint.Position, v checkpoint.Verdict) error {
	return r.exec(ctx, "record verdict", `
		INSERT INTO walrelay.releases (stream, position, verdict) VALUES ($1, $2, $3)
		ON CONFLICT (stream, position) DO UPDATE
		SET verdict = excluded.verdict, requested_at = now(), requested_by = current_user`,
		r.stream, p.String(), string(v))
}

// Releases returns the verdicts that are not carried out yet.
func (r *Registry) Releases(ctx context.Context) (map[checkpoint.Position]checkpoint.Verdict, error) {
	rows, err := r.db.Query(ctx, "SELECT position, verdict FROM walrelay.releases WHERE stream = $1", r.stream)
	if err != nil {
		return nil, Diagnose(fmt.Errorf("read verdicts: %w", err))
	}
	verdicts := make(map[checkpoint.Position]checkpoint.Verdict)
	var position, verdict string
	_, err = pgx.ForEachRow(rows, []any{&position, &verdict}, func() error {
		p, err := checkpoint.ParsePosition(position)
		verdicts[p] = checkpoint.Verdict(verdict)
		return err
	})
	if err != nil {
		return nil, Diagnose(fmt.Errorf("read verdicts: %w", err))
	}
	return verdicts, nil
}

// ConsumeRelease removes a verdict that was carried out.
func (r *Registry) ConsumeRelease(ctx context.Context, p checkpoint.Position) error {
	return r.exec(ctx, "remove verdict",
		"DELETE FROM walrelay.releases WHERE stream = $1 AND position = $2", r.stream, p.String())
}

// RecordPoison records events that will not reach their topics, all or none of them. It must have
// returned before their sequences are settled. Recording the same event again, as after a crash,
// keeps the newer word. follow sends later events of the same keys after them.
func (r *Registry) RecordPoison(ctx context.Context, poison []checkpoint.Poison, follow bool) error {
	var batch pgx.Batch // one implicit transaction
	for _, p := range poison {
		if p.EventID != "" { // one that a replay has refused before stays one
			batch.Queue(`
				UPDATE walrelay.dead_letters d SET position = $2
				WHERE stream = $1 AND position = $3 AND redriven_at IS NULL
					AND NOT EXISTS (SELECT FROM walrelay.dead_letters WHERE stream = $1 AND position = $2)`,
				r.stream, p.Position.String(), checkpoint.RowPosition(p.Table, p.EventID).String())
		}
		batch.Queue(`
			INSERT INTO walrelay.dead_letters (stream, position, event_id, table_name, topic, key_digest, payload_digest,
				size, reason, action, follow)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
			ON CONFLICT (stream, position) DO UPDATE
			SET reason = excluded.reason, action = excluded.action, follow = excluded.follow, recorded_at = now()`,
			r.stream, p.Position.String(), recordable(p.EventID), p.Table, p.Topic, p.KeyDigest, p.PayloadDigest,
			p.Size, p.Reason, string(p.Action), follow)
	}
	if err := r.db.SendBatch(ctx, &batch).Close(); err != nil {
		return Diagnose(fmt.Errorf("record dead letters: %w", err))
	}
	return nil
}

// recordable is an event's id as a column of text can hold it: a message's may have a NUL.
func recordable(id string) string { return strings.ReplaceAll(id, "\x00", "\uFFFD") }

// RecordRefused records rows that a replay could not publish, all or none of them, under their RowPosition; those
// without an id are left out, since nothing could find them again. What is recorded of a row before stays the one
// word on it: the position of its event, if the stream has met it, or the newer reason.
func (r *Registry) RecordRefused(ctx context.Context, poison []checkpoint.Poison) error {
	var positions, ids, tables, topics, reasons, actions []string
	var keys, payloads [][]byte
	var sizes []int64
	for _, p := range poison {
		if p.EventID == "" {
			continue
		}
		positions, ids = append(positions, checkpoint.RowPosition(p.Table, p.EventID).String()), append(ids, p.EventID)
		tables, topics = append(tables, p.Table), append(topics, p.Topic)
		keys, payloads = append(keys, p.KeyDigest), append(payloads, p.PayloadDigest)
		sizes = append(sizes, int64(p.Size))
		reasons, actions = append(reasons, p.Reason), append(actions, string(p.Action))
	}
	if len(ids) == 0 {
		return nil
	}
	// One statement, so that the table is gone through once.
	return r.exec(ctx, "record refused rows", `
		INSERT INTO walrelay.dead_letters (stream, position, event_id, table_name, topic, key_digest, payload_digest,
			size, reason, action)
		SELECT DISTINCT ON (p.position) $1::text, p.* FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[],
				$7::bytea[], $8::int8[], $9::text[], $10::text[])
			AS p (position, event_id, table_name, topic, key_digest, payload_digest, size, reason, action)
		WHERE NOT EXISTS (SELECT FROM walrelay.dead_letters d WHERE d.stream = $1 AND d.table_name = p.table_name
			AND d.event_id = p.event_id AND d.position <> p.position AND d.redriven_at IS NULL)
		ON CONFLICT (stream, position) DO UPDATE
		SET topic = excluded.topic, key_digest = excluded.key_digest, payload_digest = excluded.payload_digest,
			size = excluded.size, reason = excluded.reason, action = excluded.action, recorded_at = now(),
			redriven_at = NULL, redriven_by = NULL`,
		r.stream, positions, ids, tables, topics, keys, payloads, sizes, reasons, actions)
}

// DeadKeys returns the keys whose events go to the dead-letter topic because an earlier one did.
func (r *Registry) DeadKeys(ctx context.Context) (map[checkpoint.DeadKey]struct{}, error) {
	rows, err := r.db.Query(ctx, `
		SELECT DISTINCT topic, key_digest FROM walrelay.dead_letters
		WHERE stream = $1 AND follow AND length(key_digest) = 32`, r.stream)
	if err != nil {
		return nil, Diagnose(fmt.Errorf("read dead keys: %w", err))
	}
	keys := make(map[checkpoint.DeadKey]struct{})
	var topic string
	var digest []byte
	_, err = pgx.ForEachRow(rows, []any{&topic, &digest}, func() error {
		keys[checkpoint.DeadKey{Topic: topic, KeyDigest: [32]byte(digest)}] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, Diagnose(fmt.Errorf("read dead keys: %w", err))
	}
	return keys, nil
}

// Summary is what is recorded of a stream, for an operator to read.
type Summary struct {
	Epoch              uint32
	SystemID           string
	Timeline           uint32
	Slot, Publication  string
	Created, Confirmed pglogrepl.LSN // zero: the slot was not created yet
	Delivery           string
	Pause              *Pause // nil: the stream is not paused
	Origin             uint32 // epoch under which the line of states in Kafka began; 0: none has
	Partitions         map[string]int32
	Releases           map[checkpoint.Position]checkpoint.Verdict // not carried out yet
	DeadLetters        map[checkpoint.Action]int64
	LeftOut            *LeftOut // nil: nothing is
	GivenUp            *GivenUp // nil: the slot was not
}

// Summary reads what is recorded of the stream.
func (r *Registry) Summary(ctx context.Context) (*Summary, error) {
	row, err := r.load(ctx)
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, notRegistered(r.stream)
	}
	sum := &Summary{
		Epoch: row.Epoch, SystemID: row.SystemID, Timeline: row.Timeline, Slot: row.Slot, Publication: row.Publication,
		Created: row.Created, Confirmed: row.Confirmed, Delivery: row.Delivery, Origin: row.Origin,
		Partitions: row.Partitions, LeftOut: row.LeftOut, GivenUp: row.GivenUp,
		DeadLetters: make(map[checkpoint.Action]int64),
	}
	if sum.Pause, err = r.Paused(ctx); err != nil {
		return nil, err
	}
	if sum.Releases, err = r.Releases(ctx); err != nil {
		return nil, err
	}
	rows, err := r.db.Query(ctx,
		"SELECT action, count(*) FROM walrelay.dead_letters WHERE stream = $1 GROUP BY action", r.stream)
	if err != nil {
		return nil, Diagnose(fmt.Errorf("count dead letters: %w", err))
	}
	var action string
	var count int64
	_, err = pgx.ForEachRow(rows, []any{&action, &count}, func() error {
		sum.DeadLetters[checkpoint.Action(action)] = count
		return nil
	})
	if err != nil {
		return nil, Diagnose(fmt.Errorf("count dead letters: %w", err))
	}
	return sum, nil
}

// RowRetained reports whether the event's row is still in its outbox table, so that an event which
// fits nowhere can be published later.
func (r *Registry) RowRetained(ctx context.Context, m *decoder.Mapping, eventID string) (bool, error) {
	// Compared as the column's own type, so that its index is used.
	var idType string
	err := r.db.QueryRow(ctx, `
		SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
		WHERE a.attrelid = to_regclass($1) AND a.attname = $2 AND NOT a.attisdropped`,
		tableName(m.Schema, m.Table), m.ID).Scan(&idType)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil // neither table nor column: the row cannot be found by its id
	}
	if err != nil {
		return false, Diagnose(fmt.Errorf("look up row: %w", err))
	}
	var found bool
	err = r.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+tableName(m.Schema, m.Table)+
		" WHERE "+pgx.Identifier{m.ID}.Sanitize()+" = $1::text::"+idType+")", eventID).Scan(&found)
	if err != nil {
		return false, Diagnose(fmt.Errorf("look up row: %w", err))
	}
	return found, nil
}
