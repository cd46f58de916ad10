package idempotency

import (
	"bytes"
	"errors"
	"time"
)

// ErrMismatch says that the key was used before for another request. Repeating it is of no use: the
// caller has a fault, or two callers chose the same key.
var ErrMismatch = errors.New("idempotency key was used for another request")

// ErrInProgress is what an *InProgressError is.
var ErrInProgress = errors.New("request with this idempotency key is in progress")

// ErrLost says that another caller took over because the lease had ended, or that the key was purged.
// The transaction that met it must be rolled back; Run does so.
var ErrLost = errors.New("idempotency key is no longer held")

// ErrCompacted is what a *CompactedError is.
var ErrCompacted = errors.New("answer of this idempotency key is no longer kept")

// ErrHeader says that a header of the answer is not UTF-8, or has a zero byte: PostgreSQL cannot keep it.
var ErrHeader = errors.New("header of the answer is not text")

// InProgressError says that somebody else works on the same request. The same call may be repeated.
type InProgressError struct {
	RetryAfter time.Duration // when to ask again: after a second, or sooner when the lease ends sooner
	LeaseLeft  time.Duration // after this long the next caller takes over
}

func (*InProgressError) Error() string { return ErrInProgress.Error() }

// Is makes errors.Is(err, ErrInProgress) true.
func (*InProgressError) Is(target error) bool { return target == ErrInProgress }

// CompactedError says that the work was done, once, but that only the hash of its answer is left.
type CompactedError struct {
	CompletedAt time.Time
	OutcomeHash []byte
}

func (*CompactedError) Error() string { return ErrCompacted.Error() }

// Is makes errors.Is(err, ErrCompacted) true.
func (*CompactedError) Is(target error) bool { return target == ErrCompacted }

// Was tells whether r has the status and body of the answer that was given. Headers do not count.
func (e *CompactedError) Was(r Response) bool { return bytes.Equal(e.OutcomeHash, r.outcomeHash()) }

// RefusalError is returned by the work given to Run to roll back what it wrote and yet have an answer
// saved, such as a refusal that was found half-way.
type RefusalError struct{ Response Response }

func (*RefusalError) Error() string { return "refused with an answer to save" }
