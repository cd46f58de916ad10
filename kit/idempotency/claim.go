package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/kit/tx"
)

// retryAfter is how soon it is worth asking again about a request that is in progress.
const retryAfter = time.Second

// Claim is the right to complete a key, until somebody takes it over.
type Claim struct {
	Request Request
	Token   int64 // 1 for the first owner, more after each takeover: pass it to whoever can be fenced by it
}

// The clock is read at the statement, not at the start of the caller's transaction, which may be long ago.
const claimKey = `
INSERT INTO walrelay_kit.idempotency_keys AS k (scope, key, request_hash, lease_expires_at)
VALUES ($1, $2, $3, clock_timestamp() + $4::bigint * interval '1 microsecond')
ON CONFLICT (scope, key) DO UPDATE
	SET token = k.token + 1, lease_expires_at = excluded.lease_expires_at
	WHERE k.state = 'in_progress' AND k.lease_expires_at <= clock_timestamp()
		AND k.request_hash = excluded.request_hash
RETURNING token`

// Acquire claims a key: for the caller (claim), or not, because the answer stands (saved). Otherwise the
// error is ErrMismatch, ErrInProgress, ErrCompacted or the database's.
//
// With a pool or connection it is a transaction of its own, so that others see the claim at once and a
// crash leaves it to its lease. Within the caller's transaction others wait for the end of that
// transaction instead and then find the answer, or the key free again: shorter, but they hold a
// connection meanwhile.
func Acquire(ctx context.Context, db tx.Tx, r Request) (claim *Claim, saved *Response, err error) {
	if err := r.validate(); err != nil {
		return nil, nil, err
	}
	// Between the two statements the row may be purged or its lease may end.
	for range 3 {
		var token int64
		err = db.QueryRow(ctx, claimKey, r.Scope, r.Key, r.Hash[:], r.lease().Microseconds()).Scan(&token)
		if err == nil {
			return &Claim{Request: r, Token: token}, nil, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return nil, nil, fmt.Errorf("claim idempotency key: %w", err)
		}
		saved, err = lookUp(ctx, db, r)
		var busy *InProgressError
		if errors.Is(err, pgx.ErrNoRows) || errors.As(err, &busy) && busy.LeaseLeft <= 0 {
			continue
		}
		return nil, saved, err
	}
	return nil, nil, &InProgressError{}
}

const readKey = `
SELECT request_hash = $3, state = 'completed', compacted_at IS NOT NULL,
	(extract(epoch FROM lease_expires_at - clock_timestamp()) * 1000000)::bigint,
	coalesce(status, 0), coalesce(headers, 'null'), body, outcome_hash, completed_at
FROM walrelay_kit.idempotency_keys WHERE scope = $1 AND key = $2`

func lookUp(ctx context.Context, db tx.Tx, r Request) (*Response, error) {
	var (
		same, completed, compacted bool
		leaseLeft                  int64 // microseconds
		saved                      = Response{Replayed: true}
		headers, outcome           []byte
		completedAt                *time.Time
	)
	err := db.QueryRow(ctx, readKey, r.Scope, r.Key, r.Hash[:]).
		Scan(&same, &completed, &compacted, &leaseLeft, &saved.Status, &headers, &saved.Body, &outcome, &completedAt)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read idempotency key: %w", err)
	case !same:
		return nil, ErrMismatch
	case !completed:
		left := time.Duration(leaseLeft) * time.Microsecond
		return nil, &InProgressError{RetryAfter: min(left, retryAfter), LeaseLeft: left}
	case compacted:
		return nil, &CompactedError{CompletedAt: *completedAt, OutcomeHash: outcome}
	}
	if err := json.Unmarshal(headers, &saved.Header); err != nil {
		return nil, fmt.Errorf("read saved headers: %w", err)
	}
	return &saved, nil
}

const completeKey = `
UPDATE walrelay_kit.idempotency_keys
SET state = 'completed', status = $5, headers = $6::text::jsonb, body = $7, outcome_hash = $8,
	completed_at = clock_timestamp()
WHERE scope = $1 AND key = $2 AND request_hash = $3 AND token = $4 AND state = 'in_progress'`

// Complete saves the answer. Call it last in the transaction of the business change: when it returns
// ErrLost, that transaction must be rolled back. A lease that is over does no harm as long as nobody
// took over.
func (c *Claim) Complete(ctx context.Context, db tx.Tx, answer Response) error {
	for name, values := range answer.Header {
		for _, text := range append([]string{name}, values...) {
			if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
				return fmt.Errorf("save answer: %w", ErrHeader)
			}
		}
	}
	headers, err := json.Marshal(answer.Header)
	if err != nil {
		return fmt.Errorf("encode headers: %w", err)
	}
	r := c.Request
	tag, err := db.Exec(ctx, completeKey, r.Scope, r.Key, r.Hash[:], c.Token,
		answer.Status, string(headers), answer.Body, answer.outcomeHash())
	return c.outcome("save answer", tag.RowsAffected(), err)
}

const setLease = `
UPDATE walrelay_kit.idempotency_keys
SET lease_expires_at = clock_timestamp() + $5::bigint * interval '1 microsecond'
WHERE scope = $1 AND key = $2 AND request_hash = $3 AND token = $4 AND state = 'in_progress'`

// Extend starts the lease anew, for work that takes longer than it thought. It must not run in the
// transaction of the business change, where nobody would see it before the end.
func (c *Claim) Extend(ctx context.Context, db tx.Tx) error {
	return c.lease(ctx, db, "extend lease", c.Request.lease())
}

// Release ends the lease at once: the next caller with the same request may begin. The key stays bound
// to the request. Only after the business transaction was rolled back.
func (c *Claim) Release(ctx context.Context, db tx.Tx) error {
	return c.lease(ctx, db, "release idempotency key", 0)
}

func (c *Claim) lease(ctx context.Context, db tx.Tx, verb string, d time.Duration) error {
	r := c.Request
	tag, err := db.Exec(ctx, setLease, r.Scope, r.Key, r.Hash[:], c.Token, d.Microseconds())
	return c.outcome(verb, tag.RowsAffected(), err)
}

func (*Claim) outcome(verb string, rows int64, err error) error {
	if err == nil && rows == 0 {
		err = ErrLost
	}
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return nil
}
