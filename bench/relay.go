package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/walrelay/walrelay/testenv"
)

// relayNames are the settings of walrelay that differ between runs; all others are the defaults.
type relayNames struct {
	slot, topic string
	exactly     bool
	cut         time.Duration // of transactions; 0: the default
}

// latencyCut is the cut of transactions for the latency of exactly-once delivery.
const latencyCut = 20 * time.Millisecond

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
	if names.exactly {
		cmd.Env = append(cmd.Env, "WALRELAY_DELIVERY=exactly-once")
	}
	if names.cut > 0 {
		cmd.Env = append(cmd.Env, "WALRELAY_TRANSACTION_INTERVAL="+names.cut.String())
	}
	return startProcess(b.t, cmd, `"message":"streaming"`)
}

// drainRelay lets walrelay drain the slot into a topic of its own. The clock runs from its saying
// that it streams until the end offsets account for every event. In exactly-once delivery these
// count the ends of transactions too, so there it runs until the broker has written the last event.
func (b *bench) drainRelay(ctx context.Context, task drainTask) (result drainResult, err error) {
	names := relayNames{slot: task.slot, topic: "bench." + task.slot, exactly: task.exactly}
	b.cluster.CreateTopic(b.t, names.topic, partitions, map[string]string{"message.timestamp.type": "LogAppendTime"})
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
	if names.exactly {
		err = b.awaitConfirmed(ctx, relay, task)
	} else {
		err = b.awaitOffsets(ctx, relay, names.topic)
	}
	if err != nil {
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
	found, err := b.count(ctx, names.topic)
	if err != nil {
		return result, fmt.Errorf("count: %w", err)
	}
	result.Delivered, result.Distinct = found.records, found.distinct
	if names.exactly {
		result.Seconds = found.last.Sub(start).Seconds()
	}
	if result.Distinct != b.options.events {
		return result, fmt.Errorf("count: %d of %d events are in Kafka", result.Distinct, b.options.events)
	}
	return result, b.deleteTopic(ctx, names.topic)
}
