package fence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/fence"
	"github.com/walrelay/walrelay/testenv"
)

// settle does the nightly run when nobody else is at it, and stops when somebody takes over.
func settle(ctx context.Context, pool *pgxpool.Pool, instance string, accounts []int64) (err error) {
	leases := fence.Leases{DB: pool, TTL: 15 * time.Second}
	lease, err := leases.Acquire(ctx, "settlement", instance)
	if errors.Is(err, fence.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	held, stop := lease.Keep(ctx)
	defer func() {
		stop()
		err = errors.Join(err, lease.Release(context.WithoutCancel(ctx)))
	}()
	for _, id := range accounts {
		if held.Err() != nil {
			return context.Cause(held)
		}
		err := fence.Write{
			Table: pgx.Identifier{"public", "account"},
			Key:   map[string]any{"id": id},
			Set:   map[string]any{"settled": true},
		}.Do(held, pool, fence.Repeatable, lease.Token)
		if err != nil {
			return fmt.Errorf("settle account %d: %w", id, err) // ErrFenced: somebody newer is at it
		}
	}
	return nil
}

func TestExample(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	db.Exec(t, `CREATE TABLE account (id bigint PRIMARY KEY, settled boolean, fence bigint);
		INSERT INTO account (id) SELECT generate_series(1, 3)`)
	accounts := []int64{1, 2, 3}
	require.NoError(t, settle(t.Context(), db.Conn, "one", accounts))
	newer, err := fence.Next(t.Context(), db.Conn, "settlement")
	require.NoError(t, err)
	db.Exec(t, "UPDATE account SET fence = $1 WHERE id = 2", newer+1)
	require.NoError(t, settle(t.Context(), db.Conn, "two", accounts), "the same token may go on")
	db.Exec(t, "UPDATE account SET fence = $1 WHERE id = 2", newer+9)
	require.ErrorIs(t, settle(t.Context(), db.Conn, "two", accounts), fence.ErrFenced)
	var count int
	require.NoError(t, db.QueryRow(t, "SELECT count(*) FROM account WHERE settled").Scan(&count))
	require.Equal(t, 3, count)
}

// A token has a term, which grows with each failover, and a counter.
func ExampleToken() {
	before, _ := fence.NewToken(1, 5000)
	after, _ := fence.NewToken(2, 17)
	fmt.Println(before, after, after > before)
	// Output: 000001-0000001388 000002-0000000011 true
}
