// Package tx is the transaction that the packages of kit work in: the application's own. None of them
// begins, commits or rolls back, unless that is its documented job.
//
// A pgx.Tx is a Tx as it is, and so are a *pgx.Conn and a *pgxpool.Pool, for a statement that is its
// own transaction. Std makes one of a transaction of database/sql.
package tx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Tx is where statements run, with the methods' meaning as in pgx.
type Tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

var (
	_ Tx = pgx.Tx(nil)
	_ Tx = (*pgx.Conn)(nil)
	_ Tx = (*pgxpool.Pool)(nil)
)
