// Package kit is the application's half of delivery semantics. It has no code of its own:
//
//   - outbox: events, in the transaction of the business change
//   - inbox: one effect for each message, although it is delivered many times
//   - idempotency, and idempotency/httpkey: one effect and one answer for each request
//   - fence: of two processes that believe to be in charge, only the newer one writes
//   - consumer: walrelay's records, with any Kafka client
//   - tx: the transaction that all of them work in, of pgx or database/sql
//
// docs/patterns.md has the guide to choose. The tables are in the schema walrelay_kit (`walrelay migrate up --kit`).
package kit
