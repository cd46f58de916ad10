package httpkey

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/kit/idempotency"
)

const defaultLimit = 1 << 20

// Guard runs a handler once for each Idempotency-Key and replays its answer to repetitions. POST and
// PATCH are guarded; all other methods pass untouched, as they are safe or repeatable by definition
// (RFC 9110, 9.2.2).
//
// The handler finds its transaction by idempotency.TxFrom(r.Context()); what it writes there commits
// together with the answer, before the first byte of the answer leaves. An answer below 500 commits; one
// of 500 and above, and a 4xx after a failed statement, rolls the handler's writes back and is saved all
// the same. An answer that Save declines is rolled back, sent, and forgotten. When the connection of the
// transaction broke, the answer is 503, whatever the handler said, and the key is free.
//
// The answer is held back until then, so nothing can stream: http.ResponseController says
// http.ErrNotSupported to Flush, Hijack and deadlines, informational answers (1xx) are dropped, and
// the writer is neither an http.Flusher nor an http.Hijacker. Don't guard routes that need them.
//
// When the handler panics, its writes are rolled back and the key is free again; the panic goes on. When
// the client goes away, the request's context ends and with it the transaction.
type Guard struct {
	// Pool is where the keys and the business tables are. Required.
	Pool idempotency.Pool
	// Scope tells whose key it is, from the authenticated request: the tenant or user. Required, since
	// keys of strangers must not meet: one would be given the other's answer.
	Scope func(*http.Request) (string, error)
	// Required answers 400 when there is no key. Otherwise such a request passes untouched, without
	// transaction.
	Required bool
	// Lease as in idempotency.Request: longer than the handler's longest run.
	Lease time.Duration
	// MaxBody and MaxAnswer are in bytes; 1 MiB when 0.
	MaxBody, MaxAnswer int64
	// Save declines statuses that must not stand for the rest of the key's life. Nil: all are saved but
	// 429 and 503, which ask for another try.
	Save func(status int) bool
	// SavePanics answers a panic with 500 and saves that, for handlers whose effects outside the
	// database must not be repeated. The panic ends there: OnError gets it as a *PanicError.
	SavePanics bool
	// OnError is told what the guard answered 500 or 503 for. Optional.
	OnError func(*http.Request, error)
}

// PanicError is a panic that was answered with 500.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

var (
	errUnsaved = errors.New("answer is not to be saved")
	errBroken  = errors.New("handler answered success after a failed statement")
	errNoConn  = errors.New("connection of the handler's transaction broke")
	errFiles   = errors.New("files of the form were read outside of the guard: put what parses forms inside it")
)

// Handler guards next.
func (g *Guard) Handler(next http.Handler) (http.Handler, error) {
	if g.Pool == nil || g.Scope == nil {
		return nil, errors.New("guard handler: Pool and Scope are required")
	}
	if g.Lease < 0 || g.MaxBody < 0 || g.MaxAnswer < 0 {
		return nil, errors.New("guard handler: Lease, MaxBody and MaxAnswer must not be negative")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost && r.Method != http.MethodPatch {
			next.ServeHTTP(w, r)
			return
		}
		key, err := readKey(r.Header)
		switch {
		case errors.Is(err, errNoKey) && !g.Required:
			next.ServeHTTP(w, r)
		case err != nil:
			problem(w, http.StatusBadRequest, err.Error())
		default:
			g.serve(w, r, key, next)
		}
	}), nil
}

func (g *Guard) serve(w http.ResponseWriter, r *http.Request, key string, next http.Handler) {
	scope, err := g.Scope(r)
	if err != nil {
		g.fail(w, r, fmt.Errorf("find scope of idempotency key: %w", err))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, cmp.Or(g.MaxBody, defaultLimit)))
	if err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", tooLarge.Limit))
			return
		}
		problem(w, http.StatusBadRequest, "the body could not be read")
		return
	}
	parts := []string{r.Method, r.URL.EscapedPath(), r.URL.RawQuery}
	if len(r.PostForm) > 0 { // a middleware outside has taken it out of the body
		parts = append(parts, r.PostForm.Encode())
	}
	if r.MultipartForm != nil && len(r.MultipartForm.File) > 0 {
		g.fail(w, r, errFiles)
		return
	}
	request := idempotency.Request{
		Scope: scope, Key: key, Lease: g.Lease, Hash: idempotency.HashRequest(r.Header.Get("Content-Type"), body, parts...),
	}
	var answer *recorder // nil unless the handler ran to its end
	saved, err := idempotency.Run(WithKey(r.Context(), scope, key), g.Pool, request,
		func(ctx context.Context, tx pgx.Tx) (idempotency.Response, error) {
			answer = newRecorder(cmp.Or(g.MaxAnswer, defaultLimit))
			inner := r.WithContext(ctx)
			inner.Body = io.NopCloser(bytes.NewReader(body))
			if err := g.handle(next, answer, inner); err != nil {
				answer = nil
				g.report(r, err)
				return idempotency.Response{}, refuse(problemAnswer(http.StatusInternalServerError, "the handler panicked"))
			}
			return g.judge(answer, tx)
		})
	switch {
	case errors.Is(err, errUnsaved):
		answer.send(w)
	case err != nil:
		g.fail(w, r, err)
	case answer == nil: // the handler did not run, or panicked
		sendSaved(w, saved)
	default:
		answer.send(w) // with its cookies
	}
}

// handle turns a panic into an error when it is to be saved.
func (g *Guard) handle(next http.Handler, w http.ResponseWriter, r *http.Request) (err error) {
	if g.SavePanics {
		defer func() {
			value := recover()
			if value == http.ErrAbortHandler { //nolint:errorlint // the value itself is the sign
				panic(value) //nolint:forbidigo // net/http's way to drop a connection; nothing is to be saved
			}
			if value != nil {
				err = &PanicError{Value: value, Stack: debug.Stack()}
			}
		}()
	}
	next.ServeHTTP(w, r)
	return nil
}

// judge decides what becomes of the handler's writes and answer.
func (g *Guard) judge(answer *recorder, tx pgx.Tx) (idempotency.Response, error) {
	status := answer.status()
	broken := tx.Conn().PgConn().TxStatus() == 'E' // a statement failed: this transaction cannot commit
	switch {
	case tx.Conn().IsClosed(): // whatever the handler made of that: a retry will fare better
		return idempotency.Response{}, errNoConn
	case answer.tooLarge:
		return idempotency.Response{}, errTooLarge
	case g.Save == nil && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable),
		g.Save != nil && !g.Save(status):
		return idempotency.Response{}, errUnsaved
	case status >= 500, status >= 400 && broken:
		return idempotency.Response{}, refuse(answer.saved())
	case broken:
		return idempotency.Response{}, errBroken
	}
	return answer.saved(), nil
}

func refuse(answer idempotency.Response) error { return &idempotency.RefusalError{Response: answer} }

// fail answers for errors of the guard itself.
func (g *Guard) fail(w http.ResponseWriter, r *http.Request, err error) {
	var busy *idempotency.InProgressError
	switch {
	case errors.As(err, &busy):
		seconds := max(1, int(math.Ceil(busy.RetryAfter.Seconds())))
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
		problem(w, http.StatusConflict, "a request of this key is in progress")
	case errors.Is(err, idempotency.ErrLost):
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusConflict, "another request of this key has taken over")
	case errors.Is(err, idempotency.ErrMismatch):
		problem(w, http.StatusUnprocessableEntity, "the key was used for another request")
	case errors.Is(err, idempotency.ErrCompacted):
		problem(w, http.StatusGone, "the request was carried out; its answer is no longer kept")
	case errors.Is(err, errTooLarge):
		g.report(r, err)
		problem(w, http.StatusInternalServerError, "the answer is too large to be kept; nothing was done")
	case errors.Is(err, idempotency.ErrHeader):
		g.report(r, err)
		problem(w, http.StatusInternalServerError, "the answer cannot be kept; nothing was done")
	case errors.Is(err, errBroken), errors.Is(err, errFiles):
		g.report(r, err)
		problem(w, http.StatusInternalServerError, "the request failed; nothing was done")
	default:
		g.report(r, err)
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "the request could not be carried out; retry with the same key")
	}
}

func (g *Guard) report(r *http.Request, err error) {
	if g.OnError != nil {
		g.OnError(r, err)
	}
}
