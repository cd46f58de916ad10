package cdc

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/decoder"
)

// ResolveRelation finds the configured table that the relation belongs to: itself, or the table that
// it is a partition of, at any depth. It is to be asked when the log describes a relation that the
// configuration does not name; schema and table are its name there, for messages only, and at is where the
// transaction that wrote its rows was committed. ok is false for a table that somebody else publishes. A
// relation whose belonging cannot be told any more is a *FatalError, since its rows might be events.
func (s *Server) ResolveRelation(
	ctx context.Context, oid uint32, schema, table string, at pglogrepl.LSN,
) (m *decoder.Mapping, ok bool, err error) {
	// pg_partition_ancestors returns nothing for a table that has to do with no partitioning.
	rows, err := s.SQL.Query(ctx, `
		SELECT n.nspname::text, c.relname::text
		FROM (SELECT $1::oid AS oid, 0 AS depth
			UNION ALL SELECT relid::oid, depth::int FROM pg_partition_ancestors($1::oid) WITH ORDINALITY AS a (relid, depth)
		) AS up JOIN pg_class c ON c.oid = up.oid JOIN pg_namespace n ON n.oid = c.relnamespace
		ORDER BY up.depth`, oid)
	if err != nil {
		return nil, false, Diagnose(fmt.Errorf("resolve relation: %w", err))
	}
	defer rows.Close()
	exists := false
	for rows.Next() {
		var nsp, rel string
		if err := rows.Scan(&nsp, &rel); err != nil {
			return nil, false, fmt.Errorf("resolve relation: %w", err)
		}
		exists = true
		for i := range s.cfg.Mappings {
			if m := &s.cfg.Mappings[i]; m.Schema == nsp && m.Table == rel {
				return m, true, nil
			}
		}
	}
	if err := rows.Err(); err != nil {
		return nil, false, Diagnose(fmt.Errorf("resolve relation: %w", err))
	}
	if m, err := s.resolveDetached(ctx, oid); m != nil || err != nil {
		return m, m != nil, err
	}
	return nil, false, s.resolveForeign(ctx, oid, tableName(schema, table), exists, at)
}

// resolveDetached finds the outbox of a partition that retention has detached, or dropped.
func (s *Server) resolveDetached(ctx context.Context, oid uint32) (*decoder.Mapping, error) {
	var nsp, rel string
	err := s.SQL.QueryRow(ctx, `
		SELECT d ->> 'schema', d ->> 'table' FROM walrelay.streams, jsonb_array_elements(detached) AS d
		WHERE (d ->> 'oid')::int8 = $1 LIMIT 1`, int64(oid)).Scan(&nsp, &rel)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // none is an answer
	}
	if err != nil {
		return nil, Diagnose(fmt.Errorf("resolve relation: %w", err))
	}
	for i := range s.cfg.Mappings {
		if m := &s.cfg.Mappings[i]; m.Schema == nsp && m.Table == rel {
			return m, nil
		}
	}
	return nil, nil //nolint:nilnil // the outbox is configured no longer
}

// resolveForeign returns nil when the publication has somebody's reason to send rows that are no
// events. That is so for a table that is in it now, and for whatever was dropped or detached while
// rows travelled under the name of the partitioned table: an outbox's own then arrive as the outbox.
// Otherwise it may have been a partition of an outbox when the row was written.
func (s *Server) resolveForeign(ctx context.Context, oid uint32, name string, exists bool, at pglogrepl.LSN) error {
	var member, viaRoot bool
	err := s.SQL.QueryRow(ctx, membershipQuery(s.Version), s.cfg.Publication, oid).Scan(&member, &viaRoot)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil // no publication: the next check of it ends the stream
	case err != nil:
		return Diagnose(fmt.Errorf("resolve relation: %w", err))
	case viaRoot && at >= s.viaRootSince, exists && member:
		return nil
	case exists:
		return &FatalError{
			Object: "table " + name,
			Problem: "is in the log, but neither an outbox table nor in the publication any more: " +
				"it may be a detached partition",
			Remedy: "if its rows are events, name it among the configured tables (WALRELAY_TABLES); " +
				"if not, add it to the publication until they passed",
		}
	default:
		return &FatalError{
			Object: "table " + name,
			Problem: "is in the log, but was dropped before its rows were read: " +
				"it may have been a partition of an outbox table",
			Remedy: "if its rows are events, create an empty table of that name with its columns, add it to the publication, " +
				"and name it among the configured tables (WALRELAY_TABLES) until they have passed",
		}
	}
}

// membershipQuery asks whether $2 or a table that it is a partition of is in the publication $1, and
// whether that sends rows of partitions as those of the root.
func membershipQuery(version int) string {
	schemas := ""
	if version >= 150000 {
		schemas = ` OR EXISTS (SELECT FROM pg_publication_namespace n JOIN pg_class c ON c.relnamespace = n.pnnspid
			WHERE n.pnpubid = p.oid AND (c.oid = $2::oid OR c.oid IN (SELECT relid FROM pg_partition_ancestors($2::oid))))`
	}
	return `SELECT p.puballtables OR EXISTS (SELECT FROM pg_publication_rel m WHERE m.prpubid = p.oid
			AND (m.prrelid = $2::oid OR m.prrelid IN (SELECT relid FROM pg_partition_ancestors($2::oid))))` + schemas + `,
			p.pubviaroot
		FROM pg_publication p WHERE p.pubname = $1`
}
