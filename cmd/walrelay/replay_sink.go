package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/walrelay/walrelay/sink"
)

// withReplaySink runs a sink that publishes beside the stream, under a replay's name, while use uses it.
// What it cannot deliver is reported and left out, whatever the stream's policy.
func (c *command) withReplaySink(
	ctx context.Context, name string, log *zap.Logger, use func(context.Context, *sink.Kafka) error,
) error {
	kafka, err := c.settings.replaySink(name, log, nil)
	if err != nil {
		return err
	}
	return runSink(ctx, kafka, use)
}

// skips says that the stream's policy is to drop what cannot be delivered.
func (s *Settings) skips() bool { return s.OnPoison.Text == string(sink.Skip) }

// replaySink makes a sink of a replay.
func (s *Settings) replaySink(name string, log *zap.Logger, tracing *sink.Tracing) (*sink.Kafka, error) {
	config, err := s.replayConfig(name, log)
	if err != nil {
		return nil, err
	}
	config.Tracing = tracing
	kafka, err := sink.New(config)
	if err != nil {
		return nil, fmt.Errorf("configure the sink: %w", err)
	}
	return kafka, nil
}

func (s *Settings) replayConfig(name string, log *zap.Logger) (sink.Config, error) {
	config, err := s.sinkConfig(log)
	config.Replay, config.OnPoison, config.FollowKey = name, sink.Skip, false
	config.Observer, config.Now = unobserved{}, time.Now
	return config, err
}

// errUsed ends a sink that is not needed any more.
var errUsed = errors.New("the sink was used")

func runSink(ctx context.Context, kafka *sink.Kafka, use func(context.Context, *sink.Kafka) error) error {
	running, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	group, running := errgroup.WithContext(running)
	group.Go(func() error { return kafka.Run(running) })
	group.Go(func() error {
		defer cancel(errUsed)
		using, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		defer context.AfterFunc(running, func() { stop(context.Cause(running)) })()
		return use(using, kafka)
	})
	return group.Wait()
}

// unobserved is for what the stream's metrics do not count.
type unobserved struct{}

// Acked implements sink.Observer.
func (unobserved) Acked(string, int, []time.Time, time.Time) {}

// Throttled implements sink.Observer.
func (unobserved) Throttled(string, time.Duration) {}

// Renamed implements sink.Observer.
func (unobserved) Renamed(string) {}
