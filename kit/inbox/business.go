package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walrelay/walrelay/kit/tx"
)

// Unique runs work, which inserts a business row, and returns Duplicate when that violates the named
// unique constraint or index: somebody was faster, or it was us. It takes work back to a savepoint
// then, so that the transaction goes on. Any other error is returned and leaves the transaction
// aborted. A savepoint costs a subtransaction; where one statement does it all, prefer Affected with
// ON CONFLICT DO NOTHING. A DEFERRABLE constraint that is deferred fails at COMMIT instead: see Violates.
func Unique(ctx context.Context, t tx.Tx, constraint string, work Effect) (Outcome, error) {
	if _, err := t.Exec(ctx, "SAVEPOINT walrelay_kit_unique"); err != nil {
		return Undone, fmt.Errorf("set savepoint: %w", err)
	}
	outcome := Applied
	if err := work(ctx, t); err != nil {
		if !Violates(err, constraint) {
			return Undone, err
		}
		if _, err := t.Exec(ctx, "ROLLBACK TO SAVEPOINT walrelay_kit_unique"); err != nil {
			return Undone, fmt.Errorf("go back to savepoint: %w", err)
		}
		outcome = Duplicate
	}
	// Also after going back to it, which leaves it there: a Unique around this one would go back to it as well.
	if _, err := t.Exec(ctx, "RELEASE SAVEPOINT walrelay_kit_unique"); err != nil {
		return Undone, fmt.Errorf("release savepoint: %w", err)
	}
	return outcome, nil
}

// Violates reports that err is the server's unique_violation of the named constraint or index.
func Violates(err error, constraint string) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && server.Code == "23505" && server.ConstraintName == constraint
}

// Affected turns a statement's result into an outcome: no row is a Duplicate.
//
//	inbox.Affected(t.Exec(ctx, "INSERT INTO payments … ON CONFLICT (request_id) DO NOTHING", …))
//	inbox.Affected(t.Exec(ctx, "UPDATE orders SET state = 'paid' WHERE id = $1 AND state = 'new'", id))
//
// It cannot tell a second time from a row that isn't there or has another state: Transition does.
func Affected(tag pgconn.CommandTag, err error) (Outcome, error) {
	switch {
	case err != nil:
		return Undone, err
	case tag.RowsAffected() == 0:
		return Duplicate, nil
	}
	return Applied, nil
}

// ErrState is returned by Transition for a row that is missing, or neither before nor behind the transition.
var ErrState = errors.New("not in a state that leads here")

// Transition moves a row from one state to the next: update is an UPDATE … WHERE state = …. When that finds
// no row, done is asked with the same arguments whether the transition took place before, and must
// return one boolean. So a message that came before its time is an error, not a duplicate:
//
//	inbox.Transition(ctx, t,
//		"UPDATE orders SET state = 'paid' WHERE id = $1 AND state = 'new'",
//		"SELECT state IN ('paid', 'shipped') FROM orders WHERE id = $1", id)
func Transition(ctx context.Context, t tx.Tx, update, done string, args ...any) (Outcome, error) {
	outcome, err := Affected(t.Exec(ctx, update, args...))
	if err != nil || outcome == Applied {
		return outcome, err
	}
	var before bool
	err = t.QueryRow(ctx, done, args...).Scan(&before)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return Undone, fmt.Errorf("read state: %w", err)
	}
	if !before {
		return Undone, ErrState
	}
	return Duplicate, nil
}
