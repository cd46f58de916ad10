// Package inbox gives every message one effect, although it may be delivered many times: the message is
// recorded in the same transaction as its effect, so that both are committed or neither. A
// duplicate finds the record, skips the effect and says so.
//
//	outcome, err := inbox.Do(ctx, pool, inbox.Table{},
//		inbox.Message{Consumer: "billing", ID: id},
//		func(ctx context.Context, t tx.Tx) error {
//			_, err := t.Exec(ctx, "INSERT INTO invoices …")
//			return err
//		})
//	// After an error deliver the message again; otherwise confirm it (commit the offset, answer 200).
//
// What remembers the message is a Recorder:
//
//	HighWater     walrelay's position, one row a partition; no retention; ordered consumers only
//	Table         message id, one row a message; any order, any sender, replays too
//	Partitions    as Table, for many messages; old partitions are dropped instead of rows deleted
//	RecorderFunc  the business row itself: Unique, Affected, Transition
//
// When in doubt take Table. docs/patterns/inbox.md has the guide to choose, and the SQL for other languages.
//
// kit/consumer reads a Message's fields from the headers of walrelay's records, and applies whole batches of
// a partition with one mark.
//
// Once does the same in a transaction of the caller's, also one of database/sql (tx.Std). Webhook is the
// message of a provider's call. Parking puts a message aside that fails again and again.
//
// Two deliveries at the same time are one effect at every isolation level: the second waits for the first
// on the record's row, then it is a duplicate, or the first if that one rolled back. A transaction
// that is killed before its commit leaves neither record nor effect. What an effect does outside of its
// transaction is not covered: pass an idempotency key on.
//
// The tables are in the schema walrelay_kit (`walrelay migrate up --kit`).
package inbox
