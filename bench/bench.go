package main

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/testenv"
)

const (
	partitions = 8

	// warmRecords are produced before anything is measured, or three times the events if that is less:
	// until then compiling the broker's code takes half a core, and the first rounds would be slower.
	warmRecords = 1_000_000
)

// bench is a pair of running servers and the programs to measure on them.
type bench struct {
	t       testing.TB
	options options
	server  *testenv.Server
	cluster *testenv.Cluster
	relay   string // path of walrelay
	receive string // path of pg_recvlogical; empty when it is missing
}

// measure starts the servers, takes all measurements and says how far it is with t.Logf.
func measure(ctx context.Context, t testing.TB, o options) (*report, error) {
	t.Helper()
	b := &bench{t: t, options: o, relay: testenv.Binary(t), receive: findReceive()}
	b.server = testenv.StartPostgres(t, o.postgres, testenv.Config{Settings: postgresSettings(o.fsync)})
	b.cluster = testenv.StartKafka(t, testenv.KafkaConfig{JVM: []string{"-Xmx2g", "-XX:TieredStopAtLevel=4"}})

	r := &report{}
	var err error
	if r.Machine, err = describeMachine(); err != nil {
		return nil, err
	}
	if r.Setup, err = b.describe(ctx); err != nil {
		return nil, err
	}
	if b.receive == "" {
		t.Logf("pg_recvlogical is missing, so there will be no ratios (it comes with PostgreSQL's client programs)")
	}
	if err := b.warmBroker(ctx); err != nil {
		return nil, fmt.Errorf("warm up the broker: %w", err)
	}
	if o.rounds > 0 {
		for _, rows := range o.rowsPerTx {
			series, err := b.drain(ctx, rows)
			if err != nil {
				return nil, fmt.Errorf("drain with %d rows a transaction: %w", rows, err)
			}
			r.Drain = append(r.Drain, series)
		}
	}
	if o.latency > 0 {
		if r.Latency, err = b.latency(ctx, relayNames{}); err != nil {
			return nil, fmt.Errorf("measure latency: %w", err)
		}
		if o.exactly {
			if r.ExactlyOnceLatency, err = b.latency(ctx, relayNames{exactly: true, cut: latencyCut}); err != nil {
				return nil, fmt.Errorf("measure latency of exactly-once: %w", err)
			}
		}
	}
	return r, nil
}

// postgresSettings keep the server's background work out of the measurement: no checkpoint, no vacuum
// and no removal of old segments while a contender drains.
func postgresSettings(fsync bool) map[string]string {
	sync := "off"
	if fsync {
		sync = "on"
	}
	return map[string]string{
		"fsync":              sync,
		"full_page_writes":   sync,
		"autovacuum":         "off",
		"checkpoint_timeout": "1h",
		"max_wal_size":       "16GB",
		"shared_buffers":     "256MB",
	}
}

// database makes a migrated database, for one series.
func (b *bench) database(ctx context.Context) (*testenv.Database, error) {
	db := b.server.Database(b.t)
	migrate := b.startRelay(ctx, db, relayNames{}, "migrate", "up")
	if err := migrate.wait(ctx); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	return db, nil
}

// warmBroker produces records of the usual size to a topic of their own.
func (b *bench) warmBroker(ctx context.Context) error {
	const topic = "bench.warm-up"
	b.cluster.CreateTopic(b.t, topic, partitions, nil)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.cluster.Addrs()...), kgo.DefaultProduceTopic(topic),
		kgo.ProducerLinger(0), kgo.MaxBufferedRecords(200)) // many requests: they are what has to get warm
	if err != nil {
		return fmt.Errorf("open client: %w", err)
	}
	defer client.Close()
	value := make([]byte, 265)
	var failed kgo.FirstErrPromise
	for n := range min(warmRecords, 3*b.options.events) {
		record := &kgo.Record{Key: strconv.AppendInt(nil, int64(n), 10), Value: value}
		client.Produce(ctx, record, failed.Promise())
	}
	if err := failed.Err(); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	return b.deleteTopic(ctx, topic)
}

func (b *bench) deleteTopic(ctx context.Context, topic string) error {
	if _, err := b.cluster.Admin.DeleteTopic(ctx, topic); err != nil {
		return fmt.Errorf("delete topic: %w", err)
	}
	return nil
}

// pause waits, for servers to calm down.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
