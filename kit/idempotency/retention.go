package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/walrelay/walrelay/kit/tx"
)

// DefaultRetention is the least that callers expect of a key, as the large payment APIs keep it.
const DefaultRetention = 24 * time.Hour

const defaultBatch = 1000

// Retention is how long answers are kept. A repetition that comes later would run the work again, or
// meet ErrCompacted.
type Retention struct {
	// RetryWindow is the longest time between a caller's first and last attempt; DefaultRetention when
	// 0. Take days or weeks where callers retry from a queue or settle by hand.
	RetryWindow time.Duration
	// Keep is the age from the completion, or from the end of the lease of what never was completed.
	// RetryWindow when 0; less is an error.
	Keep time.Duration
	// Compact keeps the key and the hashes of request and answer for ever instead of removing the row:
	// about 300 bytes each with its index, against which a repetition after any time is still not run again.
	Compact bool
	// Batch is how many rows go in one transaction; 1,000 when 0.
	Batch int
}

// Validate tells of every fault.
func (r Retention) Validate() error {
	var faults []error
	window := cmp.Or(r.RetryWindow, DefaultRetention)
	if r.RetryWindow < 0 || r.Keep < 0 || r.Batch < 0 {
		faults = append(faults, errors.New("RetryWindow, Keep and Batch must not be negative"))
	}
	if keep := cmp.Or(r.Keep, window); keep < window {
		faults = append(faults, fmt.Errorf("retention %s is shorter than the retry window %s: late retries would run again",
			keep, window))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("check retention: %w", err)
	}
	return nil
}

const expired = `
WITH expired AS (
	SELECT scope, key FROM walrelay_kit.idempotency_keys
	WHERE compacted_at IS NULL AND created_at < clock_timestamp() - $1::bigint * interval '1 microsecond'
		AND coalesce(completed_at, lease_expires_at) < clock_timestamp() - $1::bigint * interval '1 microsecond'
		AND (state = 'completed') = $3
	ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
)`

const purge = expired + `
DELETE FROM walrelay_kit.idempotency_keys k USING expired e WHERE k.scope = e.scope AND k.key = e.key`

const compact = expired + `
UPDATE walrelay_kit.idempotency_keys k
SET compacted_at = clock_timestamp(), status = NULL, headers = NULL, body = NULL
FROM expired e WHERE k.scope = e.scope AND k.key = e.key`

// Purge removes, or compacts, what is older than r says, batch by batch, until nothing is left or an
// error comes; then rows is what was done so far. Several may run at once. Call it now and then, such as
// every hour, with a pool or connection: each batch is then a transaction of its own.
func Purge(ctx context.Context, db tx.Tx, r Retention) (rows int64, err error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	keep := cmp.Or(r.Keep, r.RetryWindow, DefaultRetention)
	batch := cmp.Or(r.Batch, defaultBatch)
	finish := purge
	if r.Compact {
		finish = compact
	}
	for _, step := range []struct {
		sql       string
		completed bool
	}{{finish, true}, {purge, false}} {
		for {
			tag, err := db.Exec(ctx, step.sql, keep.Microseconds(), batch, step.completed)
			if err != nil {
				return rows, fmt.Errorf("purge idempotency keys: %w", err)
			}
			rows += tag.RowsAffected()
			if tag.RowsAffected() < int64(batch) {
				break
			}
		}
	}
	return rows, nil
}
