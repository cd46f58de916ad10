package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/idempotency"
)

// A payment that is asked for twice is made once.
func ExampleRun() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	for range 2 {
		fmt.Println(pay(ctx, pool, "tenant 7", "key of this intent", []byte(`{"amount": 5}`)))
	}
}

func pay(ctx context.Context, pool *pgxpool.Pool, tenant, key string, body []byte) (string, error) {
	request := idempotency.Request{
		Scope: tenant, Key: key, Hash: idempotency.HashRequest("application/json", body, "pay"),
	}
	answer, err := idempotency.Run(ctx, pool, request,
		func(ctx context.Context, tx pgx.Tx) (idempotency.Response, error) {
			_, err := tx.Exec(ctx, `INSERT INTO effects VALUES ($1, 'payment')`, key)
			return idempotency.Response{Status: 201, Body: []byte("paid")}, err
		})
	if busy, ok := errors.AsType[*idempotency.InProgressError](err); ok {
		return "", fmt.Errorf("ask again in %s: %w", busy.RetryAfter, err)
	}
	return string(answer.Body), err // ErrMismatch is a fault of the caller: don't retry
}

func TestExampleRun(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, 18)
	for _, body := range []string{`{"amount": 5}`, `{ "amount": 5.0 }`} {
		answer, err := pay(t.Context(), db.Conn, "tenant 7", "k", []byte(body))
		require.NoError(t, err)
		require.Equal(t, "paid", answer)
	}
	_, err := pay(t.Context(), db.Conn, "tenant 7", "k", []byte(`{"amount": 6}`))
	require.ErrorIs(t, err, idempotency.ErrMismatch)
	require.Equal(t, 1, effects(t, db.Conn, "k"))
}

// Call it every hour or so.
func ExamplePurge() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	rows, err := idempotency.Purge(ctx, pool, idempotency.Retention{
		RetryWindow: 7 * 24 * time.Hour, // the mobile client's queue gives up after a week
		Keep:        14 * 24 * time.Hour,
		Compact:     true,
	})
	fmt.Println(rows, err)
}
