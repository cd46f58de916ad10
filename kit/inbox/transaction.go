package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walrelay/walrelay/kit/tx"
)

// DB is a *pgxpool.Pool or a *pgx.Conn. With database/sql, begin and commit yourself and use Once.
type DB interface {
	tx.Tx
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

const (
	tries   = 20                    // of one transaction, against others that it conflicts with
	pause   = 10 * time.Millisecond // at most between two of them, times their number
	cleanup = 5 * time.Second       // for what the server has to be told although the caller's context has ended
)

// errBegin marks that the work of a transaction has not even begun.
var errBegin = errors.New("begin")

// inTx runs work in a transaction and commits it. What work returns beside an error is dropped.
func inTx(ctx context.Context, db DB, work func(t tx.Tx) (Outcome, error)) (Outcome, error) {
	return repeat(ctx, func() (Outcome, error) {
		t, err := db.BeginTx(ctx, pgx.TxOptions{})
		if err != nil {
			return Undone, fmt.Errorf("%w: %w", errBegin, err)
		}
		defer func() { // does nothing after a commit
			ctx, cancel := uncancelled(ctx)
			defer cancel()
			_ = t.Rollback(ctx) // fails when the connection is lost, and then the server rolls back by itself
		}()
		outcome, err := work(t)
		if err != nil {
			return Undone, err
		}
		if err := t.Commit(ctx); err != nil {
			return Undone, fmt.Errorf("commit: %w", err)
		}
		return outcome, nil
	})
}

// repeat runs work until it does not conflict with another transaction.
func repeat[T any](ctx context.Context, work func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		result, err := work()
		if err == nil || try == tries || !conflict(err) {
			return result, err
		}
		timer := time.NewTimer(rand.N(time.Duration(try) * pause))
		select {
		case <-ctx.Done():
			timer.Stop()
			return result, errors.Join(ctx.Err(), err)
		case <-timer.C:
		}
	}
}

// conflict reports that the server rolled back for the sake of another transaction: serialization_failure
// and deadlock_detected, after which its manual asks to repeat
// (https://www.postgresql.org/docs/current/mvcc-serialization-failure-handling.html).
func conflict(err error) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (server.Code == "40001" || server.Code == "40P01")
}

func uncancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanup)
}
