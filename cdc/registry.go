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
	Origin             uint32 // epoch under which the line of states began; 0: NULL
}

// load reads the stream's row; nil when there is none.
func (r *Registry) load(ctx context.Context) (*registryRow, error) {
	var row registryRow
	var state, partitions []byte
	err := r.db.QueryRow(ctx, `
		SELECT epoch, system_identifier, timeline, slot, publication, publication_state,
			coalesce(created_lsn, '0/0')::text, coalesce(confirmed_lsn, '0/0')::text, delivery, routing, partitions,
			coalesce(state_epoch, 0), settled_at
		FROM walrelay.streams WHERE name = $1`, r.stream).
		Scan(&row.Epoch, &row.SystemID, &row.Timeline, &row.Slot, &row.Publication, &state,
			&row.Created, &row.Confirmed, &row.Delivery, &row.Routing, &partitions, &row.Origin, &row.Settled)
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
			covered_since = clock_timestamp(), settled_at = CASE WHEN $8 THEN now() ELSE settled_at END, updated_at = now()
		WHERE name = $1 AND created_lsn IS NULL`,
		r.stream, created.String(), s.SystemID, s.Timeline, s.cfg.Slot, s.cfg.Publication, document,
		isNew)
}

// uncover says that rows which are there now may never have been streamed.
func (r *Registry) uncover(ctx context.Context) error {
	return r.exec(ctx, "record gap", `UPDATE walrelay.streams
		SET covered_since = greatest(covered_since, clock_timestamp()), updated_at = now() WHERE name = $1`, r.stream)
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

// RaiseEpoch starts a new epoch, under which partitions holds, and returns it. Unlike Confirm it
// waits for synchronous standbys: an epoch that was published must not be forgotten by a failover.
func (r *Registry) RaiseEpoch(ctx context.Context, partitions map[string]int32) (uint32, error) {
	return r.raiseEpoch(ctx, "epoch = epoch + 1, partitions = partitions || coalesce($2::jsonb, '{}')", partitions)
}

// raiseEpochAbove starts a new epoch because consumers have seen one that is not below the present.
func (r *Registry) raiseEpochAbove(ctx context.Context, found uint32) (uint32, error) {
	return r.raiseEpoch(ctx, "epoch = greatest(epoch, $2) + 1", int64(found))
}

// adoptRouting starts a new epoch because events are routed or delivered differently from now on.
// Another delivery mode ends the line of states: what is delivered without them, they don't cover.
func (r *Registry) adoptRouting(ctx context.Context, cfg *Config) (uint32, error) {
	return r.raiseEpoch(ctx, `epoch = epoch + 1, routing = $2, delivery = $3,
		state_epoch = CASE WHEN delivery = $3 THEN state_epoch END`, cfg.Routing, cfg.Delivery)
}

// keepEpoch raises the epoch to the given one, if it is lower.
func (r *Registry) keepEpoch(ctx context.Context, epoch uint32) (uint32, error) {
	return r.raiseEpoch(ctx, "epoch = greatest(epoch, $2::bigint)", epoch)
}

func (r *Registry) raiseEpoch(ctx context.Context, set string, args ...any) (epoch uint32, err error) {
	err = r.db.QueryRow(ctx, "UPDATE walrelay.streams SET updated_at = now(), "+set+
		" WHERE name = $1 RETURNING epoch", append([]any{r.stream}, args...)...).Scan(&epoch)
	if err != nil {
		return 0, Diagnose(fmt.Errorf("raise epoch: %w", err))
	}
	return epoch, nil
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

// EpochStart is what NewEpoch did.
type EpochStart struct {
	Epoch uint32
	Slot  string
	// SlotExists says that the next start goes on from the slot instead of creating one.
	SlotExists bool
	// Confirmed is how far the stream had come: rows committed after it and not streamed since must
	// be published again.
	Confirmed pglogrepl.LSN
}

// NewEpoch is the operator's word that a gap is dealt with. The next start accepts the server, the
// publication and the slot as it finds them, creating what is missing, and the epoch is raised: to the
// present time in seconds since 1970, which suffices until 2106. A registry that was restored does not know
// the epochs that were used after it was copied, and with one of those a second time the positions of what
// is new would lie below those that consumers keep.
func (r *Registry) NewEpoch(ctx context.Context) (EpochStart, error) {
	row, err := r.load(ctx)
	if err != nil {
		return EpochStart{}, err
	}
	if row == nil {
		return EpochStart{}, notRegistered(r.stream)
	}
	var version int
	if err := r.db.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		return EpochStart{}, Diagnose(fmt.Errorf("raise epoch: %w", err))
	}
	slot, err := readSlot(ctx, r.db, version, row.Slot)
	switch {
	case err != nil:
		return EpochStart{}, err
	case slot.Lost():
		return EpochStart{}, &FatalError{
			Object: quoted("slot", slot.Name), Problem: "is invalidated and still there",
			Remedy: "SELECT pg_drop_replication_slot(" + quoteLiteral(slot.Name) + ") first",
		}
	case slot.ActivePID != 0:
		return EpochStart{}, &FatalError{
			Object:  quoted("stream", r.stream),
			Problem: fmt.Sprintf("is running: server process %d uses its slot", slot.ActivePID),
			Remedy:  "stop every instance first",
		}
	}
	done := EpochStart{Slot: row.Slot, SlotExists: slot.Exists, Confirmed: row.Confirmed}
	done.Epoch, err = r.raiseEpoch(ctx, "epoch = greatest(epoch + 1, extract(epoch FROM now())::bigint), "+
		"state_epoch = NULL, created_lsn = NULL, confirmed_lsn = NULL, publication_state = NULL, covered_since = NULL, "+
		"given_up = NULL, partitions = '{}'")
	return done, err
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
