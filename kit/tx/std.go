package tx

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Handle is a *sql.Tx, or a *sql.Conn or *sql.DB for a statement that is its own transaction.
type Handle interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Std makes a Tx of a transaction of database/sql whose driver is pgx/stdlib; another driver's refuses
// every query. Arguments, values and errors are pgx's: slices, maps and structs where pgx takes them,
// *pgconn.PgError, pgx.ErrNoRows, and pgx.ErrTxClosed in place of sql.ErrTxDone. A command tag holds the
// number of rows alone.
func Std(handle Handle) Tx { return std{handle} }

type std struct{ handle Handle }

// Exec implements Tx.
func (s std) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	result, err := s.handle.ExecContext(ctx, query, args...)
	if err != nil {
		return pgconn.CommandTag{}, asPgx(err)
	}
	count, err := result.RowsAffected()
	return tag(count), err
}

// Query implements Tx. As in pgx, the rows of a failed query are there too, and give its error.
func (s std) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	seen := &connection{}
	rows, err := s.handle.QueryContext(ctx, query, seen.among(args)...)
	if err != nil {
		err = asPgx(err)
		return &stdRows{err: err, closed: true}, err
	}
	if err := rows.Err(); err != nil { // QueryContext has read the first row
		_ = rows.Close()
		return &stdRows{err: err, closed: true}, err
	}
	return newStdRows(rows, seen.conn)
}

// QueryRow implements Tx.
func (s std) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	rows, _ := s.Query(ctx, query, args...) // the row gives the error
	return stdRow{rows}
}

type stdRow struct{ rows pgx.Rows }

// Scan implements pgx.Row.
func (r stdRow) Scan(dest ...any) error { // the rows are closed by their end and by an error
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// connection finds out which pgx connection a query ran on, as a rewriter of queries that changes
// nothing. database/sql has no other way to it from a transaction, and its types are needed to scan.
type connection struct {
	conn *pgx.Conn
	next pgx.QueryRewriter
}

// RewriteQuery implements pgx.QueryRewriter.
func (c *connection) RewriteQuery(
	ctx context.Context, conn *pgx.Conn, query string, args []any,
) (newQuery string, newArgs []any, err error) {
	c.conn = conn
	if c.next != nil {
		return c.next.RewriteQuery(ctx, conn, query, args)
	}
	return query, args, nil
}

// among puts c before the arguments, or in the place of the rewriter among them, such as pgx.NamedArgs.
func (c *connection) among(args []any) []any {
	all := []any{c}
	for _, arg := range args {
		if next, ok := arg.(pgx.QueryRewriter); ok && c.next == nil {
			c.next = next
			continue
		}
		all = append(all, arg)
	}
	return all
}

func tag(rows int64) pgconn.CommandTag { return pgconn.NewCommandTag(strconv.FormatInt(rows, 10)) }

func asPgx(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return pgx.ErrTxClosed
	}
	return err
}
