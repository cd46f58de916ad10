package httpkey_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/idempotency"
	"github.com/walrelay/walrelay/kit/idempotency/httpkey"
	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

func newDatabase(t *testing.T) *testenv.Database {
	t.Helper()
	db := testenv.Postgres(t, 18).Database(t)
	migration, err := os.ReadFile("../../../migrations/kit/00002_idempotency.sql")
	require.NoError(t, err)
	db.Exec(t, string(migration))
	db.Exec(t, `CREATE TABLE payments (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, amount text NOT NULL)`)
	return db
}

func payments(t *testing.T, db *testenv.Database) (count int) {
	t.Helper()
	require.NoError(t, db.QueryRow(t, `SELECT count(*) FROM payments`).Scan(&count))
	return count
}

// pay inserts a payment in the request's transaction and answers with its id.
func pay(w http.ResponseWriter, r *http.Request) {
	amount, err := io.ReadAll(r.Body)
	tx, ok := idempotency.TxFrom(r.Context())
	if err != nil || !ok {
		http.Error(w, "no body or transaction", http.StatusBadRequest)
		return
	}
	var id int64
	if err := tx.QueryRow(r.Context(), `INSERT INTO payments (amount) VALUES ($1) RETURNING id`, string(amount)).
		Scan(&id); err != nil {
		http.Error(w, "no luck", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Location", fmt.Sprintf("/payments/%d", id))
	w.Header().Add("X-Many", "a")
	w.Header().Add("X-Many", "b")
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, `{"id":%d}`, id)
}

// serve runs a guarded handler; tenants are told apart by the header Tenant.
func serve(t *testing.T, guard *httpkey.Guard, next http.HandlerFunc) *httptest.Server {
	t.Helper()
	guard.Scope = func(r *http.Request) (string, error) { return r.Header.Get("Tenant"), nil }
	handler, err := guard.Handler(next)
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	t.Cleanup(server.Client().CloseIdleConnections)
	return server
}

type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) replayed() bool { return r.header.Get("Idempotency-Replayed") == "true" }

// post sends a JSON body; headers come in pairs.
func post(t *testing.T, server *httptest.Server, body string, headers ...string) reply {
	t.Helper()
	return do(t, server.Client(), http.MethodPost, server.URL, body, headers...)
}

func do(t *testing.T, client *http.Client, method, url, body string, headers ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, url, bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	answer, err := client.Do(r)
	if err != nil {
		return reply{}
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return reply{answer.StatusCode, answer.Header, string(got)}
}
