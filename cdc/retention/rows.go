package retention

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// choice is how many rows are remembered at most, in some 150 bytes each.
	choice = 10_000
	// batch is how many rows one statement deletes at most: some 10 ms of work.
	batch = 500
)

// row is a chosen row, in the server's text: to compare it is the server's affair.
type row struct {
	id, xmin string
	at       string // the value of the time column
}

// deletable is the condition on a row, whose names are o.id, o.at and so on: see the package comment.
// $1 is Limit, $2 covered_since and $3 the table's name in the ledger. An event that was redriven counts as
// delivered; a ledger without that column has none.
func (t *table) deletable() string {
	return "o." + t.column + " < now() - $1::interval AND o." + t.column + ` >= $2::text::timestamptz
		AND NOT EXISTS (SELECT FROM walrelay.dead_letters d WHERE d.table_name = $3 AND d.event_id = o.` + t.id + `::text
			AND to_jsonb(d) ->> 'redriven_at' IS NULL)`
}

// choose finds rows to delete, in no particular order of their times: the oldest first would mean to read
// the whole table where the column has no index.
func (k *Keeper) choose(ctx context.Context, t *table, since string) ([]row, error) {
	began := time.Now()
	rows, err := k.conn.Query(ctx, `
		SELECT id, xmin, at::text FROM (
			SELECT o.`+t.id+`::text AS id, o.xmin::text AS xmin, o.`+t.column+` AS at FROM `+t.name+` AS o
			WHERE `+t.deletable()+` LIMIT $4) AS chosen
		ORDER BY at`, k.cfg.Limit, since, t.Name(), choice)
	if err != nil {
		return nil, fmt.Errorf("choose rows: %w", err)
	}
	chosen, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (c row, err error) {
		return c, r.Scan(&c.id, &c.xmin, &c.at)
	})
	if err != nil {
		return nil, fmt.Errorf("choose rows: %w", err)
	}
	return chosen, relax(ctx, began)
}

// relax pauses for as much longer than the work took as share demands.
func relax(ctx context.Context, began time.Time) error {
	return rest(ctx, (share-1)*time.Since(began))
}

// remove deletes the chosen rows but for those that are locked, or have changed since they were chosen. They
// are sorted by time, so that each statement looks at few partitions.
func (k *Keeper) remove(ctx context.Context, stream Stream, t *table, since string, chosen []row) (bool, error) {
	sql := `
		WITH free AS MATERIALIZED (
			SELECT o.tableoid AS part, o.ctid AS place
			FROM unnest($4::text[], $5::text[]) AS chosen (id, xmin)
			JOIN ` + t.name + ` AS o ON o.` + t.id + ` = chosen.id::` + t.idType + ` AND o.xmin = chosen.xmin::xid
			WHERE o.` + t.column + ` BETWEEN $6::text::` + t.columnType + ` AND $7::text::` + t.columnType + `
				AND ` + t.deletable() + `
			FOR UPDATE OF o SKIP LOCKED)
		DELETE FROM ` + t.name + ` AS o USING free
		WHERE o.tableoid = free.part AND o.ctid = free.place
			AND o.` + t.column + ` BETWEEN $6::text::` + t.columnType + ` AND $7::text::` + t.columnType
	done := false
	for len(chosen) > 0 {
		if _, err := k.covered(stream); err != nil {
			return done, err
		}
		some := chosen[:min(batch, len(chosen))]
		chosen = chosen[len(some):]
		ids, xmins := make([]string, len(some)), make([]string, len(some))
		for i, c := range some {
			ids[i], xmins[i] = c.id, c.xmin
		}
		began := time.Now()
		tag, err := k.conn.Exec(ctx, sql, k.cfg.Limit, since, t.Name(), ids, xmins, some[0].at, some[len(some)-1].at)
		if err != nil {
			return done, fmt.Errorf("delete rows: %w", err)
		}
		done = done || tag.RowsAffected() > 0
		k.count(func(s *Stats) { s.Rows += uint64(tag.RowsAffected()) })
		if err := relax(ctx, began); err != nil {
			return done, err
		}
	}
	return done, nil
}

// lookForOldest finds the oldest row where an index tells it.
func (k *Keeper) lookForOldest(ctx context.Context) error {
	var oldest time.Time
	for i := range k.tables {
		t := &k.tables[i]
		if !t.indexed || !t.readable {
			return nil
		}
		var at *time.Time
		err := k.conn.QueryRow(ctx, "SELECT min(o."+t.column+")::timestamptz FROM "+t.name+" AS o").Scan(&at)
		if err != nil {
			return t.diagnose(fmt.Errorf("look for the oldest row: %w", err))
		}
		if at != nil && (oldest.IsZero() || at.Before(oldest)) {
			oldest = *at
		}
	}
	k.count(func(s *Stats) { s.Oldest = oldest })
	return nil
}
