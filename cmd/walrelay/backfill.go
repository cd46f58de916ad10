package main

import (
	"context"

	"go.uber.org/zap"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/cdc/replay"
	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/sink"
)

// backfill is the replay of everything that comes before a stream.
type backfill struct {
	settings *Settings
	config   cdc.Config
	log      *zap.Logger
	tracing  *sink.Tracing // nil: none
}

var _ cdc.Backfill = (*backfill)(nil)

// Plan implements cdc.Backfill.
func (b *backfill) Plan(ctx context.Context) error {
	record := &replay.Record{Name: backfillName, Selection: replay.Selection{All: true}}
	b.settings.timeColumns(&record.Selection)
	return b.withLedger(ctx, func(ledger *replay.Ledger) error { return ledger.Plan(ctx, record, b.config.Slot) })
}

// Due implements cdc.Backfill.
func (b *backfill) Due(ctx context.Context) (due bool, err error) {
	err = b.withLedger(ctx, func(ledger *replay.Ledger) error {
		record, err := ledger.Find(ctx, backfillName)
		due = record != nil && record.State != replay.Done
		return err
	})
	return due, err
}

// Run implements cdc.Backfill.
func (b *backfill) Run(ctx context.Context, snapshot string, progress func(done, total int64)) error {
	return b.withLedger(ctx, func(ledger *replay.Ledger) error {
		held, err := ledger.Hold(ctx, backfillName)
		switch {
		case err != nil:
			return err
		case !held:
			return cdc.ErrBackfillElsewhere
		}
		record, err := ledger.Find(ctx, backfillName)
		if err != nil || record == nil || record.State == replay.Done { // another process was faster
			return err
		}
		kafka, err := b.settings.replaySink(backfillName, b.log, b.tracing)
		if err != nil {
			return err
		}
		err = runSink(ctx, kafka, func(ctx context.Context, kafka *sink.Kafka) error {
			return replay.Run(ctx, &replay.Config{
				CDC: &b.config, Ledger: ledger, Sink: kafka, Snapshot: snapshot, Progress: progress, Skip: b.settings.skips(),
				Refused: func(p checkpoint.Poison) {
					b.log.Warn("a row from before the slot cannot be delivered and is left out", zap.String("event_id", p.EventID),
						zap.String("table", p.Table), zap.String("topic", p.Topic), zap.String("reason", p.Reason),
						zap.Stringer("dead_letter", p.Position),
						zap.String("to_publish_it", "mend the cause, then: walrelay deadletters redrive "+p.Position.String()))
				},
				Trouble: func(err error) { b.log.Warn("publishing the rows from before the slot again", zap.Error(err)) },
			}, record)
		})
		switch {
		case err != nil:
			return err
		case record.Refused > 0:
			b.log.Warn("rows from before the slot were left out", zap.Int64("rows", record.Refused))
			return nil
		}
		return ledger.CoverAll(ctx)
	})
}

func (b *backfill) withLedger(ctx context.Context, use func(*replay.Ledger) error) error {
	ledger, err := replay.OpenLedger(ctx, &b.config)
	if err != nil {
		return err
	}
	defer func() { _ = ledger.Close(context.WithoutCancel(ctx)) }()
	return use(ledger)
}
