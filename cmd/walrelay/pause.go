package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"unicode"

	"github.com/walrelay/walrelay/cdc"
)

type streamPauseCommand struct {
	Name   string `arg:"" optional:"" help:"The stream. Default: the configured one."`
	Reason string `help:"Why, for those who find the stream paused."`
}

// Run records the pause, which every instance obeys, also after a restart.
func (c *streamPauseCommand) Run(ctx context.Context, cmd *command) error {
	if strings.ContainsFunc(c.Reason, unicode.IsControl) {
		return usageError{errors.New("--reason must be one line")}
	}
	return cmd.withRegistry(ctx, c.Name, func(registry *cdc.Registry, config *cdc.Config) error {
		if err := registry.Pause(ctx, operator(), c.Reason); err != nil {
			return err
		}
		pause, err := registry.Paused(ctx)
		if err != nil || pause == nil {
			return err // somebody has resumed it meanwhile
		}
		_, err = fmt.Fprintf(cmd.stdout, "stream %s is %s\n"+
			"a running instance delivers what is in flight and lets go of the slot within %s (WALRELAY_SHUTDOWN_TIMEOUT);\n"+
			"the server keeps the write-ahead log from then on; to go on: walrelay stream resume %s\n",
			config.Stream, pause, cmd.settings.ShutdownTimeout.Value, config.Stream)
		return err
	})
}

type streamResumeCommand struct {
	Name string `arg:"" optional:"" help:"The stream. Default: the configured one."`
}

// Run ends the pause.
func (c *streamResumeCommand) Run(ctx context.Context, cmd *command) error {
	return cmd.withRegistry(ctx, c.Name, func(registry *cdc.Registry, config *cdc.Config) error {
		pause, err := registry.Paused(ctx)
		if err != nil {
			return err
		}
		if err := registry.Resume(ctx); err != nil {
			return err
		}
		was := "was not paused"
		if pause != nil {
			was = "goes on; it was " + pause.String()
		}
		_, err = fmt.Fprintf(cmd.stdout, "stream %s %s\n", config.Stream, was)
		return err
	})
}

// operator names who gives a command, for those who find out later: user@host, as far as the system tells.
func operator() string {
	name, host := fmt.Sprintf("uid %d", os.Getuid()), "unknown host"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
