package httpkey_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/walrelay/walrelay/kit/idempotency/httpkey"
)

// A call is repeated under one key until its outcome is known.
func ExampleTransport() {
	seen := map[string]int{}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen[r.Header.Get("Idempotency-Key")]++
		if len(seen) == 1 && seen[r.Header.Get("Idempotency-Key")] < 3 {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	defer provider.Close()
	defer provider.Client().CloseIdleConnections()

	client := &http.Client{Transport: &httpkey.Transport{Base: provider.Client().Transport}}
	answer, err := client.Post(provider.URL, "application/json", strings.NewReader(`{"amount":5}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	for _, attempts := range seen {
		fmt.Println(answer.StatusCode, "after", attempts, "attempts under one key")
	}
	// Output: 200 after 3 attempts under one key
}

// A route that demands a key. Its handler, pay, finds its transaction by idempotency.TxFrom(r.Context()).
func ExampleGuard() {
	pool, err := pgxpool.New(context.Background(), "postgres://localhost/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	guard := &httpkey.Guard{
		Pool: pool, Required: true,
		Scope:   func(r *http.Request) (string, error) { return r.PathValue("tenant"), nil }, // once it was authorised
		OnError: func(_ *http.Request, err error) { fmt.Println(err) },
	}
	payments, err := guard.Handler(http.HandlerFunc(pay))
	if err != nil {
		fmt.Println(err)
		return
	}
	http.Handle("/{tenant}/payments", payments)
}
