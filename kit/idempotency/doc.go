// Package idempotency runs a request's work at most once for each idempotency key and gives every
// repetition the answer of the first.
//
//	r, err := idempotency.Run(ctx, pool, request, func(ctx context.Context, tx pgx.Tx) (idempotency.Response, error) {
//		… // the business change, in tx
//		return idempotency.Response{Status: 201, Body: body}, nil
//	})
//
// A key is a row of the table walrelay_kit.idempotency_keys (migrations/kit/00002_idempotency.sql):
//
//	            Claim                     Complete, in the transaction of the business change
//	(no row) ─────────► in_progress, 1 ─────────────────────────────────────────► completed
//	                      │      ▲ ╲                                                  │
//	     Release: the     │      │  ╲ lease over, Claim by another: token + 1          │ Purge with Compact
//	     lease ends now   └──────┘   ╲                                                ▼
//	                                  ► in_progress, 2 ──► completed              key and hashes
//
// What holds, whoever is killed at whatever moment:
//
//   - The answer and the business change are committed together or not at all. Complete is a
//     compare-and-set on state, token and request, so at most one transaction ever completes a key: the
//     one of an owner who was too slow gets ErrLost and is rolled back with everything it wrote.
//   - A claim whose owner vanished ends with its lease. Leases are set and judged by the clock of the
//     database; the clocks of the callers do not matter.
//   - An owner is only replaced once its lease is over, and may complete late when nobody did.
//
// What does not hold: an effect outside this database (a call to a payment provider, an e-mail) may
// happen twice, by the late owner and by the one who took over. Pass a key on to it (package httpkey
// derives one), or write an event into the outbox in the same transaction.
//
// The promise about a key ends when Purge removes it, and a failover to a standby that lacks the last
// commits loses keys together with the business changes of the same transactions.
package idempotency
