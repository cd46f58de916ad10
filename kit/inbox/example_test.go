package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/inbox"
	"github.com/walrelay/walrelay/kit/tx"
)

type payment struct {
	Order string `json:"order"`
}

// handle applies a payment provider's webhook once, and parks what fails five times.
func handle(ctx context.Context, pool *pgxpool.Pool, eventID string, body []byte) (inbox.Outcome, error) {
	return inbox.Parking{After: 5}.Do(ctx, pool, inbox.Table{}, inbox.Webhook("stripe", eventID, body),
		func(ctx context.Context, t tx.Tx) error {
			var p payment
			if err := json.Unmarshal(body, &p); err != nil {
				return fmt.Errorf("decode payment: %w: %w", err, inbox.ErrPoison)
			}
			_, err := inbox.Transition(ctx, t,
				"UPDATE orders SET state = 'paid' WHERE message = $1 AND state = 'new'",
				"SELECT state IN ('paid', 'shipped') FROM orders WHERE message = $1", p.Order)
			return err
		})
}

// The provider delivers an event twice, then uses its id for another one, then sends nonsense.
func Example() {
	ctx, pool := context.Background(), examplePool()
	defer pool.Close()
	for _, call := range []struct{ id, body string }{
		{"evt_1", `{"order": "4711"}`},
		{"evt_1", `{"order": "4711"}`},
		{"evt_1", `{"order": "4712"}`},
		{"evt_2", `nonsense`},
	} {
		outcome, err := handle(ctx, pool, call.id, []byte(call.body))
		fmt.Println(outcome, err)
	}
}

// TestExample runs what the example runs, against a real server.
func TestExample(t *testing.T) {
	t.Parallel()
	db, ctx := database(t, 18), t.Context()
	db.Exec(t, "INSERT INTO orders VALUES ('4711', 'new'), ('4712', 'new')")
	for _, c := range []struct {
		id, body string
		want     inbox.Outcome
		err      error
	}{
		{"evt_1", `{"order": "4711"}`, inbox.Applied, nil},
		{"evt_1", `{"order": "4711"}`, inbox.Duplicate, nil},
		{"evt_1", `{"order": "4712"}`, inbox.Undone, inbox.ErrBodyChanged},
		{"evt_2", `nonsense`, inbox.Parked, nil},
		{"evt_3", `{"order": "4713"}`, inbox.Undone, inbox.ErrState},
	} {
		outcome, err := handle(ctx, db.Conn, c.id, []byte(c.body))
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.want, outcome, c.id)
	}
	var paid int
	require.NoError(t, db.QueryRow(t, "SELECT count(*) FROM orders WHERE state = 'paid'").Scan(&paid))
	require.Equal(t, 1, paid)
}

func examplePool() *pgxpool.Pool {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	return pool
}
