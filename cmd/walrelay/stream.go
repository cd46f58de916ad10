package main

import (
	"context"
	"fmt"
	"io"

	"github.com/walrelay/walrelay/checkpoint"
)

type streamCommand struct {
	Show     streamShowCommand     `cmd:"" help:"Show what is recorded of the stream, and what it is stuck on."`
	Release  streamReleaseCommand  `cmd:"" help:"Decide about the event that the stream is stuck on."`
	NewEpoch streamNewEpochCommand `cmd:"" help:"Raise the epoch, after restoring a database or re-creating a slot."`
}

// registry is what these commands need of the stream's tables in PostgreSQL.
type registry interface {
	// Show writes what is recorded of the stream.
	Show(ctx context.Context, stream string, w io.Writer) error
	// Release records a verdict, which the running stream carries out.
	Release(ctx context.Context, stream string, position checkpoint.Position, verdict checkpoint.Verdict) error
	// NewEpoch raises the epoch and returns the new one.
	NewEpoch(ctx context.Context, stream string) (uint32, error)
}

type streamShowCommand struct {
	Name string `arg:"" optional:"" help:"The stream. Default: the configured one."`
}

// Run prints the stream's rows.
func (c *streamShowCommand) Run(ctx context.Context, cmd *command) error {
	if err := cmd.validate(cmd.database); err != nil {
		return err
	}
	return newRegistry(cmd.settings).Show(ctx, cmd.streamName(c.Name), cmd.stdout)
}

type streamReleaseCommand struct {
	Position string `arg:"" help:"Position of the event, as the log and /readyz print it."`
	Verdict  string `required:"" enum:"retry,skip,dead-letter" help:"retry, skip or dead-letter the event."`
}

// Run records the verdict.
func (c *streamReleaseCommand) Run(ctx context.Context, cmd *command) error {
	position, err := checkpoint.ParsePosition(c.Position)
	if err != nil {
		return usageError{err}
	}
	if err := cmd.validate(cmd.database); err != nil {
		return err
	}
	err = newRegistry(cmd.settings).Release(ctx, cmd.streamName(""), position, checkpoint.Verdict(c.Verdict))
	if err != nil {
		return fmt.Errorf("release %s: %w", position, err)
	}
	_, err = fmt.Fprintf(cmd.stdout, "%s: %s\n", position, c.Verdict)
	return err
}

type streamNewEpochCommand struct {
	Name string `arg:"" optional:"" help:"The stream. Default: the configured one."`
}

// Run raises the epoch.
func (c *streamNewEpochCommand) Run(ctx context.Context, cmd *command) error {
	if err := cmd.validate(cmd.database); err != nil {
		return err
	}
	epoch, err := newRegistry(cmd.settings).NewEpoch(ctx, cmd.streamName(c.Name))
	if err != nil {
		return fmt.Errorf("raise the epoch: %w", err)
	}
	_, err = fmt.Fprintf(cmd.stdout, "epoch %d\n", epoch)
	return err
}

func (c *command) streamName(name string) string {
	if name != "" {
		return name
	}
	return c.settings.StreamName()
}
