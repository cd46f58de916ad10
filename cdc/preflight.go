package cdc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/decoder"
)

// minVersion is the oldest server_version_num that is supported.
const minVersion = 140000

// Preflight looks at the server before anything is created there. Warnings are worth a line each in
// the log, once. That the role may replicate was shown by the replication connection itself.
func (s *Server) Preflight(ctx context.Context) (warnings []string, err error) {
	var recovery bool
	var walLevel, standbys, application string
	err = s.SQL.QueryRow(ctx, `SELECT pg_is_in_recovery(), current_setting('wal_level'),
			current_setting('synchronous_standby_names'), current_setting('application_name')`).
		Scan(&recovery, &walLevel, &standbys, &application)
	switch {
	case err != nil:
		return nil, Diagnose(fmt.Errorf("read settings: %w", err))
	case s.Version < minVersion:
		return nil, &FatalError{
			Object: "server", Problem: fmt.Sprintf("has version %d, and 14 is the oldest supported", s.Version/10000),
			Remedy: "upgrade PostgreSQL",
		}
	case recovery:
		return nil, ErrRecovery
	case walLevel != "logical":
		return nil, &FatalError{
			Object: "server", Problem: "has wal_level = " + walLevel + ", which logs too little for logical decoding",
			Remedy: "set wal_level = logical and restart PostgreSQL",
		}
	}
	if err := s.checkSchema(ctx); err != nil {
		return nil, err
	}
	if warnings, err = s.byteaWarnings(ctx); err != nil {
		return nil, err
	}
	warnings = append(warnings, knownBugs(s.Version)...)
	if namesStandby(standbys, application) {
		warnings = append(warnings, fmt.Sprintf("synchronous_standby_names = %q matches application_name %q: commits would "+
			"wait for this stream; set another application_name or name the standbys", standbys, application))
	}
	return warnings, nil
}

// neededPrivileges lists what a stream needs in schema walrelay: a table, and beside it a privilege.
func neededPrivileges() (tables, privileges []string) {
	for _, need := range [][2]string{
		{"streams", "SELECT"},
		{"streams", "INSERT"},
		{"streams", "UPDATE"},
		{"releases", "SELECT"},
		{"releases", "DELETE"},
		{"dead_letters", "SELECT"},
		{"dead_letters", "INSERT"},
		{"dead_letters", "UPDATE"},
	} {
		tables, privileges = append(tables, "walrelay."+need[0]), append(privileges, need[1])
	}
	return tables, privileges
}

// checkSchema verifies that walrelay's tables exist and may be used.
func (s *Server) checkSchema(ctx context.Context) error {
	tables, privileges := neededPrivileges()
	rows, err := s.SQL.Query(ctx, `
		SELECT t, p, to_regclass(t) IS NOT NULL, coalesce(has_table_privilege(to_regclass(t), p), false), current_user::text
		FROM unnest($1::text[], $2::text[]) AS need (t, p)`, tables, privileges)
	if err != nil {
		return Diagnose(fmt.Errorf("check schema walrelay: %w", err))
	}
	var table, privilege, role string
	var exists, granted bool
	_, err = pgx.ForEachRow(rows, []any{&table, &privilege, &exists, &granted, &role}, func() error {
		switch {
		case !exists:
			return &FatalError{Object: "table " + table, Problem: "does not exist", Remedy: "run `walrelay migrate`"}
		case !granted:
			return &FatalError{
				Object:  "table " + table,
				Problem: fmt.Sprintf("may not be used by role %q: %s is missing", role, privilege),
				Remedy:  "GRANT " + privilege + " ON " + table + " TO " + pgx.Identifier{role}.Sanitize(),
			}
		}
		return nil
	})
	return Diagnose(err)
}

// roomForSlot explains beforehand what the server would only refuse.
func (s *Server) roomForSlot(ctx context.Context) error {
	var used, limit int
	err := s.SQL.QueryRow(ctx,
		"SELECT count(*), current_setting('max_replication_slots')::int FROM pg_replication_slots").Scan(&used, &limit)
	if err != nil {
		return Diagnose(fmt.Errorf("count slots: %w", err))
	}
	if used >= limit {
		return &FatalError{
			Object:  quoted("slot", s.cfg.Slot),
			Problem: fmt.Sprintf("cannot be created: max_replication_slots = %d, all in use", limit),
			Remedy:  "raise max_replication_slots and restart PostgreSQL, or drop a slot that nobody needs",
		}
	}
	return nil
}

// minorFix is a bug of logical decoding and the first minor release of each major without it.
type minorFix struct {
	bug   string
	first map[int]int // major to minor
	since map[int]int // the first minor with it; nil: all
}

// knownBugs names the bugs that lose or repeat rows, or stop the stream, in the given version:
// fixed in the minor releases of August 2024, 21 November 2024 (not those of the week before), May 2025 and
// August 2025. Source: https://www.postgresql.org/docs/release/
func knownBugs(version int) []string {
	fixes := []minorFix{
		{"a slot may begin in the middle of a transaction", map[int]int{14: 13, 15: 8, 16: 4}, nil},
		{"restart_lsn may go backwards, to log that is already removed", map[int]int{14: 15, 15: 10, 16: 6, 17: 2}, nil},
		{
			"ALTER PUBLICATION may hide rows of transactions that are open then",
			map[int]int{14: 18, 15: 13, 16: 9, 17: 5},
			nil,
		},
		{ // came with the mending of the one before
			"schema changes may blow up the memory of decoding",
			map[int]int{14: 19, 15: 14, 16: 10, 17: 6},
			map[int]int{14: 18, 15: 13, 16: 9, 17: 5},
		},
	}
	major, minor := version/10000, version%10000
	var warnings []string
	for _, fix := range fixes {
		if first, ok := fix.first[major]; ok && minor < first && minor >= fix.since[major] {
			warnings = append(warnings, fmt.Sprintf("PostgreSQL %d.%d has a known bug: %s; fixed in %d.%d",
				major, minor, fix.bug, major, first))
		}
	}
	return warnings
}

// namesStandby reports whether a value of synchronous_standby_names matches the application name.
func namesStandby(setting, application string) bool {
	names := strings.FieldsFunc(setting, func(r rune) bool { return strings.ContainsRune(`,() "`, r) })
	return slices.ContainsFunc(names, func(name string) bool {
		return name == "*" || strings.EqualFold(name, application)
	})
}

// rowCountLimit is how many rows are counted at most; beyond it the planner's estimate is given.
const rowCountLimit = 10_000

// existingRows says how many rows each outbox table has, one phrase each. It is a courtesy: what
// cannot be read is said to be unknown.
func (s *Server) existingRows(ctx context.Context) []string {
	var phrases []string
	for _, m := range s.cfg.Mappings {
		phrases = append(phrases, tableName(m.Schema, m.Table)+": "+s.rowCount(ctx, m))
	}
	return phrases
}

func (s *Server) rowCount(ctx context.Context, m decoder.Mapping) string {
	table := tableName(m.Schema, m.Table)
	var counted, estimated int64
	count := fmt.Sprintf("SELECT count(*) FROM (SELECT FROM %s LIMIT %d) AS few", table, rowCountLimit+1)
	err := s.SQL.QueryRow(ctx, count).Scan(&counted)
	if err == nil && counted <= rowCountLimit {
		return fmt.Sprint(counted)
	}
	estimateErr := s.SQL.QueryRow(ctx, "SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass($1)", table).
		Scan(&estimated)
	switch {
	case errors.Join(err, estimateErr) != nil && estimated <= 0:
		return "unknown"
	case estimated > counted:
		return fmt.Sprintf("about %d", estimated)
	default:
		return fmt.Sprintf("more than %d", counted-1)
	}
}
