package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/kit/consumer"
)

// describeRecord is what this package has to know about a record of franz-go.
func describeRecord(r *kgo.Record) consumer.Record {
	return consumer.Record{
		Topic: r.Topic, Partition: r.Partition,
		Headers: consumer.List(r.Headers, func(h kgo.RecordHeader) (string, []byte) { return h.Key, h.Value }),
	}
}

// runInbox applies each event to the database once, from at-least-once delivery, until ctx ends: positions are
// saved with the effects, and offsets are committed after them.
func runInbox(ctx context.Context, seeds []string, topic string, pool *pgxpool.Pool) error {
	marks := consumer.NewMarks("billing")
	client, err := kgo.NewClient(
		kgo.SeedBrokers(seeds...),
		kgo.ConsumerGroup("billing"),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), // needed when the relay delivers exactly-once, harmless otherwise
		kgo.DisableAutoCommit(),                      // offsets come after the transaction, never before
		kgo.BlockRebalanceOnPoll(),                   // no partition leaves in the midst of a batch
	)
	if err != nil {
		return fmt.Errorf("open consumer: %w", err)
	}
	defer client.CloseAllowingRebalance()
	for {
		fetches := client.PollRecords(ctx, 500)
		if ctx.Err() != nil {
			return nil
		}
		if err := applyBatch(ctx, pool, marks, fetches.Records()); err != nil {
			return err // start again from the committed offsets
		}
		if err := client.CommitUncommittedOffsets(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("commit offsets: %w", err)
		}
		client.AllowRebalance()
	}
}

// applyBatch loads the marks of partitions with every batch: one cheap query, and nothing to do at rebalances.
// Process says why a batch that failed with ErrStale may be tried again.
func applyBatch(ctx context.Context, pool *pgxpool.Pool, marks *consumer.Marks, records []*kgo.Record) error {
	partitions := make(map[string][]int32)
	for _, r := range records {
		partitions[r.Topic] = append(partitions[r.Topic], r.Partition)
	}
	for {
		for topic, numbers := range partitions {
			if err := marks.Load(ctx, pool, topic, numbers...); err != nil {
				return err
			}
		}
		err := consumer.Process(ctx, pool, marks, records, describeRecord, bill)
		if !errors.Is(err, consumer.ErrStale) {
			return err
		}
	}
}

// bill is the effect. A replay has no position, so its id has to tell; the primary key does.
func bill(ctx context.Context, db pgx.Tx, r *kgo.Record, event consumer.Event) error {
	_, err := db.Exec(ctx, `INSERT INTO bill (event_id, position, content) VALUES ($1, $2, $3)
		ON CONFLICT (event_id) DO NOTHING`, event.ID, event.Position.String(), string(r.Value))
	return err
}

// runTransform reads one topic and writes another, each record once, until ctx ends: what it writes and the
// offsets of what it has read are committed in one transaction of Kafka. No database takes part.
func runTransform(ctx context.Context, seeds []string, from, to, instance string) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(seeds...),
		kgo.ConsumerGroup("totals"),
		kgo.ConsumeTopics(from),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		// Without read_committed this would transform what the relay, or an instance like this one, has aborted. The
		// readers of the other topic need it as well.
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// The id outlives the process: a restarted instance with the same id ends its predecessor's transaction, and
		// fences it when it still runs. Each instance has one of its own. The group's generation, sent with the
		// offsets, fences an instance that has lost its partitions (KIP-447).
		kgo.TransactionalID("totals-"+instance),
		// How long the readers wait for a transaction whose instance has died, when nobody takes its id over.
		kgo.TransactionTimeout(20*time.Second),
		// Idempotent production (a producer id and sequence numbers: the broker drops what a retry repeats and
		// refuses gaps) is on by default here, and demands acks from all in-sync replicas. It covers retries of one
		// producer session only: that is what the transaction is added for. Elsewhere: enable.idempotence=true,
		// acks=all, max.in.flight.requests.per.connection at most 5, no limit of retries.
		kgo.RequiredAcks(kgo.AllISRAcks()),
	)
	if err != nil {
		return fmt.Errorf("open session: %w", err)
	}
	defer session.CloseAllowingRebalance()
	// In memory: of an at-least-once relay's repetitions these drop what this process has seen itself. Each event once
	// from end to end needs the relay's exactly-once delivery; then they never drop anything.
	marks := consumer.NewMarks("totals")
	for {
		fetches := session.PollRecords(ctx, 500)
		if ctx.Err() != nil {
			return nil
		}
		if err := transform(ctx, session, marks, to, fetches.Records()); err != nil {
			return err
		}
	}
}

// transform is one transaction. Its end is not bound to ctx: between the two, nobody would know the outcome.
func transform(
	ctx context.Context, session *kgo.GroupTransactSession, marks *consumer.Marks, to string, records []*kgo.Record,
) error {
	if err := session.Begin(); err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	batch := marks.Batch()
	produced := kgo.AbortingFirstErrPromise(session.Client())
	var fault error
	for _, r := range records {
		event, err := consumer.Read(describeRecord(r).Headers)
		if err != nil {
			fault = err
			break
		}
		if batch.Pass(r.Topic, r.Partition, event) {
			session.Produce(ctx, &kgo.Record{
				Topic: to, Key: r.Key, Value: append([]byte("total of "), r.Value...),
				Headers: []kgo.RecordHeader{{Key: "cause", Value: []byte(event.ID)}},
			}, produced.Promise())
		}
	}
	fault = errors.Join(fault, produced.Err())
	committed, err := session.End(context.WithoutCancel(ctx), fault == nil)
	if committed {
		batch.Done()
	}
	// Not committed without an error: a rebalance. The partitions' new owner begins at the committed offsets.
	return errors.Join(fault, err)
}

// Everything in a batch, its records' positions among it, is committed at once.
func ExampleProcess() {
	var pool *pgxpool.Pool                // of your database
	var records []*kgo.Record             // of one poll
	marks := consumer.NewMarks("billing") // loaded when partitions were assigned
	process := func(ctx context.Context) error {
		return consumer.Process(ctx, pool, marks, records, describeRecord,
			func(ctx context.Context, db pgx.Tx, r *kgo.Record, event consumer.Event) error {
				_, err := db.Exec(ctx, "INSERT INTO bill (event_id, content) VALUES ($1, $2)", event.ID, string(r.Value))
				return err
			})
	}
	_ = process
}
