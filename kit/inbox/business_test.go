package inbox_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/inbox"
	"github.com/walrelay/walrelay/kit/tx"
)

// The transaction goes on after a duplicate, with what was done before it.
func TestUnique_GoesOn(t *testing.T) {
	t.Parallel()
	db, ctx := database(t, 18), t.Context()
	db.Exec(t, "INSERT INTO payments VALUES ('a')")
	first, err := db.Conn.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = first.Rollback(ctx) }()
	pay := func(id string) inbox.Effect {
		return func(ctx context.Context, t tx.Tx) error {
			if _, err := t.Exec(ctx, "INSERT INTO effects VALUES ($1)", id); err != nil {
				return err
			}
			_, err := t.Exec(ctx, "INSERT INTO payments VALUES ($1)", id)
			return err
		}
	}
	for _, c := range []struct {
		id   string
		want inbox.Outcome
	}{{"b", inbox.Applied}, {"a", inbox.Duplicate}, {"b", inbox.Duplicate}, {"c", inbox.Applied}} {
		outcome, err := inbox.Unique(ctx, first, "payments_once", pay(c.id))
		require.NoError(t, err)
		require.Equal(t, c.want, outcome, c.id)
	}
	require.NoError(t, first.Commit(ctx))
	for id, count := range map[string]int{"a": 0, "b": 1, "c": 1} {
		require.Equal(t, count, effects(t, db, inbox.Message{ID: id}), "work of a duplicate is undone")
	}
}

// What is around a duplicate goes back as a whole, too.
func TestUnique_Nested(t *testing.T) {
	t.Parallel()
	db, ctx := database(t, 18), t.Context()
	db.Exec(t, "INSERT INTO payments VALUES ('a'); INSERT INTO orders VALUES ('a', 'new')")
	first, err := db.Conn.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = first.Rollback(ctx) }()
	outcome, err := inbox.Unique(ctx, first, "orders_pkey", func(ctx context.Context, q tx.Tx) error {
		if _, err := q.Exec(ctx, "INSERT INTO effects VALUES ('a')"); err != nil {
			return err
		}
		outcome, err := inbox.Unique(ctx, q, "payments_once", func(ctx context.Context, q tx.Tx) error {
			_, err := q.Exec(ctx, "INSERT INTO payments VALUES ('a')")
			return err
		})
		require.NoError(t, err)
		require.Equal(t, inbox.Duplicate, outcome)
		_, err = q.Exec(ctx, "INSERT INTO orders VALUES ('a', 'new')")
		return err
	})
	require.NoError(t, err)
	require.Equal(t, inbox.Duplicate, outcome)
	require.NoError(t, first.Commit(ctx))
	require.Zero(t, effects(t, db, inbox.Message{ID: "a"}))
}

// Another constraint's violation is a defect, not a duplicate.
func TestUnique_AnotherConstraint(t *testing.T) {
	t.Parallel()
	db, ctx := database(t, 18), t.Context()
	db.Exec(t, "INSERT INTO payments VALUES ('a')")
	first, err := db.Conn.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = first.Rollback(ctx) }()
	outcome, err := inbox.Unique(ctx, first, "orders_pkey", func(ctx context.Context, t tx.Tx) error {
		_, err := t.Exec(ctx, "INSERT INTO payments VALUES ('a')")
		return err
	})
	require.Equal(t, inbox.Undone, outcome)
	require.True(t, inbox.Violates(err, "payments_once"))
	require.False(t, inbox.Violates(err, "orders_pkey"))

	_, err = inbox.Unique(ctx, db.Conn, "payments_once", nil)
	require.ErrorContains(t, err, "SAVEPOINT can only be used in transaction blocks")
}

func TestTransition(t *testing.T) {
	t.Parallel()
	db, ctx := database(t, 18), t.Context()
	db.Exec(t, "INSERT INTO orders VALUES ('new', 'new'), ('shipped', 'shipped'), ('void', 'void')")
	pay := func(id string) (inbox.Outcome, error) {
		return inbox.Transition(ctx, db.Conn, "UPDATE orders SET state = 'paid' WHERE message = $1 AND state = 'new'",
			"SELECT state IN ('paid', 'shipped') FROM orders WHERE message = $1", id)
	}
	for _, c := range []struct {
		id   string
		want inbox.Outcome
	}{{"new", inbox.Applied}, {"new", inbox.Duplicate}, {"shipped", inbox.Duplicate}} {
		outcome, err := pay(c.id)
		require.NoError(t, err)
		require.Equal(t, c.want, outcome, c.id)
	}
	for _, id := range []string{"void", "missing"} {
		outcome, err := pay(id)
		require.ErrorIs(t, err, inbox.ErrState, id)
		require.Equal(t, inbox.Undone, outcome)
	}
}
