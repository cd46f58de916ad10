package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/walrelay/walrelay/kit/tx"
)

// HighWater records one row a partition in walrelay_kit.inbox_marks: the position of the last message
// that was applied. walrelay's positions only grow within a stream, topic and partition, so whatever is
// not above the mark is a repetition: of walrelay after a crash, of a zombie instance of it, of a consumer
// whose offsets were not committed or were set back, of a consumer that lost the partition and doesn't know.
//
// It needs no retention. It holds only for a consumer that applies the records of a partition one after
// another, in their order, and goes on after an error only when the outcome is Parked: what was left
// out stays below the mark and is taken for a repetition. And it cannot handle, where Table can:
//
//   - records without a position: replays (walrelay-replay), dead letters, whatever another producer
//     wrote. They are refused with ErrNoPosition, for Table to tell by their id. It can only tell what it has
//     recorded itself, so a consumer of replays uses Table for everything, from its beginning;
//   - what repeats under a new epoch (another routing, partition count or delivery mode, or
//     `walrelay stream new-epoch`): it passes once more;
//   - the same event published twice, with two positions;
//   - a topic that was copied to other partitions than walrelay wrote it to.
type HighWater struct{}

// ErrNoPosition is returned by HighWater for a message without a position. Record it by id, with Table.
var ErrNoPosition = errors.New("message has no position, record it by id")

// Record implements Recorder. It needs Stream, Topic, Partition and Position. All transactions of a
// partition wait for each other, in commit order, as its records do.
func (HighWater) Record(ctx context.Context, t tx.Tx, m Message) (Outcome, error) {
	if err := markable(m); err != nil {
		return Undone, err
	}
	tag, err := t.Exec(ctx, `INSERT INTO walrelay_kit.inbox_marks AS mark (consumer, stream, topic, partition, position)
		VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (consumer, stream, topic, partition)
		DO UPDATE SET position = excluded.position, updated_at = now() WHERE mark.position < excluded.position`,
		m.Consumer, m.Stream, m.Topic, m.Partition, string(m.Position))
	if err != nil {
		return Undone, err
	}
	if tag.RowsAffected() == 0 {
		return Duplicate, nil
	}
	return Applied, nil
}

// markable reports what a mark lacks.
func markable(m Message) error {
	if m.Position.None() {
		return ErrNoPosition
	}
	if m.Stream == "" || m.Topic == "" {
		return fmt.Errorf("stream and topic are required: %w", ErrIncomplete)
	}
	return m.Position.Validate()
}

// isHighWater reports a Recorder whose Duplicate says that a message was passed, not that it was applied.
func isHighWater(r Recorder) bool {
	switch r.(type) {
	case HighWater, *HighWater:
		return true
	}
	return false
}

// Forget deletes the marks of a stream that will not come again: whatever comes of it is then new. It
// returns how many partitions had one.
func (HighWater) Forget(ctx context.Context, t tx.Tx, consumer, stream string) (int64, error) {
	tag, err := t.Exec(ctx, `DELETE FROM walrelay_kit.inbox_marks WHERE consumer = $1 AND stream = $2`, consumer, stream)
	if err != nil {
		return 0, fmt.Errorf("forget marks: %w", err)
	}
	return tag.RowsAffected(), nil
}
