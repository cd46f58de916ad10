package consumer

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Beginner begins transactions: a *pgxpool.Pool or *pgx.Conn.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Record is what Process needs to know about a client's record.
type Record struct {
	Topic     string
	Partition int32
	Headers   Headers
}

// Process applies a batch of records in one transaction of its own, in their order, without those that
// the marks know, and saves the marks in it. Describe reads the client's record; apply does the work of one
// event with db, and must do nothing that db does not undo.
//
// When it returns nil, all is committed: now commit the offsets. When it returns an error, nothing is, with one
// exception, the loss of the connection during the commit; either way the same records may be given again
// after ErrStale was answered with Load. An event without position (see Batch.Pass) is given to apply each
// time. A record of another producer ends the batch with ErrForeign: leave such records out.
func Process[R any](
	ctx context.Context, db Beginner, marks *Marks, records []R, describe func(R) Record,
	apply func(ctx context.Context, db pgx.Tx, record R, event Event) error,
) error {
	batch := marks.Batch()
	err := pgx.BeginFunc(ctx, db, func(db pgx.Tx) error {
		for _, record := range records {
			about := describe(record)
			event, err := Read(about.Headers)
			if err != nil {
				return fmt.Errorf("read record of %s, partition %d: %w", about.Topic, about.Partition, err)
			}
			if !batch.Pass(about.Topic, about.Partition, event) {
				continue
			}
			if err := apply(ctx, db, record, event); err != nil {
				return fmt.Errorf("apply event %s: %w", event.ID, err)
			}
		}
		return batch.Save(ctx, db)
	})
	if err != nil {
		return err
	}
	batch.Done()
	return nil
}
