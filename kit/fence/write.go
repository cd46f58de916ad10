package fence

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/kit/tx"
)

// Form says how often a token may pass a guard.
type Form int

const (
	// Once lets one write of a token through, and none of a smaller one.
	Once Form = iota
	// Repeatable lets every write of a token through until a larger one has come.
	Repeatable
)

var (
	// ErrFenced says that a newer authority has written: stop, whoever has this token is not in charge.
	ErrFenced = errors.New("fenced: a newer token has been here")
	// ErrRepeated says that a write in the form Once was done with this very token before: it is a retry, and
	// there is nothing to do.
	ErrRepeated = errors.New("this token has already been here")
	// ErrNoRow says that there is no row with the key.
	ErrNoRow = errors.New("no row to write to")
	// ErrWrite is returned for a Write without table, key or columns.
	ErrWrite = errors.New("a guarded write needs a table, a key and columns to set")
)

// check compares a token with the highest one so far, 0 for none.
func (f Form) check(token, mark Token) error {
	switch {
	case token < mark:
		return ErrFenced
	case token == mark && f == Once:
		return ErrRepeated
	}
	return nil
}

func (f Form) operator() string {
	if f == Repeatable {
		return "<="
	}
	return "<"
}

// Condition is the guard as SQL, for the WHERE of statements of one's own that also set the column to
// the token: with the column fence and the parameter 3, ("fence" IS NULL OR "fence" < $3). The column
// is a bigint that may be NULL.
func (f Form) Condition(column pgx.Identifier, parameter int) string {
	name := column.Sanitize()
	return fmt.Sprintf("(%s IS NULL OR %s %s $%d)", name, name, f.operator(), parameter)
}

// Write is an UPDATE of one row that a token guards.
type Write struct {
	// Table is its name, with the schema before it.
	Table pgx.Identifier
	// Key are the columns that find the row, none of them NULL.
	Key map[string]any
	// Set are the columns to write. May be empty: then only the token is written, which shuts smaller ones out.
	Set map[string]any
	// Fence is the column of the highest token, a bigint that may be NULL. Empty: "fence".
	Fence string
}

// Do writes, with the token, unless the row has seen a newer one: ErrFenced then, and with Once ErrRepeated when
// it has seen this one. ErrNoRow when there is none. Nothing was written in these cases; the transaction, if db is
// one, is still good, and has to be rolled back when other writes in it depend on this one. At READ COMMITTED the
// guard is checked again after waiting for another writer; at stricter levels PostgreSQL returns its
// serialisation error (SQLSTATE 40001).
func (w Write) Do(ctx context.Context, db tx.Tx, form Form, token Token) error {
	if len(w.Table) == 0 || len(w.Key) == 0 {
		return ErrWrite
	}
	if token <= 0 {
		return ErrToken
	}
	sql, args := w.update(form, token)
	tag, err := db.Exec(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("guarded write: %w", err)
	}
	if tag.RowsAffected() > 0 {
		return nil
	}
	return w.refusal(ctx, db, token)
}

func (w Write) column() string {
	if w.Fence == "" {
		return "fence"
	}
	return w.Fence
}

// update builds the statement; columns are in the order of their names, so that it is the same text
// every time and stays prepared.
func (w Write) update(form Form, token Token) (sql string, args []any) {
	fence := pgx.Identifier{w.column()}
	args = append(args, token)
	set := []string{fence.Sanitize() + " = $1"}
	for _, name := range slices.Sorted(maps.Keys(w.Set)) {
		args = append(args, w.Set[name])
		set = append(set, pgx.Identifier{name}.Sanitize()+" = $"+strconv.Itoa(len(args)))
	}
	where, keys := w.where(len(args))
	return "UPDATE " + w.Table.Sanitize() + " SET " + strings.Join(set, ", ") + " WHERE " + where +
		" AND " + form.Condition(fence, 1), append(args, keys...)
}

func (w Write) where(before int) (sql string, args []any) {
	var terms []string
	for _, name := range slices.Sorted(maps.Keys(w.Key)) {
		args = append(args, w.Key[name])
		terms = append(terms, pgx.Identifier{name}.Sanitize()+" = $"+strconv.Itoa(before+len(args)))
	}
	return strings.Join(terms, " AND "), args
}

// refusal says why no row was written. Marks only grow, so looking a moment later gives the same answer.
func (w Write) refusal(ctx context.Context, db tx.Tx, token Token) error {
	where, args := w.where(0)
	var mark Token
	err := db.QueryRow(ctx, "SELECT coalesce("+pgx.Identifier{w.column()}.Sanitize()+", 0) FROM "+
		w.Table.Sanitize()+" WHERE "+where, args...).Scan(&mark)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrNoRow
	case err != nil:
		return fmt.Errorf("read fence of the row: %w", err)
	case mark == token:
		return ErrRepeated
	}
	return ErrFenced
}
