// Package fence makes sure that of two processes which both believe to be in charge only the newer one
// can write.
//
// A lock or lease alone cannot do that: its holder may be paused (garbage collection, a stopped virtual
// machine, a stalled disk) between looking at the clock and writing, and wake up when somebody else has
// taken over. So each holder gets a Token, larger than all before it, passes it along with every write,
// and the resource refuses a token smaller than the largest it has seen:
//
//	leases := fence.Leases{DB: pool, TTL: 15 * time.Second}
//	lease, err := leases.Acquire(ctx, "ledger-7", hostname) // ErrHeld: somebody else is in charge
//	…
//	held, stop := lease.Keep(ctx) // held ends when the lease is lost
//	defer stop()
//	…
//	err = fence.Write{
//		Table: pgx.Identifier{"public", "ledgers"},
//		Key:   map[string]any{"id": 7},
//		Set:   map[string]any{"balance": 100},
//	}.Do(held, tx, fence.Repeatable, lease.Token) // ErrFenced: somebody newer was here
//
// The check has to be part of the write, in one statement or transaction of the store that is written to.
// Looking first and writing then is what fencing replaces.
//
// # Once or repeatable
//
// Once (fence < token) lets one write of a token through for each guarded row: a token stands for one piece
// of work, as a takeover or a scheduled run, and a retry of it must change nothing. Take a new token for the
// next piece. Repeatable (fence <= token) lets the holder of a lease write as often as it likes, until
// somebody newer has written; a retry of one write is applied again, so the write itself has to be idempotent
// or deduplicated (kit/inbox, kit/idempotency). The guard takes effect with the first write of the newer
// holder: a new leader that has to see everything of its predecessor writes its token first, then reads.
package fence
