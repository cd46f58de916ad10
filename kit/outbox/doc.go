// Package outbox records events in the application's own transaction, so that an event is committed with
// the business change, or not at all. walrelay does the rest.
//
//	tx, err := pool.Begin(ctx)
//	…
//	_, err = tx.Exec(ctx, "UPDATE orders SET state = 'paid' WHERE id = $1", id)
//	…
//	_, err = outbox.Write(ctx, tx, outbox.Event{
//		AggregateType: "order", AggregateID: id, Type: "order_paid", Payload: payload,
//	})
//	…
//	err = tx.Commit(ctx)
//
// Write makes a row of a table, Emit a logical message, which lies in the write-ahead log alone. Both take
// a transaction of pgx, or one of database/sql through tx.Std. Events of one call, and of one transaction,
// are delivered in the order in which they were recorded, within a key; transactions in the order of commit. Take
// one of the two for all events of a key: with savepoints, the order among rows and messages may be another.
//
// Where a step may be repeated (a retried request, a job that starts again), give the event an id that
// follows from what it is about, see Namespace. The table then refuses the second one, or passes over it.
//
// WithTrace and WithCause put into the context what the events' headers shall carry.
package outbox
