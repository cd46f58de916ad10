package cdc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// Registry is one stream's row in walrelay.streams and what belongs to it. It uses its connection
// like everything else: one goroutine at a time.
type Registry struct {
	db     *pgx.Conn
	stream string
}

// OpenRegistry opens a connection of its own, for an operator's command. Of the configuration it
// needs ConnString, ConnectTimeout and Stream.
func OpenRegistry(ctx context.Context, cfg *Config) (*Registry, error) {
	db, err := connectSQL(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Registry{db: db, stream: cfg.Stream}, nil
}

// RegistryOn returns a stream's registry on a connection of Connect.
func RegistryOn(db *pgx.Conn, stream string) *Registry { return &Registry{db: db, stream: stream} }

// Close closes the connection.
func (r *Registry) Close(ctx context.Context) error { return r.db.Close(ctx) }

// Registry returns the stream's registry on the connection SQL.
func (s *Server) Registry() *Registry { return &Registry{db: s.SQL, stream: s.cfg.Stream} }

// registryRow is a row of walrelay.streams. Zero LSNs stand for NULL.
type registryRow struct {
	Epoch              uint32
	SystemID           string
	Timeline           uint32
	Slot, Publication  string
	State              *PublicationState // nil: not recorded yet
	Created, Confirmed pglogrepl.LSN
	Settled            *time.Time // what was committed before lies before Confirmed; nil: not known
	Delivery, Routing  string
	Partitions         map[string]int32
	Origin             uint32   // epoch under which the line of states began; 0: NULL
	LeftOut            *LeftOut // nil: nothing is
	GivenUp            *GivenUp // nil: the slot was not
}

// load reads the stream's row; nil when there is none.
func (r *Registry) load(ctx context.Context) (*registryRow, error) {
	var row registryRow
	var state, partitions []byte
	err := r.db.QueryRow(ctx, `
		SELECT epoch, system_identifier, timeline, slot, publication, publication_state,
			coalesce(created_lsn, '0/0')::text, coalesce(confirmed_lsn, '0/0')::text, delivery, routing, partitions,
			coalesce(state_epoch, 0), settled_at, left_out, given_up
		FROM walrelay.streams WHERE name = $1`, r.stream).
		Scan(&row.Epoch, &row.SystemID, &row.Timeline, &row.Slot, &row.Publication, &state,
			&row.Created, &row.Confirmed, &row.Delivery, &row.Routing, &partitions, &row.Origin, &row.Settled,
			&row.LeftOut, &row.GivenUp)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // no row is an answer
	}
	if err != nil {
		return nil, Diagnose(fmt.Errorf("read registry: %w", err))
	}
	if state != nil {
		if err := json.Unmarshal(state, &row.State); err != nil {
			return nil, fmt.Errorf("read publication_state: %w", err)
		}
	}
	if err := json.Unmarshal(partitions, &row.Partitions); err != nil {
		return nil, fmt.Errorf("read partitions: %w", err)
	}
	return &row, nil
}

// insert registers the stream. Another instance may do so at the same time.
func (r *Registry) insert(ctx context.Context, s *Server) error {
	return r.exec(ctx, "register stream", `
		INSERT INTO walrelay.streams (name, system_identifier, timeline, slot, publication, delivery, routing)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (name) DO NOTHING`,
		r.stream, s.SystemID, s.Timeline, s.cfg.Slot, s.cfg.Publication, s.cfg.Delivery, s.cfg.Routing)
}

// begin records where the slot begins, on which server, and what was published then. It does
// nothing once that is recorded: another instance may have been faster and already further. Only of a slot that is
// new is it known that what was committed before now lies before it: one that was found may be days behind.
func (r *Registry) begin(
	ctx context.Context, s *Server, created pglogrepl.LSN, state PublicationState, isNew bool,
) error {
	document, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("record slot: %w", err)
	}
	return r.exec(ctx, "record slot", `
		UPDATE walrelay.streams SET created_lsn = $2::text::pg_lsn, confirmed_lsn = $2::text::pg_lsn,
			system_identifier = $3, timeline = $4, slot = $5, publication = $6, publication_state = $7,
			covered_since = clock_timestamp(), settled_at = CASE WHEN $8 THEN now() ELSE settled_at END, updated_at = now(),
			left_out = CASE WHEN left_out ->> 'how' = 'recreated'
				THEN left_out || jsonb_build_object('to', $2::text, 'until', clock_timestamp()) ELSE left_out END
		WHERE name = $1 AND created_lsn IS NULL`,
		r.stream, created.String(), s.SystemID, s.Timeline, s.cfg.Slot, s.cfg.Publication, document,
		isNew)
}

// recordPublication replaces the recorded state, after the difference was found harmless.
func (r *Registry) recordPublication(ctx context.Context, state PublicationState) error {
	document, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("record publication: %w", err)
	}
	return r.exec(ctx, "record publication",
		"UPDATE walrelay.streams SET publication_state = $2, updated_at = now() WHERE name = $1", r.stream, document)
}

// Confirm records that everything before lsn, on the server's timeline, may be confirmed. It must
// have returned before that position is reported to the server: a slot beyond the recorded one was
// moved by somebody else. It waits for the local disk only, not for a synchronous standby, which
// would stop the stream whenever the standby is away. What was committed before settled lies before lsn; zero:
// no more is known than before.
func (r *Registry) Confirm(ctx context.Context, lsn pglogrepl.LSN, timeline uint32, settled time.Time) error {
	known := &settled
	if settled.IsZero() {
		known = nil
	}
	tag, err := r.db.Exec(ctx, `
		UPDATE walrelay.streams
		SET confirmed_lsn = greatest(confirmed_lsn, $2::text::pg_lsn), timeline = $3,
			settled_at = coalesce($4, settled_at), updated_at = now()
		FROM (SELECT set_config('synchronous_commit', 'local', true)) AS local (setting)
		WHERE name = $1 AND created_lsn IS NOT NULL AND local.setting IS NOT NULL`, r.stream, lsn.String(), timeline, known)
	if err != nil {
		return Diagnose(fmt.Errorf("record confirmed position: %w", err))
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("record confirmed position: stream %q is not registered any more", r.stream)
	}
	return nil
}

// recordOrigin records that a line of states began under the present epoch. Like RaiseEpoch it waits
// for synchronous standbys: a registry that forgot the line would begin another and repeat events.
func (r *Registry) recordOrigin(ctx context.Context, epoch uint32) error {
	tag, err := r.db.Exec(ctx,
		"UPDATE walrelay.streams SET state_epoch = $2, updated_at = now() WHERE name = $1 AND epoch = $2",
		r.stream, int64(epoch))
	if err != nil {
		return Diagnose(fmt.Errorf("record state epoch: %w", err))
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("record state epoch: stream %q is not at epoch %d any more", r.stream, epoch)
	}
	return nil
}

// RecordPartitions adds the counts of topics that were met for the first time.
func (r *Registry) RecordPartitions(ctx context.Context, partitions map[string]int32) error {
	return r.exec(ctx, "record partitions",
		"UPDATE walrelay.streams SET partitions = partitions || $2::jsonb, updated_at = now() WHERE name = $1",
		r.stream, partitions)
}

func notRegistered(stream string) error {
	return &FatalError{
		Object: quoted("stream", stream), Problem: "is not registered",
		Remedy: "check its name, or start it for the first time",
	}
}

func (r *Registry) exec(ctx context.Context, verb, sql string, args ...any) error {
	if _, err := r.db.Exec(ctx, sql, args...); err != nil {
		return Diagnose(fmt.Errorf("%s: %w", verb, err))
	}
	return nil
}
