package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/kit/consumer"
	"github.com/walrelay/walrelay/kit/inbox"
	"github.com/walrelay/walrelay/kit/tx"
)

const (
	group = "ledger"
	// attempts at a payment that cannot be booked; then it is parked, and those behind it have their turn.
	attempts = 10
)

// consume books the payments of the topic until ctx ends, or until something fails: then whoever supervises the
// process starts it again, and it goes on at the committed offsets.
func consume(ctx context.Context, dsn string, brokers []string, log *slog.Logger) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer pool.Close()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), // for a relay that delivers exactly-once
		kgo.DisableAutoCommit(),                      // offsets come after the effects, never before
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(6*time.Second), // how long a killed instance keeps its partitions
	)
	if err != nil {
		return fmt.Errorf("open consumer: %w", err)
	}
	defer client.CloseAllowingRebalance()
	for {
		fetches := client.PollRecords(ctx, 100)
		if ctx.Err() != nil {
			return nil
		}
		fetches.EachError(func(_ string, partition int32, err error) { // the client tries again
			log.WarnContext(ctx, "fetch", "partition", partition, "error", err)
		})
		if err := applyAll(ctx, pool, fetches.Records(), log); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		// Offsets say where to begin reading. When they stay behind, records come again as duplicates.
		if err := client.CommitUncommittedOffsets(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "commit offsets", "error", err)
		}
		client.AllowRebalance()
	}
}

// applyAll ends with the first error. What is left comes again.
func applyAll(ctx context.Context, pool *pgxpool.Pool, records []*kgo.Record, log *slog.Logger) error {
	duplicates := 0
	for _, r := range records {
		outcome, err := apply(ctx, pool, r)
		if err != nil {
			return err
		}
		switch outcome {
		case inbox.Duplicate:
			duplicates++
		case inbox.Parked:
			log.ErrorContext(ctx, "payment parked", "partition", r.Partition, "offset", r.Offset)
		case inbox.Applied, inbox.Undone: // the second comes with an error
		}
	}
	if duplicates > 0 {
		log.InfoContext(ctx, "dropped", "duplicates", duplicates)
	}
	return nil
}

// apply books the payment in a record, unless it was booked before. The inbox's row and the ledger's are
// committed together.
func apply(ctx context.Context, pool *pgxpool.Pool, r *kgo.Record) (inbox.Outcome, error) {
	event, err := consumer.Read(
		consumer.List(r.Headers, func(h kgo.RecordHeader) (string, []byte) { return h.Key, h.Value }))
	if err != nil {
		return inbox.Undone, fmt.Errorf("read record at offset %d of partition %d: %w", r.Offset, r.Partition, err)
	}
	message := inbox.Message{
		Consumer: group, ID: event.ID, Stream: event.Stream, Topic: r.Topic, Partition: r.Partition,
		Position: inbox.Position(event.Position.String()), Time: event.CommitTime, Body: r.Value,
	}
	return inbox.Parking{After: attempts}.Do(ctx, pool, inbox.Table{}, message,
		func(ctx context.Context, t tx.Tx) error {
			var p payment
			if err := json.Unmarshal(r.Value, &p); err != nil {
				return fmt.Errorf("decode payment: %w: %w", err, inbox.ErrPoison)
			}
			return book(ctx, t, p)
		})
}
