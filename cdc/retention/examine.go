package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/cdc"
)

// Examine looks at the outbox tables on a connection of cdc.Connect, and changes nothing: whether rows may be
// deleted, unless Limit is 0, and whether the partitions of the times to come are there. That a column is missing,
// or no time, Check says.
func Examine(ctx context.Context, db *pgx.Conn, cfg *Config) (findings []cdc.Finding) {
	unknown := func(check, object string, err error) {
		findings = append(findings, cdc.Finding{
			Check: check, Object: object, Level: cdc.LevelUnknown, Found: "could not be looked at: " + cdc.Reason(err),
			Why: "what is wrong here stays unseen", Fix: "run `walrelay doctor` again",
		})
	}
	tables, err := inspect(ctx, db, cfg)
	if err != nil {
		unknown("retention", "outbox tables", err)
		return findings
	}
	for i := range tables {
		t := &tables[i]
		if cfg.Limit > 0 && t.checkColumn() == nil {
			findings = append(findings, t.examine())
		}
		f, err := t.examinePartitions(ctx, db)
		if err != nil {
			unknown(partitionsCheck, t.object(), err)
		}
		if f != nil {
			findings = append(findings, *f)
		}
	}
	return findings
}

const partitionsCheck = "partitions"

func (t *table) object() string { return "table " + t.name }

// examine says how rows will be deleted, or what keeps them.
func (t *table) examine() cdc.Finding {
	f := cdc.Finding{Check: "retention", Object: t.object(), Level: cdc.LevelOK}
	switch {
	case t.mayDelete() != nil:
		f.Level, f.Found = cdc.LevelWarning, fmt.Sprintf("role %q may not delete from it", t.role)
		f.Why, f.Fix = "the stream runs, and rows stay whatever their age", t.grant()
	case t.droppable:
		f.Found = "whole partitions are dropped, by the end of their range of " + t.column
	case t.indexed:
		f.Found = "rows are deleted, and found by an index that begins with " + t.column
	default:
		f.Found = "rows are deleted, and found by reading the table: no index begins with " + t.column
	}
	return f
}

// soon is the time before which partitions that end are worth a warning.
const soon = 24 * time.Hour

// examinePartitions says up to when there are partitions, where the table is partitioned by ranges of one time;
// otherwise it returns nil.
func (t *table) examinePartitions(ctx context.Context, db *pgx.Conn) (*cdc.Finding, error) {
	var kind, spare string
	var readable bool
	var now time.Time
	err := db.QueryRow(ctx, `
		SELECT format_type(a.atttypid, NULL), coalesce(d.oid::regclass::text, ''),
			coalesce(has_table_privilege(d.oid, 'SELECT'), false), now()
		FROM pg_partitioned_table p JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
		LEFT JOIN pg_class d ON d.oid = p.partdefid
		WHERE p.partrelid = $1::oid AND p.partstrat = 'r' AND p.partnatts = 1`, t.oid).Scan(&kind, &spare, &readable, &now)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil //nolint:nilnil // there is nothing to say
	case err != nil:
		return nil, err
	case !isTime(kind):
		return nil, nil //nolint:nilnil // likewise
	}
	spans, err := readSpans(ctx, db, t.oid)
	if err != nil {
		return nil, err
	}
	until := coveredFrom(now, spans)
	f := &cdc.Finding{
		Check: partitionsCheck, Object: t.object(), Level: cdc.LevelWarning,
		Fix: "walrelay partitions create, now and from cron",
	}
	switch rows, err := hasRows(ctx, db, spare, readable); {
	case err != nil:
		return nil, err
	case rows:
		f.Found = "its default partition " + spare + " has rows"
		f.Why = "no partition can be made for the times of these rows, and retention deletes row by row"
		f.Fix = "delete them once they are published, and then: " + f.Fix
	case until.Equal(now) && spare == "":
		f.Level, f.Found = cdc.LevelFault, "has no partition for the present"
		f.Why = "inserts fail, and the application's transactions with them"
	case until.Before(now.Add(soon)):
		f.Found = "its partitions end at " + until.UTC().Format(time.RFC3339)
		f.Why = "inserts fail from then on, and the application's transactions with them"
		if spare != "" {
			f.Why = "rows go to the default partition from then on, and no partition can be made for their times"
		}
	default:
		return &cdc.Finding{
			Check: partitionsCheck, Object: t.object(), Level: cdc.LevelOK,
			Found: "there are partitions up to " + until.UTC().Format(time.RFC3339),
		}, nil
	}
	return f, nil
}

// coveredFrom is the end of the time that is covered without a gap from a moment on.
func coveredFrom(at time.Time, spans []span) time.Time {
	for {
		i := slices.IndexFunc(spans, func(s span) bool { return s.holds(at) })
		if i < 0 {
			return at
		}
		at = spans[i].end
	}
}

// hasRows looks into a default partition, if there is one and the role may read it.
func hasRows(ctx context.Context, db *pgx.Conn, name string, readable bool) (rows bool, err error) {
	if !readable {
		return false, nil
	}
	err = db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+name+")").Scan(&rows)
	return rows, err
}
