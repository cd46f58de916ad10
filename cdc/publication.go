package cdc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/decoder"
)

// PublicationState is what a check of the publication found. It is recorded in the registry, since
// the server says nothing when a publication or a table of it is dropped and made again: the rows
// in between are simply not sent.
type PublicationState struct {
	OID uint32 `json:"oid"`
	// Row is the version of the publication's catalog row; ALTER PUBLICATION ... SET changes it.
	Row     uint32             `json:"row"`
	ViaRoot bool               `json:"via_root"`
	Tables  []PublicationTable `json:"tables"`
	// ViaRootSince is the position from which on ViaRoot is known to hold, where it once did not: see follow.
	ViaRootSince pglogrepl.LSN `json:"via_root_since,omitzero"`

	// LSN is the server's write position just before the check.
	LSN pglogrepl.LSN `json:"-"`
	// Warnings are worth a line at the start: the stream is correct, but something else may not be.
	Warnings []string `json:"-"`
}

// PublicationTable is one configured table in the publication.
type PublicationTable struct {
	Schema string `json:"schema"`
	Table  string `json:"table"`
	OID    uint32 `json:"oid"`
	// Member lists the OIDs of the catalog rows that put the table into the publication, by itself,
	// by its schema or by a table that it is a partition of. Empty for a publication of all tables.
	Member []uint32 `json:"member"`
}

// EnsurePublication creates the publication when it is missing. It must be committed before the
// slot exists: the slot's walsender looks publications up as they were when a row was written.
func (s *Server) EnsurePublication(ctx context.Context) error {
	const exists = "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1)"
	var found bool
	if err := s.SQL.QueryRow(ctx, exists, s.cfg.Publication).Scan(&found); err != nil {
		return Diagnose(fmt.Errorf("look up publication: %w", err))
	}
	if found {
		return nil
	}
	sql := createPublication(s.cfg.Publication, s.cfg.Mappings)
	if _, err := s.SQL.Exec(ctx, sql); err != nil {
		return diagnosePublication(s.cfg.Publication, sql, err)
	}
	s.log.Info("publication created", zap.String("publication", s.cfg.Publication))
	return nil
}

// createPublication publishes inserts only: publishing deletes of a table without a replica
// identity makes the application's own DELETE fail. Via the root, a partition that is detached
// before its rows were read still counts as part of its table.
func createPublication(name string, tables []decoder.Mapping) string {
	var sql strings.Builder
	sql.WriteString("CREATE PUBLICATION " + pgx.Identifier{name}.Sanitize() + " FOR TABLE ")
	for i, m := range tables {
		if i > 0 {
			sql.WriteString(", ")
		}
		sql.WriteString(tableName(m.Schema, m.Table))
	}
	return sql.String() + " WITH (publish = 'insert', publish_via_partition_root = true)"
}

// CheckPublication verifies that every insert into the configured tables is published whole. It is
// one round trip, fit for every second. The error is a *FatalError when rows are or may be missing.
func (s *Server) CheckPublication(ctx context.Context) (PublicationState, error) {
	schemas, tables := make([]string, len(s.cfg.Mappings)), make([]string, len(s.cfg.Mappings))
	for i, m := range s.cfg.Mappings {
		schemas[i], tables[i] = m.Schema, m.Table
	}
	// The position comes first: whatever the check does not see is committed after it.
	var batch pgx.Batch
	batch.Queue("SELECT pg_current_wal_lsn()::text")
	batch.Queue(publicationQuery(s.Version), s.cfg.Publication, schemas, tables)
	results := s.SQL.SendBatch(ctx, &batch)
	var lsn pglogrepl.LSN
	var raw []byte
	err := results.QueryRow().Scan(&lsn)
	if err == nil {
		err = results.QueryRow().Scan(&raw)
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return PublicationState{}, &FatalError{
			Object: quoted("publication", s.cfg.Publication), Problem: "does not exist; " + silentlySkipped,
			Remedy: createPublication(s.cfg.Publication, s.cfg.Mappings) + ", " + dropUnreadable(s.cfg.Slot) + ", " +
				republish(s.cfg.Stream),
		}
	}
	if err != nil {
		return PublicationState{}, Diagnose(fmt.Errorf("check publication: %w", err))
	}
	var found catalogPublication
	if err := json.Unmarshal(raw, &found); err != nil {
		return PublicationState{}, fmt.Errorf("check publication: %w", err)
	}
	return s.verify(found, lsn)
}

const silentlySkipped = "PostgreSQL skips rows that are written meanwhile"

// verify turns what the catalog says into a state, or into the first reason why rows are missing.
func (s *Server) verify(found catalogPublication, lsn pglogrepl.LSN) (PublicationState, error) {
	object := quoted("publication", s.cfg.Publication)
	name := pgx.Identifier{s.cfg.Publication}.Sanitize()
	state := PublicationState{OID: found.OID, Row: found.Row, ViaRoot: found.ViaRoot, LSN: lsn}
	if !found.Insert {
		return state, &FatalError{
			Object: object, Problem: "does not publish inserts; " + silentlySkipped,
			Remedy: "ALTER PUBLICATION " + name + " SET (publish = 'insert'), " + republish(s.cfg.Stream),
		}
	}
	if found.Other {
		state.warn("publication %s publishes more than inserts: they are ignored, and UPDATE or DELETE on a table "+
			"without a replica identity fails; ALTER PUBLICATION %s SET (publish = 'insert') mends it", name, name)
	}
	for i := range s.cfg.Mappings {
		if i >= len(found.Tables) {
			return state, fmt.Errorf("check publication: server described %d tables of %d", i, len(s.cfg.Mappings))
		}
		check := tableCheck{
			mapping: &s.cfg.Mappings[i], found: &found, table: &found.Tables[i], publication: name,
			stream: s.cfg.Stream,
		}
		if fatal := check.run(s.cfg.Mappings); fatal != nil {
			return state, fatal
		}
		if found.Tables[i].Kind == relationPartitioned && !found.ViaRoot {
			state.warn("publication %s publishes %s by its partitions: rows of a partition that is detached before they "+
				"were read are not recognised; ALTER PUBLICATION %s SET (publish_via_partition_root = true) mends it",
				name, check.name(), name)
		}
		state.Tables = append(state.Tables, PublicationTable{
			Schema: s.cfg.Mappings[i].Schema, Table: s.cfg.Mappings[i].Table,
			OID: found.Tables[i].OID, Member: found.Tables[i].memberRows(),
		})
	}
	return state, nil
}

func (p *PublicationState) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

// Since compares the state with an earlier one. It returns a *FatalError when rows written between
// verified, up to which the earlier state was known to hold, and now may not have been sent.
// Tables that only one of the two configurations names are not compared.
func (p *PublicationState) Since(earlier PublicationState, verified pglogrepl.LSN, cfg *Config) error {
	gap := gapBetween(verified, p.LSN)
	object := quoted("publication", cfg.Publication)
	fatal := func(problem string) error {
		return &FatalError{Object: object, Problem: problem + "; " + gap, Remedy: republish(cfg.Stream)}
	}
	if p.OID != earlier.OID {
		return fatal("was dropped and created again")
	}
	for _, now := range p.Tables {
		i := slices.IndexFunc(earlier.Tables, func(t PublicationTable) bool {
			return t.Schema == now.Schema && t.Table == now.Table
		})
		if i < 0 {
			continue
		}
		switch before := earlier.Tables[i]; {
		case before.OID != now.OID:
			return fatal("table " + tableName(now.Schema, now.Table) + " was dropped and created again")
		case !slices.Equal(before.Member, now.Member):
			return fatal("table " + tableName(now.Schema, now.Table) + " was taken out of it and added again")
		}
	}
	return nil
}

// follow adds what the catalog does not tell, from an earlier state: rows written before partitions were published as
// their table arrive under the partitions' own names.
func (p *PublicationState) follow(earlier PublicationState) {
	switch {
	case p.ViaRoot && earlier.ViaRoot:
		p.ViaRootSince = earlier.ViaRootSince
	case p.ViaRoot:
		p.ViaRootSince = p.LSN
	}
}

// Equal reports whether both states say the same of the publication, whenever they were read.
func (p *PublicationState) Equal(q PublicationState) bool {
	return p.OID == q.OID && p.Row == q.Row && p.ViaRoot == q.ViaRoot &&
		slices.EqualFunc(p.Tables, q.Tables, func(a, b PublicationTable) bool {
			return a.Schema == b.Schema && a.Table == b.Table && a.OID == b.OID && slices.Equal(a.Member, b.Member)
		})
}

// gapBetween says which part of the log may hold rows that never arrive.
func gapBetween(from, to pglogrepl.LSN) string {
	return fmt.Sprintf("rows committed between %s and %s may be missing", from, to)
}

// dropUnreadable is what to do about a slot in whose log any row, of whatever table, was written while
// there was no publication. PostgreSQL looks the publication up as it was then: up to 17 it does not
// read past such a row, from 18 on it warns at each start from that slot.
func dropUnreadable(slot string) string {
	return "drop the slot, which stands before what was written meanwhile (SELECT pg_drop_replication_slot(" +
		quoteLiteral(slot) + "))"
}

// republish is what to do about a gap.
func republish(stream string) string { return republishSince(stream, "TIME") }

// republishSince is republish where the time is known at which the gap begins.
func republishSince(stream, since string) string {
	return "run `walrelay stream new-epoch " + stream + "`, start walrelay, and then publish the rows of the gap again: " +
		"`walrelay replay --since " + since + "`"
}

// createOutbox is what to do about a table that is not there. `walrelay migrate up` makes none a second time.
const createOutbox = "create it (for public.outbox run what `walrelay migrate print` prints, which makes it again) " +
	"or correct the configured tables"

// gapMargin is how long before the gap a replay begins: rows carry the time at which their transaction began.
const gapMargin = time.Hour

// gapSince is the time from which a replay closes a gap after what the row has as confirmed.
func (row *registryRow) gapSince() string {
	if row.Settled == nil {
		return "TIME"
	}
	return row.Settled.Add(-gapMargin).UTC().Format(time.RFC3339)
}

// dated gives a fault of the publication the time from which a replay closes its gap, if the row knows it. Before the
// first start there is no gap, and nothing to publish again.
func (row *registryRow) dated(err error, stream string) error {
	fatal, ok := errors.AsType[*FatalError](err)
	if !ok {
		return err
	}
	if row == nil {
		fatal.Remedy = strings.TrimSuffix(fatal.Remedy, ", "+republish(stream))
		return err
	}
	fatal.Remedy = strings.Replace(fatal.Remedy, republish(stream), republishSince(stream, row.gapSince()), 1)
	return err
}

func diagnosePublication(name, sql string, err error) error {
	object := quoted("publication", name)
	switch code := sqlState(err); code {
	case "42P01", "3F000": // undefined_table, invalid_schema_name
		return &FatalError{
			Object: object, Problem: "cannot be created", Err: err,
			Remedy: createOutbox,
		}
	case "42501": // insufficient_privilege: needs CREATE on the database and ownership of the tables
		return &FatalError{
			Object: object, Problem: "cannot be created", Err: err,
			Remedy: "run as the owner of the tables: " + sql,
		}
	case "42710": // duplicate_object: another instance was faster
		return nil
	default:
		return Diagnose(fmt.Errorf("create publication: %w", err))
	}
}
