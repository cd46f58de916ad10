package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/kit/tx"
)

// cleanUpTimeout bounds rolling back and releasing after the caller's context has ended.
const cleanUpTimeout = 5 * time.Second

// Pool is where Run begins its transaction: a *pgxpool.Pool or *pgx.Conn. A pgx.Tx does as well: claim,
// work (in a savepoint) and answer then belong to the caller's transaction and stand or fall with it.
type Pool interface {
	tx.Tx
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Work does what was asked and says what to answer.
type Work func(ctx context.Context, tx pgx.Tx) (Response, error)

// Run claims the request's key, runs the work in a transaction and commits its answer with it. When the
// key is completed already it returns the saved answer and runs nothing. For use with database/sql put
// it together from Acquire and Claim.Complete.
//
// When the work returns
//   - a Response, of success or failure: it is saved and the transaction commits;
//   - a *RefusalError: the transaction is rolled back and the Response in it saved and returned;
//   - any other error, or panics: the transaction is rolled back and the key released, so that the next
//     caller may try at once.
//
// Run's own errors: ErrMismatch, ErrInProgress and ErrCompacted, before the work; ErrLost, when the work
// was rolled back because it outlived its lease and another took over; whatever the database says. After
// the last the outcome may be unknown (a connection that broke at the commit): call again with the same
// request, and either the answer is there or the work is done then.
//
// The work must leave commit and rollback to Run. TxFrom finds the transaction in the work's context.
func Run(ctx context.Context, pool Pool, r Request, work Work) (Response, error) {
	claim, saved, err := Acquire(ctx, pool, r)
	if err != nil {
		return Response{}, err
	}
	if saved != nil {
		return *saved, nil
	}
	settled := false
	defer func() { // also while a panic of the work passes through
		if settled {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
		defer cancel()
		_ = claim.Release(ctx, pool) // otherwise the lease ends it
	}()
	answer, err := runWork(ctx, pool, claim, work)
	if refusal, ok := errors.AsType[*RefusalError](err); ok {
		answer, err = refusal.Response, claim.Complete(ctx, pool, refusal.Response)
	}
	if err != nil {
		return Response{}, err
	}
	settled = true
	answer.Replayed = false
	return answer, nil
}

func runWork(ctx context.Context, pool Pool, claim *Claim, work Work) (Response, error) {
	t, err := pool.Begin(ctx)
	if err != nil {
		return Response{}, fmt.Errorf("begin: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
		defer cancel()
		_ = t.Rollback(ctx) // after a commit it does nothing
	}()
	answer, err := work(context.WithValue(ctx, txKey{}, t), t)
	if err != nil {
		return Response{}, err
	}
	if err := claim.Complete(ctx, t, answer); err != nil {
		return Response{}, err
	}
	if err := t.Commit(ctx); err != nil {
		return Response{}, fmt.Errorf("commit: %w", err)
	}
	return answer, nil
}

type txKey struct{}

// TxFrom returns the transaction that Run began around the work, for code that gets only the context. It
// commits together with the answer.
func TxFrom(ctx context.Context) (t tx.Tx, ok bool) {
	t, ok = ctx.Value(txKey{}).(tx.Tx)
	return t, ok
}
