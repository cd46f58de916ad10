package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/walrelay/walrelay/testenv"
)

// relayNames are the settings of walrelay that differ between runs; all others are the defaults.
type relayNames struct{ slot, topic string }

// startRelay starts a command of walrelay over loopback TCP.
func (b *bench) startRelay(ctx context.Context, db *testenv.Database, names relayNames, args ...string) *process {
	cmd := exec.CommandContext(ctx, b.relay, args...)
	cmd.Env = []string{
		"WALRELAY_DATABASE_URL=" + db.DSN,
		"WALRELAY_KAFKA_BROKERS=" + b.cluster.Seeds(),
		"WALRELAY_ADMIN_ADDR=127.0.0.1:0", // its default port may be taken here
	}
	if names.slot != "" {
		cmd.Env = append(cmd.Env, "WALRELAY_SLOT="+names.slot, "WALRELAY_TOPIC="+names.topic)
	}
	return startProcess(b.t, cmd, `"message":"streaming"`)
}

// drainRelay lets walrelay drain the slot into a topic of its own. The clock runs from its saying
// that it streams until the end offsets account for every event.
func (b *bench) drainRelay(ctx context.Context, task drainTask) (result drainResult, err error) {
	names := relayNames{slot: task.slot, topic: "bench." + task.slot}
	b.cluster.CreateTopic(b.t, names.topic, partitions, nil)
	relay := b.startRelay(ctx, task.db, names, "run")
	start, err := relay.streaming(ctx)
	if err != nil {
		return result, err
	}
	if task.profile != "" {
		if err := b.profile(ctx, relay, task.profile); err != nil {
			return result, err
		}
	}

	pid := relay.cmd.Process.Pid
	meter, err := startMeter(pid, b.cluster.BrokerPID(0))
	if err != nil {
		return result, err
	}
	if err := b.awaitOffsets(ctx, relay, names.topic); err != nil {
		return result, err
	}
	result.Seconds = time.Since(start).Seconds()
	machine, processes, err := meter.used()
	if err != nil {
		return result, err
	}
	result.MachineCPUSeconds = machine.Seconds()
	result.CPUSeconds, result.BrokerCPUSeconds = processes[0].Seconds(), processes[1].Seconds()
	if result.PeakRSSBytes, err = peakRSS(pid); err != nil {
		return result, err
	}

	if err := relay.stop(ctx); err != nil {
		return result, err
	}
	if result.Delivered, result.Distinct, err = b.count(ctx, names.topic); err != nil {
		return result, fmt.Errorf("count: %w", err)
	}
	if result.Distinct != b.options.events {
		return result, fmt.Errorf("count: %d of %d events are in Kafka", result.Distinct, b.options.events)
	}
	return result, b.deleteTopic(ctx, names.topic)
}
