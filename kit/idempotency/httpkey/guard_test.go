package httpkey_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/idempotency"
	"github.com/walrelay/walrelay/kit/idempotency/httpkey"
)

func TestGuard_Replays(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	server := serve(t, &httpkey.Guard{Pool: db.Conn, Required: true}, func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "secret"})
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("Date", "then")
		pay(w, r)
		w.Header().Set("X-Late", "does not count")
	})
	first := post(t, server, `{"amount": 5}`, "Idempotency-Key", "k")
	require.Equal(t, 201, first.status)
	require.False(t, first.replayed())
	require.Contains(t, first.header.Get("Set-Cookie"), "session=secret")
	second := post(t, server, `{ "amount":5.0 }`, "Idempotency-Key", `"k"`) // the draft's spelling, and the same JSON
	require.Equal(t, 201, second.status)
	require.True(t, second.replayed())
	require.Equal(t, first.body, second.body)
	require.Equal(t, "/payments/1", second.header.Get("Location"))
	require.Equal(t, []string{"a", "b"}, second.header["X-Many"])
	for _, gone := range []string{"Set-Cookie", "X-Hop", "X-Late"} {
		require.Empty(t, second.header.Get(gone), gone)
	}
	require.NotEqual(t, "then", second.header.Get("Date"))
	require.Equal(t, first.header.Get("Content-Type"), second.header.Get("Content-Type"))
	require.Equal(t, 1, payments(t, db))

	other := post(t, server, `{"amount": 6}`, "Idempotency-Key", "k")
	require.Equal(t, 422, other.status)
	require.Equal(t, "application/problem+json", other.header.Get("Content-Type"))
	elsewhere := do(t, server.Client(), http.MethodPost, server.URL+"/other", `{"amount": 5}`, "Idempotency-Key", "k")
	require.Equal(t, 422, elsewhere.status)
	patch := do(t, server.Client(), http.MethodPatch, server.URL, `{"amount": 5}`, "Idempotency-Key", "k")
	require.Equal(t, 422, patch.status)
	stranger := post(t, server, `{"amount": 5}`, "Idempotency-Key", "k", "Tenant", "stranger")
	require.Equal(t, 201, stranger.status)
	require.False(t, stranger.replayed())
	require.Equal(t, 2, payments(t, db))
}

func TestGuard_Keys(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	server := serve(t, &httpkey.Guard{Pool: db.Conn, Required: true}, pay)
	for _, key := range []string{
		"", " ", `""`, `"open`, `"k" x`, `"k\n"`, "two words", "kä", strings.Repeat("k", 256), `"k";a=1`,
	} {
		require.Equal(t, 400, post(t, server, "{}", "Idempotency-Key", key).status, key)
	}
	require.Equal(t, 400, post(t, server, "{}").status)
	require.Equal(t, 400, post(t, server, "{}", "Idempotency-Key", "a", "Idempotency-Key", "b").status)
	require.Zero(t, payments(t, db))
	require.Equal(t, 201, post(t, server, "{}", "Idempotency-Key", strings.Repeat("k", 255)).status)
	require.Equal(t, 201, post(t, server, "{}", "Idempotency-Key", `"a\"b\\c"`).status)
	require.True(t, post(t, server, "{}", "Idempotency-Key", `a"b\c`).replayed())
}

func TestGuard_PassesOtherMethods(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	guard := &httpkey.Guard{Pool: newDatabase(t).Conn, Required: true}
	server := serve(t, guard, func(_ http.ResponseWriter, r *http.Request) {
		_, guarded := idempotency.TxFrom(r.Context())
		require.False(t, guarded)
		calls.Add(1)
	})
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"} {
		for range 2 {
			require.Equal(t, 200, do(t, server.Client(), method, server.URL, "", "Idempotency-Key", "k").status)
		}
	}
	require.Equal(t, int64(12), calls.Load())
	free := serve(t, &httpkey.Guard{Pool: newDatabase(t).Conn}, func(_ http.ResponseWriter, r *http.Request) {
		_, guarded := idempotency.TxFrom(r.Context())
		require.False(t, guarded)
	})
	require.Equal(t, 200, post(t, free, "{}").status)
}

func TestGuard_Concurrent(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	server := serve(t, &httpkey.Guard{Pool: db.Conn, Required: true}, pay)
	client := &http.Client{Transport: &httpkey.Transport{Base: server.Client().Transport, Attempts: 20}}
	const callers = 50
	replies := make([]reply, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			replies[i] = do(t, client, http.MethodPost, server.URL, `{"amount":5}`, "Idempotency-Key", "k")
		})
	}
	wg.Wait()
	require.Equal(t, 1, payments(t, db))
	fresh := 0
	for _, r := range replies {
		require.Equal(t, 201, r.status)
		require.Equal(t, `{"id":1}`, r.body)
		require.Equal(t, replies[0].header["X-Many"], r.header["X-Many"])
		if !r.replayed() {
			fresh++
		}
	}
	require.Equal(t, 1, fresh)
}

func TestGuard_InProgress(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	server := serve(t, &httpkey.Guard{Pool: db.Conn}, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-leave
		pay(w, r)
	})
	var wg sync.WaitGroup
	wg.Go(func() { post(t, server, "{}", "Idempotency-Key", "k") })
	<-entered
	busy := post(t, server, "{}", "Idempotency-Key", "k")
	require.Equal(t, 409, busy.status)
	require.Equal(t, "1", busy.header.Get("Retry-After"))
	require.Equal(t, 422, post(t, server, "[]", "Idempotency-Key", "k").status)
	close(leave)
	wg.Wait()
	require.True(t, post(t, server, "{}", "Idempotency-Key", "k").replayed())
}

// What stands, what is rolled back and what is forgotten, by the answer's status.
func TestGuard_Statuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status, rows  int
		saved, broken bool
		want          int
	}{
		{status: 200, rows: 1, saved: true},
		{status: 402, rows: 1, saved: true},
		{status: 500, rows: 0, saved: true},
		{status: 502, rows: 0, saved: true},
		{status: 503, rows: 0, saved: false},
		{status: 429, rows: 0, saved: false},
		{status: 409, rows: 0, saved: true, broken: true},
		{status: 500, rows: 0, saved: true, broken: true},
		{status: 200, rows: 0, saved: false, broken: true, want: 500},
	} {
		db := newDatabase(t)
		calls := 0
		server := serve(t, &httpkey.Guard{Pool: db.Conn}, func(w http.ResponseWriter, r *http.Request) {
			calls++
			tx, _ := idempotency.TxFrom(r.Context())
			_, err := tx.Exec(r.Context(), `INSERT INTO payments (amount) VALUES ('x')`)
			require.NoError(t, err)
			if c.broken {
				_, err := tx.Exec(r.Context(), `INSERT INTO payments (amount) VALUES (NULL)`)
				require.Error(t, err)
			}
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte("answer"))
		})
		first, second := post(t, server, "{}", "Idempotency-Key", "k"), post(t, server, "{}", "Idempotency-Key", "k")
		want := max(c.status, c.want)
		require.Equal(t, []int{want, want}, []int{first.status, second.status})
		require.Equal(t, first.body, second.body)
		require.Equal(t, c.saved, second.replayed(), c.status)
		require.Equal(t, c.rows, payments(t, db), c.status)
		require.Equal(t, c.saved, calls == 1, c.status)
	}
}

func TestGuard_BrokenConnection(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	var faults atomic.Int64
	first := true
	server := serve(t, &httpkey.Guard{
		Pool: db.Conn, OnError: func(*http.Request, error) { faults.Add(1) },
	}, func(w http.ResponseWriter, r *http.Request) {
		if first {
			first = false
			tx, _ := idempotency.TxFrom(r.Context())
			_, _ = tx.Exec(r.Context(), `SELECT pg_terminate_backend(pg_backend_pid())`)
		}
		pay(w, r)
	})
	broken := post(t, server, "{}", "Idempotency-Key", "k")
	require.Equal(t, 503, broken.status)
	require.NotEmpty(t, broken.header.Get("Retry-After"))
	require.Equal(t, int64(1), faults.Load())
	again := post(t, server, "{}", "Idempotency-Key", "k")
	require.Equal(t, 201, again.status)
	require.False(t, again.replayed())
	require.Equal(t, 1, payments(t, db))
}

func TestGuard_Limits(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	guard := &httpkey.Guard{Pool: db.Conn, MaxBody: 10, MaxAnswer: 10}
	server := serve(t, guard, func(w http.ResponseWriter, r *http.Request) {
		pay(httptest.NewRecorder(), r)
		_, err := w.Write([]byte("12345"))
		require.NoError(t, err)
		if r.URL.Path == "/long" {
			_, err := w.Write([]byte("123456"))
			require.Error(t, err)
		}
		require.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
		_, _, err = http.NewResponseController(w).Hijack()
		require.ErrorIs(t, err, http.ErrNotSupported)
	})
	require.Equal(t, 413, post(t, server, `"123456789"`, "Idempotency-Key", "k").status)
	require.Equal(t, 200, post(t, server, `"12345678"`, "Idempotency-Key", "k").status)
	require.Equal(t, 1, payments(t, db))
	for range 2 {
		long := do(t, server.Client(), http.MethodPost, server.URL+"/long", "{}", "Idempotency-Key", "long")
		require.Equal(t, 500, long.status)
		require.False(t, long.replayed())
	}
	require.Equal(t, 1, payments(t, db))
}

func TestGuard_Panics(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value any
		save  bool
		saved bool
	}{{"boom", false, false}, {"boom", true, true}, {http.ErrAbortHandler, true, false}} {
		db := newDatabase(t)
		calls := 0
		var reported error
		server := serve(t, &httpkey.Guard{
			Pool: db.Conn, SavePanics: c.save, OnError: func(_ *http.Request, err error) { reported = err },
		}, func(w http.ResponseWriter, r *http.Request) {
			calls++
			pay(w, r)
			panic(c.value)
		})
		server.Config.ErrorLog = nil
		first, second := post(t, server, "{}", "Idempotency-Key", "k"), post(t, server, "{}", "Idempotency-Key", "k")
		require.Zero(t, payments(t, db))
		if !c.saved {
			require.Equal(t, []int{0, 0}, []int{first.status, second.status}, "net/http drops the connection")
			require.Equal(t, 2, calls)
			continue
		}
		require.Equal(t, []int{500, 500}, []int{first.status, second.status})
		require.Equal(t, first.body, second.body)
		require.True(t, second.replayed())
		require.Equal(t, 1, calls)
		var panicked *httpkey.PanicError
		require.ErrorAs(t, reported, &panicked)
		require.Equal(t, "boom", panicked.Value)
		require.Contains(t, string(panicked.Stack), "guard_test.go")
	}
}

// A client that goes away takes its transaction with it, and its retry runs the work.
func TestGuard_ClientGone(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	entered := make(chan struct{}, 2)
	var calls atomic.Int64
	server := serve(t, &httpkey.Guard{Pool: db.Conn, Lease: time.Hour}, func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		if calls.Add(1) == 1 {
			<-r.Context().Done()
		}
		pay(w, r)
	})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader("{}"))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "k")
	gone := make(chan error, 1) // the goroutine's only answer
	go func() {
		answer, err := server.Client().Do(r)
		if err == nil {
			err = answer.Body.Close()
		}
		gone <- err
	}()
	<-entered
	leave()
	require.ErrorIs(t, <-gone, context.Canceled)
	var again reply
	require.Eventually(t, func() bool {
		again = post(t, server, "{}", "Idempotency-Key", "k")
		return again.status != 409
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, 201, again.status)
	require.Equal(t, 1, payments(t, db))
}

func TestGuard_Compacted(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	server := serve(t, &httpkey.Guard{Pool: db.Conn}, pay)
	require.Equal(t, 201, post(t, server, "{}", "Idempotency-Key", "k").status)
	db.Exec(t, `UPDATE walrelay_kit.idempotency_keys
		SET created_at = created_at - interval '2 days', completed_at = completed_at - interval '2 days'`)
	_, err := idempotency.Purge(t.Context(), db.Conn, idempotency.Retention{Compact: true})
	require.NoError(t, err)
	require.Equal(t, 410, post(t, server, "{}", "Idempotency-Key", "k").status)
	require.Equal(t, 1, payments(t, db))
}

func TestGuard_Configuration(t *testing.T) {
	t.Parallel()
	scope := func(*http.Request) (string, error) { return "", errors.New("who is it?") }
	pool := newDatabase(t).Conn
	for _, bad := range []httpkey.Guard{
		{}, {Pool: pool}, {Scope: scope}, {Pool: pool, Scope: scope, MaxBody: -1}, {Pool: pool, Scope: scope, Lease: -1},
	} {
		_, err := bad.Handler(http.NotFoundHandler())
		require.Error(t, err)
	}
	handler, err := (&httpkey.Guard{Pool: pool, Scope: scope}).Handler(http.NotFoundHandler())
	require.NoError(t, err)
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	require.Equal(t, 503, w.Code)
}

// Cookies are neither stored nor replayed, however their header's name is spelled.
func TestGuard_CookieOfAnySpelling(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	server := serve(t, &httpkey.Guard{Pool: db.Conn}, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["set-cookie"] = []string{"session=secret"}
		pay(w, r)
	})
	first := post(t, server, "{}", "Idempotency-Key", "k")
	require.Equal(t, "session=secret", first.header.Get("Set-Cookie"))
	again := post(t, server, "{}", "Idempotency-Key", "k")
	require.True(t, again.replayed())
	require.Empty(t, again.header.Get("Set-Cookie"))
	var stored bool
	require.NoError(t, db.QueryRow(t, `SELECT headers::text LIKE '%secret%' FROM walrelay_kit.idempotency_keys`).
		Scan(&stored))
	require.False(t, stored)
}

// A form that was parsed outside of the guard has left no body, and yet tells requests apart.
func TestGuard_ParsedForm(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	guard := &httpkey.Guard{Pool: db.Conn, Scope: func(*http.Request) (string, error) { return "", nil }}
	guarded, err := guard.Handler(http.HandlerFunc(pay))
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, r.ParseForm())
		guarded.ServeHTTP(w, r)
	}))
	defer server.Close()
	send := func(body string) reply {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Idempotency-Key", "k")
		answer, err := server.Client().Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		return reply{status: answer.StatusCode, header: answer.Header}
	}
	require.Equal(t, 201, send("amount=5").status)
	require.Equal(t, 422, send("amount=6").status)
	require.True(t, send("amount=5").replayed())
}

// An answer that no table can keep will not become one that can: it does not ask for another try.
func TestGuard_HeaderIsNotText(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"caf\xe9", "a\x00b"} {
		db := newDatabase(t)
		server := serve(t, &httpkey.Guard{Pool: db.Conn}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Disposition", value)
			pay(w, r)
		})
		got := post(t, server, "{}", "Idempotency-Key", "k")
		require.Equal(t, 500, got.status)
		require.Empty(t, got.header.Get("Retry-After"))
		require.Zero(t, payments(t, db))
	}
}
