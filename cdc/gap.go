package cdc

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/decoder"
)

// Gap is a part of the log that a stream will not have read.
type Gap struct {
	From, To pglogrepl.LSN
	// Counted says that the rest is known.
	Counted bool
	// Unknown says why it is not.
	Unknown string

	Events, Transactions uint64    // of events, and of transactions that have any
	First, Last          time.Time // commit times of these, on the server's clock
}

// Bytes is the size of the log in the gap, whatever it holds.
func (g *Gap) Bytes() int64 { return max(0, int64(g.To)-int64(g.From)) }

// countLimit is up to how many bytes of log are decoded to count what a gap holds.
const countLimit = 64 << 20

// Gap says what lies between the slot's confirmed position and to, without moving the slot. What it holds is
// counted where that is cheap.
func (k *SlotKeeper) Gap(ctx context.Context, slot *SlotReport, to pglogrepl.LSN) *Gap {
	g := &Gap{From: slot.ConfirmedFlush, To: to}
	switch {
	case slot.Lost():
		g.Unknown = "the slot is lost, and its log cannot be read any more"
	case int64(to)-int64(slot.Restart) > countLimit:
		g.Unknown = fmt.Sprintf("more than %d MiB of log would have to be read", countLimit>>20)
	default:
		if err := k.count(ctx, g); err != nil {
			g.Unknown = err.Error()
		}
	}
	g.Counted = g.Unknown == ""
	return g
}

// count decodes the gap as the stream would, through the function that peeks into a slot.
func (k *SlotKeeper) count(ctx context.Context, g *Gap) error {
	cfg := k.server.cfg
	args := []string{"proto_version", "1", "publication_names", pgx.Identifier{cfg.Publication}.Sanitize()}
	if len(cfg.Messages) > 0 {
		args = append(args, "messages", "true")
	}
	rows, err := k.server.SQL.Query(ctx,
		"SELECT data FROM pg_logical_slot_peek_binary_changes($1, $2::text::pg_lsn, NULL, VARIADIC $3::text[])",
		cfg.Slot, g.To.String(), args)
	if err != nil {
		return fmt.Errorf("peek into slot: %w", err)
	}
	changes, err := pgx.CollectRows(rows, pgx.RowTo[[]byte]) // before relations are looked up on this connection
	if err != nil {
		return fmt.Errorf("peek into slot: %w", err)
	}
	d := decoder.New(decoder.Config{
		Mappings: cfg.Mappings, Messages: cfg.Messages,
		Timeline: func(pglogrepl.LSN) uint32 { return 1 }, // positions are not looked at
	})
	before := g.Events
	for _, change := range changes {
		kind, err := d.Decode(change)
		if err != nil {
			return err
		}
		switch kind {
		case decoder.KindEvent:
			g.Events++
		case decoder.KindRelation:
			err = k.server.bind(ctx, d, alone)
		case decoder.KindCommit:
			if g.Events > before {
				g.Last = d.Commit().CommitTime
				if g.Transactions == 0 {
					g.First = g.Last
				}
				g.Transactions++
			}
			before = g.Events
		default:
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Consequence is what the next start does about the gap that is left when the slot is dropped.
func (k *SlotKeeper) Consequence(ctx context.Context) (string, error) {
	row, err := k.server.Registry().load(ctx)
	if err != nil {
		return "", err
	}
	if row == nil || row.Created == 0 {
		return "nothing is recorded of the slot, so the next start creates it again and goes on without a word", nil
	}
	return "the next start refuses, and states this gap, until it is dealt with: run `walrelay slot create`, or " +
		"`walrelay stream new-epoch " + k.server.cfg.Stream + "` and let the start create the slot; start walrelay, and " +
		"then publish the rows of the gap again: `walrelay replay --since " + row.gapSince() + "`", nil
}
