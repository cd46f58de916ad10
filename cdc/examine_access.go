package cdc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

func (e *examination) accessChecks() []check {
	return []check{
		{"replication-role", "role", e.replicationRole},
		{"schema", "schema walrelay", e.privileges},
		{"outbox-privileges", "outbox tables", e.outboxPrivileges},
		{"message-privileges", "pg_logical_emit_message", e.messagePrivileges},
	}
}

func (e *examination) replicationRole(ctx context.Context) error {
	var attribute, super, rds bool
	err := e.server.SQL.QueryRow(ctx, `
		SELECT rolreplication, rolsuper,
			EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'rds_replication' AND pg_has_role(r.oid, 'MEMBER'))
		FROM pg_roles WHERE rolname = current_user`).Scan(&attribute, &super, &rds)
	if err != nil {
		return err
	}
	object := quoted("role", e.role)
	switch {
	case super:
		e.add(ok("replication-role", object, "is a superuser, which is more than walrelay needs"))
	case attribute:
		e.add(ok("replication-role", object, "may replicate"))
	case rds:
		e.add(ok("replication-role", object, "is a member of rds_replication"))
	default:
		e.add(Finding{
			Check: "replication-role", Object: object, Level: LevelFault, Found: "may not replicate",
			Why: "the slot can neither be created nor read", Fix: e.grantReplication(e.role),
		})
	}
	return nil
}

func (e *examination) grantReplication(role string) string {
	if e.provider == providerRDS {
		return "GRANT rds_replication TO " + pgx.Identifier{role}.Sanitize()
	}
	return "ALTER ROLE " + pgx.Identifier{role}.Sanitize() + " REPLICATION"
}

// privileges looks at walrelay's own tables. It goes by the catalog, which needs no right to the schema.
func (e *examination) privileges(ctx context.Context) error {
	const versions = "walrelay.schema_version" // of no use to the stream, but to this command
	tables, privileges := neededPrivileges()
	tables, privileges = append(tables, versions), append(privileges, "SELECT")
	rows, err := e.server.SQL.Query(ctx, `
		SELECT t, string_agg(p, ', ' ORDER BY ord) FILTER (WHERE NOT coalesce(has_table_privilege(c.oid, p), false)),
			bool_or(c.oid IS NOT NULL), coalesce(bool_or(has_schema_privilege(c.relnamespace, 'USAGE')), true)
		FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS need (t, p, ord)
		LEFT JOIN pg_namespace n ON n.nspname = 'walrelay'
		LEFT JOIN pg_class c ON c.relnamespace = n.oid AND 'walrelay.' || c.relname = t
		GROUP BY t ORDER BY t`, tables, privileges)
	if err != nil {
		return err
	}
	role := pgx.Identifier{e.role}.Sanitize()
	var table string
	var lacking *string
	var exists, usable bool
	var absent, grants []string
	usage := true
	_, err = pgx.ForEachRow(rows, []any{&table, &lacking, &exists, &usable}, func() error {
		switch {
		case !exists:
			absent = append(absent, table)
		case lacking != nil:
			grants = append(grants, "GRANT "+*lacking+" ON "+table+" TO "+role)
		}
		usage = usage && usable
		return nil
	})
	if err != nil {
		return err
	}
	if !usage {
		grants = append([]string{"GRANT USAGE ON SCHEMA walrelay TO " + role}, grants...)
	}
	if len(absent) > 0 {
		e.add(Finding{
			Check: "schema", Object: "schema walrelay", Level: LevelFault, Found: joined(absent) + " missing",
			Why: "the stream's position, verdicts and dead letters are recorded there",
			Fix: "walrelay migrate up, as the owner of the database",
		})
	}
	for _, grant := range grants {
		f := Finding{
			Check: "schema-privileges", Object: quoted("role", e.role), Level: LevelFault,
			Found: "lacks " + strings.TrimSuffix(strings.TrimPrefix(grant, "GRANT "), " TO "+role),
			Why:   "the stream cannot record where it stands", Fix: grant,
		}
		if strings.Contains(grant, versions) {
			f.Level, f.Why = LevelWarning, "nobody can see with this role whether a migration is missing"
		}
		e.add(f)
	}
	if len(absent)+len(grants) == 0 {
		e.add(ok("schema", "schema walrelay", "there, and role "+role+" has what it needs in it"))
	}
	return nil
}

// outboxPrivileges is about reading the tables themselves, which the stream does only to count rows.
func (e *examination) outboxPrivileges(ctx context.Context) error {
	role := pgx.Identifier{e.role}.Sanitize()
	for _, m := range e.cfg.Mappings {
		var usable, readable bool
		err := e.server.SQL.QueryRow(ctx, `
			SELECT has_schema_privilege(n.oid, 'USAGE'), has_table_privilege(c.oid, 'SELECT')
			FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
			WHERE n.nspname = $1 AND c.relname = $2`, m.Schema, m.Table).Scan(&usable, &readable)
		if errors.Is(err, pgx.ErrNoRows) {
			continue // said of the table itself
		}
		if err != nil {
			return err
		}
		table := tableName(m.Schema, m.Table)
		var grants []string
		if !usable {
			grants = append(grants, "GRANT USAGE ON SCHEMA "+pgx.Identifier{m.Schema}.Sanitize()+" TO "+role)
		}
		if !readable {
			grants = append(grants, "GRANT SELECT ON "+table+" TO "+role)
		}
		if len(grants) == 0 {
			continue
		}
		e.add(Finding{
			Check: "outbox-privileges", Object: "table " + table, Level: LevelWarning,
			Found: fmt.Sprintf("role %q may not read it", e.role),
			Why:   "its rows come through the log all the same, but none can be counted, looked at here or published again",
			Fix:   strings.Join(grants, "; "),
		})
	}
	return nil
}

// messagePrivileges: whoever may emit messages publishes events, if messages are events.
func (e *examination) messagePrivileges(ctx context.Context) error {
	if len(e.cfg.Messages) == 0 {
		return nil
	}
	rows, err := e.server.SQL.Query(ctx, `
		SELECT p.oid::regprocedure::text FROM pg_proc p
		WHERE p.proname = 'pg_logical_emit_message' AND p.pronamespace = 'pg_catalog'::regnamespace
			AND has_function_privilege('public', p.oid, 'EXECUTE') ORDER BY p.oid`)
	if err != nil {
		return err
	}
	functions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(functions) == 0 {
		return err
	}
	list := strings.Join(functions, ", ")
	var prefixes []string
	for _, m := range e.cfg.Messages {
		prefixes = append(prefixes, strconv.Quote(m.Prefix))
	}
	e.add(Finding{
		Check: "message-privileges", Object: "pg_logical_emit_message", Level: LevelWarning,
		Found: "every role of the database may emit messages",
		Why:   fmt.Sprintf("whoever emits one with prefix %s publishes an event", strings.Join(prefixes, " or ")),
		Fix: "REVOKE EXECUTE ON FUNCTION " + list + " FROM PUBLIC; then GRANT EXECUTE ON FUNCTION " + list +
			" TO the application's role",
	})
	return nil
}
