package cdc

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

var errReleased = errors.New("the operator has decided about the stuck event")

// recordPoison writes down events that will not reach their topics, and says so after that.
// What fits nowhere is only let go while its row can still be read.
func (g *guard) recordPoison(ctx context.Context, poison []checkpoint.Poison) error {
	if len(poison) == 0 {
		return nil
	}
	kept := poison[:0]
	for _, p := range poison {
		if p.Action != checkpoint.Unfit {
			kept = append(kept, p)
			continue
		}
		retained, err := g.rowRetained(ctx, p)
		if err != nil {
			return err
		}
		if retained {
			kept = append(kept, p)
			continue
		}
		p.Action = checkpoint.Stopped
		if slices.ContainsFunc(g.cfg.Messages, func(m *decoder.Mapping) bool { return m.Name() == p.Table }) {
			p.Reason += "; and a message is in no table that it could be read from later"
		} else {
			p.Reason += "; and its row is not in " + p.Table + " any more"
		}
		g.mailbox.PutPoison(p)
	}
	if err := g.registry.RecordPoison(ctx, kept, g.cfg.FollowKey); err != nil {
		return err
	}
	seqs := make([]uint64, 0, len(kept))
	for _, p := range kept {
		g.log.Warn("event is not delivered", poisonFields(p)...)
		seqs = append(seqs, p.Seq)
	}
	g.mailbox.Record(seqs)
	return nil
}

func (g *guard) rowRetained(ctx context.Context, p checkpoint.Poison) (bool, error) {
	i := slices.IndexFunc(g.cfg.Mappings, func(m decoder.Mapping) bool { return m.Name() == p.Table })
	if i < 0 || p.EventID == "" {
		return false, nil
	}
	return g.registry.RowRetained(ctx, &g.cfg.Mappings[i], p.EventID)
}

// forgetVerdicts removes the verdicts on events that never come again, since they are confirmed.
// Until then a crash brings the event back, and the verdict must be there.
func (g *guard) forgetVerdicts(ctx context.Context, confirmed pglogrepl.LSN) error {
	for position := range g.verdicts {
		if position.LSN < confirmed {
			if err := g.forgetVerdict(ctx, position); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *guard) forgetVerdict(ctx context.Context, position checkpoint.Position) error {
	delete(g.verdicts, position)
	return g.registry.ConsumeRelease(ctx, position)
}

func (g *guard) lookForVerdict(ctx context.Context, stuck *checkpoint.Poison) error {
	if _, tried := g.verdicts[stuck.Position]; tried { // and of no avail
		return g.forgetVerdict(ctx, stuck.Position)
	}
	verdicts, err := g.registry.Releases(ctx)
	if err != nil {
		return err
	}
	if v, ok := verdicts[stuck.Position]; ok {
		g.log.Info("stuck event is released", zap.Stringer("position", stuck.Position), zap.String("verdict", string(v)))
		g.mailbox.Fail(errReleased)
	}
	return nil
}

// poisonFields names an event in a log line: never its payload or key.
func poisonFields(p checkpoint.Poison) []zap.Field {
	return []zap.Field{
		zap.Stringer("position", p.Position), zap.String("event_id", p.EventID), zap.String("table", p.Table),
		zap.String("topic", p.Topic), zap.Int("size", p.Size), zap.String("action", string(p.Action)),
		zap.String("reason", p.Reason),
	}
}
