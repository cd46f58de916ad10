package cdc

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

func (e *examination) transactionChecks() []check {
	return []check{
		{"open-transactions", serverObject, e.openTransactions},
		{"prepared-transactions", serverObject, e.preparedTransactions},
		{"catalog-xmin", quoted("slot", e.cfg.Slot), e.catalogXmin},
	}
}

const pinsLog = "the server keeps the write-ahead log from its beginning on, in whatever database it is, and " +
	"a new slot waits for its end"

// openTransactions is about transactions that have written: only they have an id, and pin the log.
func (e *examination) openTransactions(ctx context.Context) error {
	rows, err := e.server.SQL.Query(ctx, `
		SELECT pid, coalesce(usename::text, ''), coalesce(datname::text, ''), coalesce(state, ''),
			now() - xact_start
		FROM pg_stat_activity
		WHERE backend_xid IS NOT NULL AND (xact_start IS NULL OR now() - xact_start > $1)
		ORDER BY age(backend_xid) DESC LIMIT 20`, e.openTooLong)
	if err != nil {
		return err
	}
	var pid, hidden, old int
	var role, database, state string
	var age *time.Duration
	_, err = pgx.ForEachRow(rows, []any{&pid, &role, &database, &state, &age}, func() error {
		if age == nil { // another role's, which only pg_read_all_stats may see
			hidden++
			return nil
		}
		old++
		e.add(Finding{
			Check: "open-transactions", Object: "server process " + strconv.Itoa(pid), Level: LevelWarning,
			Found: fmt.Sprintf("transaction of role %q in database %q, open for %s, %s",
				role, database, age.Round(time.Second), state),
			Why: pinsLog, Fix: "SELECT pg_terminate_backend(" + strconv.Itoa(pid) + ")",
		})
		return nil
	})
	if err != nil {
		return err
	}
	if hidden > 0 {
		e.add(Finding{
			Check: "open-transactions", Object: serverObject, Level: LevelUnknown,
			Found: fmt.Sprintf("the age of %d transactions of other roles is hidden from role %q", hidden, e.role),
			Why:   "an old one pins the write-ahead log",
			Fix:   "GRANT pg_read_all_stats TO " + pgx.Identifier{e.role}.Sanitize(),
		})
	}
	if hidden+old == 0 {
		e.add(ok("open-transactions", serverObject, "none is open for longer than "+e.openTooLong.String()))
	}
	return nil
}

func (e *examination) preparedTransactions(ctx context.Context) error {
	rows, err := e.server.SQL.Query(ctx, `
		SELECT gid, owner::text, database::text, now() - prepared FROM pg_prepared_xacts
		WHERE now() - prepared > $1 ORDER BY age(transaction) DESC LIMIT 20`, e.openTooLong)
	if err != nil {
		return err
	}
	var gid, owner, database string
	var age time.Duration
	old := 0
	_, err = pgx.ForEachRow(rows, []any{&gid, &owner, &database, &age}, func() error {
		old++
		e.add(Finding{
			Check: "prepared-transactions", Object: quoted("prepared transaction", gid), Level: LevelWarning,
			Found: fmt.Sprintf("of role %q in database %q, prepared %s ago", owner, database, age.Round(time.Second)),
			Why:   pinsLog + ". Ask its coordinator first: COMMIT PREPARED if it has decided so; either in that database",
			Fix:   "ROLLBACK PREPARED " + quoteLiteral(gid),
		})
		return nil
	})
	if err == nil && old == 0 {
		e.add(ok("prepared-transactions", serverObject, "none is older than "+e.openTooLong.String()))
	}
	return err
}

func (e *examination) catalogXmin(ctx context.Context) error {
	if !e.slot.Exists {
		return nil
	}
	var freeze int64
	err := e.server.SQL.QueryRow(ctx, "SELECT current_setting('autovacuum_freeze_max_age')::bigint").Scan(&freeze)
	if err != nil {
		return err
	}
	e.add(judgeCatalogXmin(e.slot, freeze))
	return nil
}

// judgeCatalogXmin warns at half the age at which the server vacuums whole tables to freeze them.
func judgeCatalogXmin(slot Slot, freeze int64) Finding {
	f := ok("catalog-xmin", quoted("slot", slot.Name),
		fmt.Sprintf("holds back vacuum of the catalog by %d transactions", slot.CatalogXminAge))
	if slot.CatalogXminAge > freeze/2 {
		f.Level = LevelWarning
		f.Why = "dead rows of the catalog pile up, planning gets slow, and in the end the server refuses writes"
		f.Fix = "let the stream catch up (walrelay run); an open transaction above may hold it up"
	}
	return f
}
