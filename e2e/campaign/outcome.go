package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// commit ends a transaction on its own connection.
func (wr *writer) commit(ctx context.Context, tx *transaction) error {
	tag, err := tx.conn.Exec(ctx, "COMMIT")
	if err != nil {
		_ = tx.conn.Close(ctx)
		wr.unknown++
		end, err := wr.w.outcome(ctx, tx)
		if err != nil || end != committed {
			return err
		}
	} else if tag.String() != "COMMIT" {
		return nil // rolled back
	}
	return wr.w.ledger.Commit(tx.kept...)
}

// prepare makes a transaction pending, which survives the connection and the server.
func (wr *writer) prepare(ctx context.Context, tx *transaction) error {
	tx.gid = fmt.Sprintf("%d-%d", wr.number, wr.sequence)
	tag, err := tx.conn.Exec(ctx, "PREPARE TRANSACTION '"+tx.gid+"'")
	if err != nil {
		wr.disconnect(ctx)
		wr.unknown++
		end, err := wr.w.outcome(ctx, tx)
		if err != nil || end != prepared {
			return err
		}
	} else if tag.String() != "PREPARE TRANSACTION" {
		return nil // rolled back
	}
	tx.conn = nil
	wr.pending = append(wr.pending, tx)
	return nil
}

// finish ends one of the pending transactions, not always in the order in which they began.
func (wr *writer) finish(ctx context.Context) error {
	i := wr.random.IntN(len(wr.pending))
	tx := wr.pending[i]
	wr.pending = append(wr.pending[:i], wr.pending[i+1:]...)
	if tx.conn != nil {
		defer func() { _ = tx.conn.Close(ctx) }()
		return wr.commit(ctx, tx)
	}
	if wr.random.IntN(5) > 0 {
		if err := wr.w.finishPrepared(ctx, tx, "COMMIT PREPARED", committed); err != nil {
			return err
		}
		return wr.w.ledger.Commit(tx.kept...)
	}
	wr.rolled += len(tx.kept)
	return wr.w.finishPrepared(ctx, tx, "ROLLBACK PREPARED", rolledBack)
}

// finishPrepared ends a prepared transaction, whatever happens to the server meanwhile.
func (w *world) finishPrepared(ctx context.Context, tx *transaction, verb string, wanted outcome) error {
	for {
		conn, err := w.connect(ctx)
		if err == nil {
			_, err = conn.Exec(ctx, verb+" '"+tx.gid+"'")
			_ = conn.Close(ctx)
			if err == nil {
				return nil
			}
		}
		end, err := w.outcome(ctx, tx)
		switch {
		case err != nil:
			return err
		case end == prepared: // again
		case end == wanted:
			return nil
		default:
			return fmt.Errorf("%s %s: the transaction is %s", verb, tx.gid, end)
		}
	}
}

// outcome is what has become of a transaction.
type outcome string

const (
	committed  outcome = "committed"
	prepared   outcome = "prepared"
	rolledBack outcome = "rolled back"
)

// outcome finds out about a transaction whose last command got no answer, as long as that takes. The
// transaction's id would be no help: a server that crashes may give it to another one.
func (w *world) outcome(ctx context.Context, tx *transaction) (outcome, error) {
	for {
		conn, err := w.connect(ctx)
		if err == nil {
			var end outcome
			end, err = look(ctx, conn, tx)
			_ = conn.Close(ctx)
			if err == nil {
				return end, nil
			}
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		pause(ctx, 100*time.Millisecond) // the server is away, or still at work on the transaction
	}
}

// look inserts the transaction's witness once more, and undoes that. The unique index waits for a
// transaction that has inserted it and is still open.
func look(ctx context.Context, conn *pgx.Conn, tx *transaction) (outcome, error) {
	if tx.gid != "" {
		var known bool
		err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_prepared_xacts WHERE gid = $1)", tx.gid).Scan(&known)
		if err != nil || known {
			return prepared, err
		}
	}
	if _, err := conn.Exec(ctx, "BEGIN; SET LOCAL lock_timeout = '500ms'"); err != nil {
		return "", err
	}
	_, err := conn.Exec(ctx, "INSERT INTO witnesses VALUES ($1)", tx.witness)
	// unique_violation
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "23505" {
		return committed, nil
	}
	return rolledBack, err // the connection is closed without a commit
}
