package inbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	partitionPrefix = "inbox_timed_"
	partitionTime   = "20060102t1504" // UTC; a name has the beginning and the end of its range
	ahead           = 48 * time.Hour  // at least, and three partitions: how long Maintain may fail to run

	// maintainLock is the key of the advisory lock that Maintain holds: "kitinbox" in ASCII.
	maintainLock int64 = 0x6B6974696E626F78
)

// partition is a table for the messages of the times from begin on, before end.
type partition struct {
	name       string
	begin, end time.Time
	attached   bool
	pending    bool // a DETACH CONCURRENTLY was interrupted
}

// Maintain makes the partitions for the time that is kept and for at least two days ahead, and drops those
// of which every message is older than Keep. Run it before the first message and then once per Width
// or day, on any number of instances: one works, the others return at once.
//
// It blocks no consumer: partitions are attached, and detached CONCURRENTLY, under locks that let inserts
// go on. Detaching waits for the transactions that use the table; when ctx ends meanwhile, a later call
// finishes it. That cannot be done within a transaction, so conn must not be in one (with a pool:
// Acquire, then Conn), nor behind a pooler that shares connections between transactions.
func (p Partitions) Maintain(ctx context.Context, conn *pgx.Conn) (created, dropped int, err error) {
	if err := p.Validate(); err != nil {
		return 0, 0, err
	}
	var mine bool
	var now time.Time
	err = conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1), now()", maintainLock).Scan(&mine, &now)
	if err != nil {
		return 0, 0, fmt.Errorf("lock partitions: %w", err)
	}
	if !mine {
		return 0, 0, nil
	}
	defer func() {
		ctx, cancel := uncancelled(ctx)
		defer cancel()
		_, _ = conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", maintainLock) // a lost connection has lost it too
	}()

	existing, err := readPartitions(ctx, conn)
	if err != nil {
		return 0, 0, fmt.Errorf("read partitions: %w", err)
	}
	oldest := now.Add(-p.Keep)
	for _, part := range existing {
		if part.end.After(oldest) && !part.pending {
			continue
		}
		if err := drop(ctx, conn, part); err != nil {
			return created, dropped, fmt.Errorf("drop partition %s: %w", part.name, err)
		}
		dropped++
	}
	for _, part := range missing(existing, oldest, now.Add(max(ahead, 3*p.Width)), p.Width) {
		if err := create(ctx, conn, part); err != nil {
			return created, dropped, fmt.Errorf("create partition %s: %w", part.name, err)
		}
		created++
	}
	return created, dropped, nil
}

// readPartitions lists the tables named as partitions, those whose detaching was interrupted included.
func readPartitions(ctx context.Context, conn *pgx.Conn) ([]partition, error) {
	rows, err := conn.Query(ctx, `
		SELECT c.relname, i.inhrelid IS NOT NULL, coalesce(i.inhdetachpending, false)
		FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
		WHERE c.relnamespace = 'walrelay_kit'::regnamespace AND c.relkind = 'r'
			AND c.relname ~ '^inbox_timed_[0-9]{8}t[0-9]{4}_[0-9]{8}t[0-9]{4}$' ORDER BY c.relname`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p partition, err error) {
		if err := row.Scan(&p.name, &p.attached, &p.pending); err != nil {
			return p, err
		}
		begin, end, _ := strings.Cut(strings.TrimPrefix(p.name, partitionPrefix), "_")
		if p.begin, err = time.Parse(partitionTime, begin); err != nil {
			return p, err
		}
		p.end, err = time.Parse(partitionTime, end)
		return p, err
	})
}

func drop(ctx context.Context, conn *pgx.Conn, p partition) error {
	detach := ""
	switch {
	case p.pending:
		detach = " FINALIZE"
	case p.attached:
		detach = " CONCURRENTLY"
	}
	if detach != "" {
		_, err := conn.Exec(ctx, "ALTER TABLE walrelay_kit.inbox_timed DETACH PARTITION walrelay_kit."+p.name+detach)
		if err != nil {
			return err
		}
	}
	_, err := conn.Exec(ctx, "DROP TABLE walrelay_kit."+p.name)
	return err
}

// missing are the partitions that cover the time from begin to end together with the existing ones,
// which may be of another width.
func missing(existing []partition, begin, end time.Time, width time.Duration) (parts []partition) {
	slices.SortFunc(existing, func(a, b partition) int { return a.begin.Compare(b.begin) })
	for at := begin.UTC().Truncate(width); at.Before(end); {
		next := at.Truncate(width).Add(width)
		covered := false
		for _, e := range existing {
			if !e.begin.After(at) && e.end.After(at) {
				next, covered = e.end, true
				break
			}
			if e.begin.After(at) && e.begin.Before(next) {
				next = e.begin
			}
		}
		if !covered {
			name := partitionPrefix + at.Format(partitionTime) + "_" + next.Format(partitionTime)
			parts = append(parts, partition{name: name, begin: at, end: next})
		}
		at = next
	}
	return parts
}

// create makes the table first and attaches it then, since CREATE TABLE … PARTITION OF would lock
// consumers out while it waits for its turn.
func create(ctx context.Context, conn *pgx.Conn, p partition) error {
	bounds := fmt.Sprintf("FROM ('%s') TO ('%s')", p.begin.Format(time.RFC3339), p.end.Format(time.RFC3339))
	return pgx.BeginFunc(ctx, conn, func(t pgx.Tx) error {
		_, err := t.Exec(ctx, "CREATE TABLE walrelay_kit."+p.name+
			" (LIKE walrelay_kit.inbox_timed INCLUDING ALL)")
		if err != nil {
			return err
		}
		_, err = t.Exec(ctx, "ALTER TABLE walrelay_kit.inbox_timed ATTACH PARTITION walrelay_kit."+p.name+
			" FOR VALUES "+bounds)
		return err
	})
}
