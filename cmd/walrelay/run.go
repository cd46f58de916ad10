package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/cdc/retention"
	"github.com/walrelay/walrelay/monitor"
	"github.com/walrelay/walrelay/sink"
)

var _ cdc.Sink = (*sink.Kafka)(nil)

type runCommand struct{}

// Run streams until the context ends.
func (runCommand) Run(ctx context.Context, cmd *command) error {
	if err := cmd.validate(cmd.database, cmd.brokers); err != nil {
		return err
	}
	log, err := newLogger(cmd.settings, cmd.stderr)
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }()

	log.Info("starting", zap.String(keyVersion, buildVersion().version))
	for _, warning := range cmd.settings.exposed() {
		log.Warn(warning)
	}
	tracing := cmd.tracing(ctx, log.Named("tracing"))
	err = stream(ctx, cmd.settings, tracing, log)
	tracing.close(ctx)
	if err != nil {
		log.Error("stream ended", zap.Error(err))
		return errLogged
	}
	log.Info("stopped", zap.NamedError(keyCause, context.Cause(ctx)))
	return nil
}

// errStreamEnded ends the sink and the monitor once the stream has.
var errStreamEnded = errors.New("the stream has ended")

// stream puts the parts together. They end in order: the stream drains, and only then the sink and
// the monitor, which it needs for that, stop.
func stream(ctx context.Context, s *Settings, tracing *tracing, log *zap.Logger) error {
	var relay *cdc.Stream
	var kafka *sink.Kafka
	keeper := retention.New(s.retentionConfig(log))
	keeping := s.Retention.Value > 0
	watch, err := monitor.New(s.monitorConfig(log,
		func() monitor.Status {
			status := shownStatus(relay.Status(), kafka.Troubles())
			status.WALBudget, status.Spans = s.WALBudget.Bytes, tracing.stats()
			if keeping {
				status.Retention = shownRetention(keeper.Stats())
			}
			return status
		},
		func(ctx context.Context) (monitor.Lag, error) {
			lag, err := relay.Lag(ctx)
			return shownLag(lag), err
		}))
	if err != nil {
		return err
	}
	sinkConfig, err := s.sinkConfig(log)
	if err != nil {
		return err
	}
	sinkConfig.Observer, sinkConfig.Tracing = watch.Observer(), tracing.sink(s.Slot.Text)
	sinkConfig.Now = func() time.Time { return time.Now().Add(relay.ClockOffset()) }
	if kafka, err = sink.New(sinkConfig); err != nil {
		return fmt.Errorf("configure the sink: %w", err)
	}
	streamConfig := s.cdcConfig(log, sinkConfig.Topic.Columns())
	if before, ok := streamConfig.Backfill.(*backfill); ok {
		before.tracing = sinkConfig.Tracing
	}
	if keeping {
		streamConfig.Check = keeper.Check
	}
	if relay, err = cdc.New(streamConfig, kafka); err != nil {
		return fmt.Errorf("configure the stream: %w", err)
	}

	parts, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	group, parts := errgroup.WithContext(parts)
	group.Go(func() error { return kafka.Run(parts) })
	if s.AdminAddr.Text != "" {
		group.Go(func() error { return watch.Run(parts) })
	}
	// The stream ends with ctx, or when a part that it needs has ended.
	streaming, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(parts, func() { stop(context.Cause(parts)) })()
	if keeping {
		group.Go(func() error {
			keeper.Run(streaming, relay)
			return nil
		})
	}
	group.Go(func() error {
		defer cancel(errStreamEnded)
		return relay.Run(streaming)
	})
	return group.Wait()
}
