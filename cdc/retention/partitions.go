package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// detached is an element of walrelay.streams.detached. It is written before a partition is detached, so
// that the stream knows rows of it for events that it still has to read, and so that a later process drops what
// this one may not come to drop. The last ones stay for a standby whose slot stands further back.
type detached struct {
	OID     uint32 `json:"oid"`
	Name    string `json:"name"`   // of the partition: qualified, quoted
	Schema  string `json:"schema"` // of the outbox
	Table   string `json:"table"`
	Dropped bool   `json:"dropped"`
}

// remembered is how many dropped partitions are kept in mind, of all tables together.
const remembered = 16

// dropPartitions drops one partition whose rows are all confirmed and older than the limit. done is false
// when there was none.
//
//	all rows covered ─► recorded ─► DETACH CONCURRENTLY ─► all rows covered, again ─► DROP
//
// Rows may come in until the partition is detached, so that is asked twice. Neither step locks writers out.
func (k *Keeper) dropPartitions(ctx context.Context, stream Stream, t *table, since string) (done bool, err error) {
	var all []detached
	err = k.conn.QueryRow(ctx, "SELECT detached FROM walrelay.streams WHERE name = $1", k.cfg.Stream).Scan(&all)
	if err != nil {
		return false, fmt.Errorf("read detached partitions: %w", err)
	}
	for i := range all {
		p := &all[i]
		if p.Dropped || p.Schema != t.Schema || p.Table != t.Table {
			continue
		}
		if kept, err := k.keptAfterAll(ctx, t, p, since); err != nil {
			return false, err
		} else if kept {
			return false, k.record(ctx, slices.Delete(all, i, i+1))
		}
		return true, k.finish(ctx, stream, t, since, all, i)
	}
	p, err := k.expired(ctx, t, since)
	if err != nil || p == nil {
		return false, err
	}
	if err := k.awaitCovered(ctx, stream, t); err != nil {
		return false, err
	}
	if kept, err := k.keeps(ctx, t, p.Name, since); err != nil || kept {
		return false, err
	}
	all = append(all, *p)
	if err := k.record(ctx, all); err != nil {
		return false, err
	}
	return true, k.finish(ctx, stream, t, since, all, len(all)-1)
}

// keptAfterAll says that a partition which an earlier process was about to detach has rows to keep by now, as those of
// a gap that was made since.
func (k *Keeper) keptAfterAll(ctx context.Context, t *table, p *detached, since string) (kept bool, err error) {
	var untouched bool
	err = k.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_inherits
		WHERE inhrelid = $1::oid AND inhparent = $2::oid AND NOT inhdetachpending)`, p.OID, t.oid).Scan(&untouched)
	if err != nil {
		return false, fmt.Errorf("look at partition %s: %w", p.Name, err)
	}
	if !untouched {
		return false, nil
	}
	return k.keeps(ctx, t, p.Name, since)
}

// expired finds the oldest partition that ends before the limit, and holds nothing that is to be kept.
func (k *Keeper) expired(ctx context.Context, t *table, since string) (*detached, error) {
	if err := k.checkPending(ctx, t); err != nil {
		return nil, err
	}
	rows, err := k.conn.Query(ctx, `
		SELECT c.oid::int8, format('%I.%I', n.nspname, c.relname) FROM pg_inherits i
		JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE i.inhparent = $1::oid AND NOT i.inhdetachpending
			AND `+upperBound+`::timestamptz <= now() - $2::interval
		ORDER BY `+upperBound+`::timestamptz`, t.oid, k.cfg.Limit)
	if err != nil {
		return nil, fmt.Errorf("read partitions: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (p detached, err error) {
		p = detached{Schema: t.Schema, Table: t.Table}
		return p, r.Scan(&p.OID, &p.Name)
	})
	if err != nil {
		return nil, fmt.Errorf("read partitions: %w", err)
	}
	for _, p := range found {
		switch kept, err := k.keeps(ctx, t, p.Name, since); {
		case err != nil:
			return nil, err
		case !kept:
			return &p, nil
		}
	}
	return nil, nil //nolint:nilnil // none is an answer
}

// checkPending refuses to go on while somebody else's detachment is incomplete: the server allows one at a time.
func (k *Keeper) checkPending(ctx context.Context, t *table) error {
	var name string
	err := k.conn.QueryRow(ctx, `SELECT i.inhrelid::regclass::text FROM pg_inherits i
		WHERE i.inhparent = $1::oid AND i.inhdetachpending`, t.oid).Scan(&name)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("read partitions: %w", err)
	default:
		return fmt.Errorf("somebody's ALTER TABLE ... DETACH PARTITION ... CONCURRENTLY was interrupted; to go on: "+
			"ALTER TABLE %s DETACH PARTITION %s FINALIZE", t.name, name)
	}
}

// upperBound is the end of the range of partition c, in text; NULL for the default partition and for MAXVALUE.
const upperBound = `(regexp_match(pg_get_expr(c.relpartbound, c.oid), $re$ TO \('([^']+)'\)$$re$))[1]`

// keeps says that a partition has a row which is never deleted: see the package comment.
func (k *Keeper) keeps(ctx context.Context, t *table, partition, since string) (kept bool, err error) {
	err = k.conn.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM `+partition+` AS o
				WHERE o.`+t.column+` < $1::text::timestamptz OR o.`+t.column+` >= now() - $2::interval)
			OR EXISTS (SELECT FROM `+partition+` AS o JOIN walrelay.dead_letters d ON o.`+t.id+` = d.event_id::`+t.idType+`
				WHERE d.table_name = $3 AND d.event_id <> ''
					AND to_jsonb(d) ->> 'redriven_at' IS NULL)`, since, k.cfg.Limit, t.Name()).Scan(&kept)
	if err != nil {
		return false, fmt.Errorf("look for rows to keep in %s: %w", partition, err)
	}
	return kept, nil
}

// finish takes a recorded partition from where it stands to its end.
func (k *Keeper) finish(ctx context.Context, stream Stream, t *table, since string, all []detached, i int) error {
	p := &all[i]
	var attached, pending bool
	err := k.conn.QueryRow(ctx, `SELECT i.inhrelid IS NOT NULL, coalesce(i.inhdetachpending, false)
		FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid AND i.inhparent = $2::oid
		WHERE c.oid = $1::oid`, p.OID, t.oid).Scan(&attached, &pending)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // dropped, and not recorded any more
		p.Dropped = true
		return k.record(ctx, all)
	case err != nil:
		return fmt.Errorf("look at partition %s: %w", p.Name, err)
	}
	if attached {
		how := " CONCURRENTLY"
		if pending { // an earlier attempt was interrupted, as by a transaction that did not end
			how = " FINALIZE"
		}
		if _, err := k.conn.Exec(ctx, "ALTER TABLE "+t.name+" DETACH PARTITION "+p.Name+how); err != nil {
			return fmt.Errorf("detach partition %s: %w", p.Name, err)
		}
	}
	if err := k.awaitCovered(ctx, stream, t); err != nil {
		return err
	}
	switch kept, err := k.keeps(ctx, t, p.Name, since); {
	case err != nil:
		return err
	case kept:
		return fmt.Errorf("partition %s is detached, and has got rows that are not deleted: those of "+
			"walrelay.dead_letters, or too young; deal with them, or drop it yourself", p.Name)
	}
	if _, err := k.conn.Exec(ctx, "DROP TABLE "+p.Name); err != nil {
		return fmt.Errorf("drop partition %s: %w", p.Name, err)
	}
	k.count(func(s *Stats) { s.Partitions++ })
	p.Dropped = true
	return k.record(ctx, all)
}

// record replaces the list of detached partitions.
func (k *Keeper) record(ctx context.Context, all []detached) error {
	surplus := -remembered
	for i := range all {
		if all[i].Dropped {
			surplus++
		}
	}
	all = slices.DeleteFunc(all, func(p detached) bool {
		if !p.Dropped || surplus <= 0 {
			return false
		}
		surplus--
		return true
	})
	_, err := k.conn.Exec(ctx, "UPDATE walrelay.streams SET detached = $2, updated_at = now() WHERE name = $1",
		k.cfg.Stream, all)
	if err != nil {
		return fmt.Errorf("record detached partitions: %w", err)
	}
	return nil
}
