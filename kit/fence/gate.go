package fence

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/kit/tx"
)

// The second statement says why the first has changed nothing.
const (
	admitSQL = `INSERT INTO walrelay_kit.fence_marks AS m (resource, mark) VALUES ($1, $2)
		ON CONFLICT (resource) DO UPDATE SET mark = excluded.mark, updated_at = clock_timestamp()
		WHERE m.mark %s excluded.mark`
	markSQL = `SELECT mark FROM walrelay_kit.fence_marks WHERE resource = $1`
)

// Admit checks a token against the highest one that the resource has accepted, in table
// walrelay_kit.fence_marks, and keeps it: for effects that have no row of their own with a column
// for it. ErrFenced and, with Once, ErrRepeated refuse it. Call it in the transaction of the effects, before
// them: others with a token for the resource wait until it ends, and it counts only with the commit.
func Admit(ctx context.Context, db tx.Tx, resource string, form Form, token Token) error {
	if resource == "" {
		return ErrResource
	}
	if token <= 0 {
		return ErrToken
	}
	tag, err := db.Exec(ctx, fmt.Sprintf(admitSQL, form.operator()), resource, token)
	if err != nil {
		return fmt.Errorf("admit fencing token: %w", err)
	}
	if tag.RowsAffected() > 0 {
		return nil
	}
	var mark Token
	err = db.QueryRow(ctx, markSQL, resource).Scan(&mark)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) { // purged since: then it was refused all the same
		return fmt.Errorf("read mark of the resource: %w", err)
	}
	if mark == token {
		return ErrRepeated
	}
	return ErrFenced
}

// Gate keeps the highest token of each resource in memory, for a service or device that is itself the
// only way to what is guarded. After a restart it knows nothing: a paused holder may get through until
// the newer one calls again. Where that matters, Raise it first from what was stored, or use Admit.
// The zero Gate is ready. It is for any number of goroutines.
type Gate struct {
	mu    sync.Mutex
	marks map[string]Token
}

// Do checks the token and, when it passes, runs the effect before any other of the same Gate: a
// smaller token can neither slip in between nor finish after a larger one. The token counts even when the
// effect fails, so with Once a failed effect needs a new token. A nil effect only keeps the token.
func (g *Gate) Do(resource string, form Form, token Token, effect func() error) error {
	if token <= 0 {
		return ErrToken
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := form.check(token, g.marks[resource]); err != nil {
		return err
	}
	g.raise(resource, token)
	if effect == nil {
		return nil
	}
	return effect()
}

// Raise makes the gate refuse tokens smaller than this one.
func (g *Gate) Raise(resource string, token Token) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.raise(resource, token)
}

func (g *Gate) raise(resource string, token Token) {
	if g.marks == nil {
		g.marks = make(map[string]Token)
	}
	g.marks[resource] = max(token, g.marks[resource])
}

// Forget drops a resource that does not exist any more, with its mark.
func (g *Gate) Forget(resource string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.marks, resource)
}
