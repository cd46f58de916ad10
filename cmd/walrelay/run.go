package main

import (
	"context"
	"errors"

	"go.uber.org/zap"
)

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

	log.Info("starting", zap.String(keyVersion, buildVersion().version),
		zap.String(keyStream, cmd.settings.StreamName()), zap.String(keySlot, cmd.settings.Slot.Text))
	if err := stream(ctx, cmd.settings, log); err != nil {
		log.Error("stream ended", zap.Error(err))
		return errLogged
	}
	log.Info("stopped", zap.NamedError(keyCause, context.Cause(ctx)))
	return nil
}

// stream puts the parts together: session, sink, monitor.
func stream(context.Context, *Settings, *zap.Logger) error {
	return errors.New("streaming is not in this version yet")
}
