// Package consumer reads walrelay's records with whichever Kafka client, and applies each event once.
//
// Read takes the event's data from a record's headers. Its Position grows within a stream, topic and
// partition, so one comparison drops repetitions: with Marks in memory, which saves work, or with Marks that
// are saved in the transaction of the effects, which makes the effects exactly-once:
//
//	marks := consumer.NewMarks("billing")
//	// when partitions are assigned: marks.Load(ctx, pool, topic, partitions...)
//	// when they are revoked or lost: marks.Forget(topic, partitions...)
//	err := consumer.Process(ctx, pool, marks, records, describe, apply) // one transaction for the batch
//	…                                    // and only then: commit the offsets
//
// What happens when it fails, and where:
//
//   - before the transaction's commit: everything is undone, the records are fetched again;
//   - between the commit and that of the offsets: the records are fetched again, and their positions, saved
//     with the effects, drop them;
//   - the partition has moved, and the old owner still works on a batch (a zombie): whoever commits second finds
//     another position than it began with, gets ErrStale, and rolls back.
//
// Offsets are therefore only where to begin reading; they may be behind, never ahead.
//
// Positions say nothing about replays, which have none, nor about records under a new epoch of the stream that
// repeat old events: both are what kit/inbox is for, which keeps the ids of events. Records of other
// producers are ErrForeign.
package consumer
