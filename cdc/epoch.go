package cdc

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/checkpoint"
)

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

// NewEpoch is the operator's word that a gap is dealt with; what was left out on purpose stays noted, see LeftOut.
// The next start accepts the server, the publication and the slot as it finds them, creating what is missing, and the
// epoch is raised: to the present time in seconds since 1970, which suffices until 2106. A registry that was restored
// does not know the epochs that were used after it was copied, and with one of those a second time the positions of
// what is new would lie below those that consumers keep.
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
		"given_up = NULL, partitions = '{}', left_out = CASE WHEN left_out ->> 'how' = 'dropped' "+
		"THEN left_out || '{\"how\": \"recreated\"}' ELSE left_out END")
	return done, err
}

// keepEpoch raises the epoch where the server's registry has one under which the positions to come would
// lie behind published ones.
func (s *Stream) keepEpoch(ctx context.Context, server *Server, reg *Registration) (err error) {
	if reg.Epoch >= s.seen.epoch {
		return nil
	}
	if reg.Epoch, err = server.Registry().keepEpoch(ctx, s.seen.epoch); err != nil {
		return err
	}
	s.log.Info("epoch raised: the database went back behind published positions",
		zap.Uint32("epoch", reg.Epoch))
	return nil
}

// adoptPartitions starts a new epoch for a topic that has another number of partitions now. The
// session has drained, so nothing is in flight under the old one.
func (s *Stream) adoptPartitions(
	ctx context.Context, server *Server, changed *checkpoint.PartitionsChangedError,
) error {
	epoch, err := server.Registry().RaiseEpoch(ctx, map[string]int32{changed.Topic: changed.Count})
	if err != nil {
		return err
	}
	s.log.Info("epoch raised: a topic has another number of partitions", zap.String("topic", changed.Topic),
		zap.Int32("recorded", changed.Recorded), zap.Int32("partitions", changed.Count), zap.Uint32("epoch", epoch))
	return changed
}

// raiseEpochAbove starts an epoch that consumers have not seen yet.
func (s *Stream) raiseEpochAbove(ctx context.Context, server *Server, behind *checkpoint.EpochBehindError) error {
	epoch, err := server.Registry().raiseEpochAbove(ctx, behind.Found)
	if err != nil {
		return err
	}
	s.log.Info("epoch raised: an earlier life of the stream wrote a state",
		zap.Uint32("found", behind.Found), zap.Uint32("epoch", epoch))
	return behind
}
