package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/decoder"
)

// Ahead says which partitions an outbox shall have. All fields are required.
type Ahead struct {
	// Column is the time by whose ranges the table is partitioned.
	Column string
	// Every is how long a partition is.
	Every Every
	// For is the time from now on that shall be covered.
	For time.Duration
	// Pause is the time between two attempts to get a lock, which are lockTries.
	Pause time.Duration
}

// Created is a partition that was made.
type Created struct {
	Name string // qualified, quoted
	span
}

const (
	lockTries = 10
	// lockWait is how long the lock on the table is waited for. Writers go on meanwhile, VACUUM does not.
	lockWait = "2s"
)

// Make makes the partitions that are missing, oldest first, up to the first error; none is no error. Several may
// run at once: one makes a partition and the others find it.
//
// A table is made first and attached then, since CREATE TABLE … PARTITION OF would lock writers out while it waits
// for its turn. To attach takes a lock that lets them go on, but for the one on a default partition: if that has
// rows it would be read through meanwhile, and is refused.
func (a *Ahead) Make(ctx context.Context, db *pgx.Conn, m *decoder.Mapping) (made []Created, err error) {
	p, err := a.inspect(ctx, db, m)
	if err != nil {
		return nil, err
	}
	var now time.Time
	if err := db.QueryRow(ctx, "SELECT now()").Scan(&now); err != nil {
		return nil, fmt.Errorf("read the time: %w", err)
	}
	for _, s := range a.Every.missing(p.spans, now, now.Add(a.For)) {
		created := Created{Name: p.partition(s), span: s}
		done, err := a.make(ctx, db, p, created)
		if err != nil {
			return made, fmt.Errorf("make partition %s: %w", created.Name, err)
		}
		if done {
			made = append(made, created)
		}
	}
	return made, nil
}

// make tries until it gets the locks. done is false when somebody else has made the partition.
func (a *Ahead) make(ctx context.Context, db *pgx.Conn, p *partitioned, c Created) (done bool, err error) {
	for try := 1; ; try++ {
		done, err = p.attach(ctx, db, c)
		if server, ok := errors.AsType[*pgconn.PgError](err); !ok || server.Code != "55P03" || try == lockTries {
			return done, err // lock_not_available is worth another try
		}
		if err := rest(ctx, a.Pause); err != nil {
			return false, err
		}
	}
}

// partitioned is an outbox as Ahead sees it.
type partitioned struct {
	decoder.Mapping

	oid   uint32
	owner string // a role
	mine  bool   // it is the current one
	spans []span
}

func (p *partitioned) sql() string { return pgx.Identifier{p.Schema, p.Table}.Sanitize() }

// partition names the partition of a range: public.outbox_p20261130, with the hour where it begins within a day.
func (p *partitioned) partition(s span) string {
	format := "20060102"
	if !s.begin.Equal(s.begin.Truncate(24 * time.Hour)) {
		format = "20060102t1504"
	}
	return pgx.Identifier{p.Schema, p.Table + "_p" + s.begin.Format(format)}.Sanitize()
}

// maxTable leaves room, of NAMEDATALEN - 1 bytes, for what partition appends.
const maxTable = 63 - len("_p20060102t1504")

func (a *Ahead) inspect(ctx context.Context, db *pgx.Conn, m *decoder.Mapping) (*partitioned, error) {
	p := &partitioned{Mapping: *m}
	var byTime bool
	var kind, spare string
	err := db.QueryRow(ctx, `
		SELECT c.oid::int8, pg_get_userbyid(c.relowner)::text, c.relowner = current_user::regrole,
			coalesce(t.partstrat = 'r' AND t.partnatts = 1 AND t.partattrs[0] = a.attnum, false),
			coalesce(format_type(a.atttypid, NULL), ''),
			coalesce((SELECT d.oid::regclass::text FROM pg_class d WHERE d.oid = t.partdefid), '')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_partitioned_table t ON t.partrelid = c.oid
		LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = $3 AND NOT a.attisdropped
		WHERE n.nspname = $1 AND c.relname = $2`, m.Schema, m.Table, a.Column).
		Scan(&p.oid, &p.owner, &p.mine, &byTime, &kind, &spare)
	object := "table " + p.sql()
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, &cdc.FatalError{Object: object, Problem: "does not exist", Remedy: "correct WALRELAY_TABLES"}
	case err != nil:
		return nil, fmt.Errorf("inspect %s: %w", object, cdc.Diagnose(err))
	case !byTime || !isTime(kind):
		return nil, &cdc.FatalError{
			Object: object, Problem: fmt.Sprintf("is not partitioned by ranges of a time column %q", a.Column),
			Remedy: "name the column: WALRELAY_RETENTION_COLUMN, or retention of the table in WALRELAY_TABLE_COLUMNS; or " +
				"another table: --table",
		}
	case kind == "date" && a.Every == Hourly:
		return nil, &cdc.FatalError{
			Object: object, Problem: fmt.Sprintf("has the column %q of type date, which has no hours", a.Column),
			Remedy: "take --every=day",
		}
	case len(m.Table) > maxTable:
		return nil, &cdc.FatalError{
			Object: object, Problem: fmt.Sprintf("has a name of more than %d bytes, which leaves partitions none", maxTable),
			Remedy: "make partitions by hand, or ALTER TABLE … RENAME",
		}
	}
	if spare != "" {
		if err := p.checkDefault(ctx, db, spare); err != nil {
			return nil, err
		}
	}
	p.spans, err = readSpans(ctx, db, p.oid)
	return p, err
}

// checkDefault refuses a default partition that has rows.
func (p *partitioned) checkDefault(ctx context.Context, db *pgx.Conn, name string) error {
	rows, err := hasRows(ctx, db, name, true)
	if err != nil {
		return fmt.Errorf("look into partition %s: %w", name, cdc.Diagnose(err))
	}
	if !rows {
		return nil
	}
	return &cdc.FatalError{
		Object:  "table " + p.sql(),
		Problem: "has rows in its default partition " + name + ", which would be locked and read through",
		Remedy: "delete them once they are published, as WALRELAY_RETENTION does; moved to another partition, they " +
			"would be published again",
	}
}

// readSpans lists what the partitions cover; the session's time zone is UTC.
func readSpans(ctx context.Context, db *pgx.Conn, oid uint32) ([]span, error) {
	rows, err := db.Query(ctx, `
		SELECT CASE WHEN b ~ 'FROM \(MINVALUE\)' THEN '-infinity' ELSE (regexp_match(b, $re$FROM \('([^']+)'\)$re$))[1] END
				::timestamptz,
			CASE WHEN b ~ 'TO \(MAXVALUE\)' THEN 'infinity' ELSE (regexp_match(b, $re$TO \('([^']+)'\)$re$))[1] END::timestamptz
		FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid, pg_get_expr(c.relpartbound, c.oid) AS b
		WHERE i.inhparent = $1::oid AND b <> 'DEFAULT' ORDER BY 1`, oid)
	if err != nil {
		return nil, fmt.Errorf("read partitions: %w", err)
	}
	spans, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (s span, err error) {
		var begin, end infinite
		err = r.Scan(&begin, &end)
		return span{time.Time(begin), time.Time(end)}, err
	})
	if err != nil {
		return nil, fmt.Errorf("read partitions: %w", err)
	}
	return spans, nil
}

// attach makes one partition in a transaction of its own. done is false when its range is covered already.
func (p *partitioned) attach(ctx context.Context, db *pgx.Conn, c Created) (done bool, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		// The lock's two keys are 'part' in ASCII and the table's OID.
		_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+lockWait+"'")
		if err == nil {
			_, err = tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, $2::int8::bit(32)::int4)", 0x70617274, int64(p.oid))
		}
		if err != nil {
			return err
		}
		spans, err := readSpans(ctx, tx.Conn(), p.oid)
		if err != nil || c.within(spans) {
			return err
		}
		bounds := fmt.Sprintf(" FOR VALUES FROM ('%s') TO ('%s')", c.begin.Format(boundTime), c.end.Format(boundTime))
		statements := []string{ // an identity column would not be attached; the table gives the value
			"CREATE TABLE " + c.Name + " (LIKE " + p.sql() + " INCLUDING ALL EXCLUDING IDENTITY)",
			"ALTER TABLE " + p.sql() + " ATTACH PARTITION " + c.Name + bounds,
		}
		if !p.mine {
			statements = append(statements, "ALTER TABLE "+c.Name+" OWNER TO "+pgx.Identifier{p.owner}.Sanitize())
		}
		for _, sql := range statements {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		done = true
		return nil
	})
	return done && err == nil, err
}

const boundTime = "2006-01-02 15:04:05.999999+00" // a fraction only where there is one
