package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/walrelay/walrelay/kit/idempotency"
	"github.com/walrelay/walrelay/kit/idempotency/httpkey"
)

// lease is how long a key stays with a server that died over it. No payment takes so long.
const lease = 5 * time.Second

// serve answers POST /payments until ctx ends.
func serve(ctx context.Context, dsn, listen string, log *slog.Logger) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer pool.Close()
	handler, err := newAPI(pool, log)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: listen, Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return server.Shutdown(ctx)
}

func newAPI(pool *pgxpool.Pool, log *slog.Logger) (http.Handler, error) {
	guard := &httpkey.Guard{
		Pool: pool, Required: true, Lease: lease,
		Scope: func(r *http.Request) (string, error) { return merchantOf(r), nil }, // its keys are its own
		OnError: func(r *http.Request, err error) {
			log.WarnContext(r.Context(), "payment not carried out", "error", err)
		},
	}
	pay, err := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { pay(w, r, log) }))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", authenticated(pay))
	return mux, nil
}

// authenticated stands for what a real service does: it takes anybody's word.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if merchantOf(r) == "" {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "which merchant?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func merchantOf(r *http.Request) string {
	merchant, _, _ := r.BasicAuth() // "" when there is none
	return merchant
}

// pay runs within the guard: once for each key, in a transaction that also saves the answer. Nothing of the
// answer leaves before that is committed.
func pay(w http.ResponseWriter, r *http.Request, log *slog.Logger) {
	var o order
	err := json.NewDecoder(r.Body).Decode(&o)
	if err != nil || o.Invoice == "" || o.Account == "" || o.Amount <= 0 {
		http.Error(w, "want invoice, account, and an amount above zero", http.StatusBadRequest)
		return
	}
	t, ok := idempotency.TxFrom(r.Context())
	if !ok {
		http.Error(w, "not guarded", http.StatusInternalServerError)
		return
	}
	p, err := charge(r.Context(), t, merchantOf(r), o)
	switch {
	case errors.Is(err, errFunds): // saved, so that the same key gets the same refusal
		http.Error(w, errFunds.Error(), http.StatusPaymentRequired)
	case err != nil: // not saved, so that the same key may succeed later
		log.WarnContext(r.Context(), "payment not carried out", "error", err)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "try again", http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(p) // into the guard's memory
	}
}
