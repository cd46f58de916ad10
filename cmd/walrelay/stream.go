package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/checkpoint"
)

type streamCommand struct {
	Show     streamShowCommand     `cmd:"" help:"Show the stream's slot, its lag and the verdicts that wait."`
	Release  streamReleaseCommand  `cmd:"" help:"Decide about the event that the stream is stuck on."`
	Pause    streamPauseCommand    `cmd:"" help:"Let the stream rest: no instance streams until it is resumed."`
	Resume   streamResumeCommand   `cmd:"" help:"Let a paused stream go on."`
	NewEpoch streamNewEpochCommand `cmd:"" help:"Raise the epoch, after restoring a database or re-creating a slot."`
}

// withRegistry validates the settings and hands the registry of a stream over: the configured one, if
// name is empty.
func (c *command) withRegistry(ctx context.Context, name string, use func(*cdc.Registry, *cdc.Config) error) error {
	if err := c.validate(c.database); err != nil {
		return err
	}
	config := &cdc.Config{
		ConnString: cdc.Secret(c.settings.DatabaseURL.Reveal()), ReadConnString: c.settings.readConnString(),
		ConnectTimeout: connectTimeout,
		ReceiveTimeout: c.settings.ReceiveTimeout.Value,
		Stream:         c.settings.StreamName(), Slot: c.settings.Slot.Text,
	}
	if name != "" {
		config.Stream = name
	}
	registry, err := cdc.OpenRegistry(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = registry.Close(context.WithoutCancel(ctx)) }()
	return use(registry, config)
}

type streamShowCommand struct {
	Name string `arg:"" optional:"" help:"The stream. Default: the configured one."`
}

// Run prints what the server and the registry know. What a running instance does is in its /status.
func (c *streamShowCommand) Run(ctx context.Context, cmd *command) error {
	return cmd.withRegistry(ctx, c.Name, func(registry *cdc.Registry, config *cdc.Config) error {
		reader := cdc.NewLagReader(config)
		defer func() { _ = reader.Close(context.WithoutCancel(ctx)) }()
		lag, err := reader.Lag(ctx)
		gone := errors.Is(err, cdc.ErrNoSlot)
		if err != nil && !gone {
			return err
		}
		known, err := registry.Summary(ctx)
		if err != nil {
			return err
		}

		var b strings.Builder
		line := func(name, format string, args ...any) {
			fmt.Fprintf(&b, "%-16s %s\n", name, fmt.Sprintf(format, args...))
		}
		line("stream", "%s, epoch %d", config.Stream, known.Epoch)
		if known.Pause != nil {
			line("paused", "%s", strings.TrimPrefix(known.Pause.String(), "paused "))
		}
		line("delivery", "%s", known.Delivery)
		if known.Origin != 0 {
			line("state epoch", "%d", known.Origin)
		}
		if gone {
			line("slot", "%s does not exist", config.Slot)
		} else {
			line("slot", "%s, %s, active: %t", config.Slot, lag.WALStatus, lag.Active)
			line("confirmed", "%s, %d bytes behind", lag.ConfirmedFlush, lag.ConfirmedBytes)
			line("retained", "%d bytes of write-ahead log", lag.RetainedBytes)
			line("server time", "%s", lag.ServerTime.UTC().Format(time.RFC3339))
		}
		if known.LeftOut != nil {
			line("left out", "%s; to publish them: %s", known.LeftOut, known.LeftOut.Replay())
		}
		for _, topic := range slices.Sorted(maps.Keys(known.Partitions)) {
			line("topic", "%s, %d partitions", topic, known.Partitions[topic])
		}
		for _, position := range slices.SortedFunc(maps.Keys(known.Releases), checkpoint.Position.Compare) {
			line("verdict", "%s %s", position, known.Releases[position])
		}
		_, err = fmt.Fprint(cmd.stdout, b.String())
		return err
	})
}

type streamReleaseCommand struct {
	Position string `arg:"" help:"Position of the event, as the log and /readyz print it."`
	Verdict  string `required:"" enum:"retry,skip,dead-letter" help:"retry, skip or dead-letter the event."`
}

// Run records the verdict, which the running stream carries out.
func (c *streamReleaseCommand) Run(ctx context.Context, cmd *command) error {
	position, err := checkpoint.ParsePosition(c.Position)
	if err != nil {
		return usageError{err}
	}
	return cmd.withRegistry(ctx, "", func(registry *cdc.Registry, config *cdc.Config) error {
		if err := registry.Release(ctx, position, checkpoint.Verdict(c.Verdict)); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.stdout, "stream %s, %s: %s\n", config.Stream, position, c.Verdict)
		return err
	})
}

type streamNewEpochCommand struct {
	Name string `arg:"" optional:"" help:"The stream. Default: the configured one."`
}

// Run raises the epoch and says what is left to do.
func (c *streamNewEpochCommand) Run(ctx context.Context, cmd *command) error {
	return cmd.withRegistry(ctx, c.Name, func(registry *cdc.Registry, config *cdc.Config) error {
		start, err := registry.NewEpoch(ctx)
		if err != nil {
			return err
		}
		next := "the next start creates it, and streams what is committed from then on"
		if start.SlotExists {
			next = "the next start goes on from where it stands"
		}
		_, err = fmt.Fprintf(cmd.stdout, "stream %s begins epoch %d\nslot %s: %s\n"+
			"confirmed so far: %s; rows committed after it and not streamed must be published again\n",
			config.Stream, start.Epoch, start.Slot, next, start.Confirmed)
		return err
	})
}
