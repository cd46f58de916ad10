// Package retention deletes outbox rows that have served their purpose: their events are confirmed, and
// they are older than a limit.
//
// # What may be deleted
//
// A row does not say where in the log its transaction was committed, and commit order is neither the
// order of ids nor that of times. So rows are chosen first, by their time; then the server's insert
// position is read: the chosen rows were visible, so their commit records lie before it. Once the stream
// has covered that position, every one of their events is confirmed, and they are deleted. Both happen
// within one session of the stream and on its server, since a position means nothing on another one:
// after every reconnect, and after a crash, rows are chosen anew.
//
// A chosen row is remembered by its id and its xmin, the transaction that wrote it: a row of the same id
// that was written since is another row, and its event may be on its way.
//
// Rows that are never chosen:
//
//   - those with a time before walrelay.streams.covered_since, when the slot began: whether they were
//     ever streamed cannot be told. They may be the rows of a gap.
//   - those that walrelay.dead_letters names, whatever was done: the row is what the event can be
//     published from again.
//   - those that other transactions have locked.
//
// # Partitions
//
// Where an outbox is partitioned by ranges of the time column, and the role owns it, no rows are deleted but whole
// partitions dropped: see dropPartitions.
//
// # What it costs
//
// Statements of few rows, each a transaction of its own, on a connection of its own, which does nothing for
// nine tenths of the time. Nobody waits for it, and it waits for nobody's row.
package retention
