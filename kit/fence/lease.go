package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/kit/tx"
)

var (
	// ErrHeld is returned by Acquire while somebody holds the lease.
	ErrHeld = errors.New("lease is held by another")
	// ErrLost is returned, and is the cause of the end of Keep's context, when the lease has expired, was
	// taken over or forgotten by a failover.
	ErrLost = errors.New("lease is lost")
)

// Leases are exclusive rights that end by themselves: one row for each resource in
// walrelay_kit.fences, timed by the database's clock.
type Leases struct {
	// DB is a pool, or a connection for nothing else. Not a transaction: what it does would be undone with it,
	// or be seen by others only at its end.
	DB tx.Tx
	// TTL is how long a lease lasts after Acquire or Renew. Others wait that long after a crash of the holder.
	TTL time.Duration
	// Source gives the tokens, when not the row itself.
	Source Source
}

// Lease is a right that was acquired. It ends with Release, or TTL after the last renewal.
type Lease struct {
	Resource string
	Holder   string
	// Token goes with every write that the lease is to protect.
	Token Token

	leases Leases
	row    Token     // the row's own token, which names this lease
	until  time.Time // on the local monotonic clock, never later than the server's expiry
}

const acquireSQL = `WITH ` + serverSQL + ` UPDATE walrelay_kit.fences f SET ` + raiseSQL + `,
	holder = $2, expires_at = clock_timestamp() + $3::interval
	FROM server s WHERE f.resource = $1 AND (f.expires_at IS NULL OR f.expires_at <= clock_timestamp())
	RETURNING ` + newestSQL

// Acquire takes the lease, with a new token, when nobody holds it; otherwise it returns ErrHeld at once, also
// when the holder has the same name: a restarted process waits for the end of its predecessor's lease.
// Holder is for people to read.
//
// When it fails after the statement was sent (a connection that broke), the lease may have been taken for
// nobody and ends after TTL.
func (l Leases) Acquire(ctx context.Context, resource, holder string) (*Lease, error) {
	if resource == "" {
		return nil, ErrResource
	}
	if l.TTL <= 0 {
		return nil, fmt.Errorf("lease of %s: %w", l.TTL, ErrDuration)
	}
	sent := time.Now()
	row, err := l.take(ctx, resource, holder)
	if errors.Is(err, pgx.ErrNoRows) { // held, or new
		if err := begin(ctx, l.DB, resource); err != nil {
			return nil, err
		}
		sent = time.Now()
		row, err = l.take(ctx, resource, holder)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrHeld
	}
	if err != nil {
		return nil, fmt.Errorf("acquire lease: %w", err)
	}
	lease := &Lease{Resource: resource, Holder: holder, Token: row, leases: l, row: row, until: sent.Add(l.TTL)}
	if l.Source == nil {
		return lease, nil
	}
	if lease.Token, err = l.Source.Next(ctx, resource); err != nil {
		return nil, errors.Join(fmt.Errorf("take fencing token: %w", err), lease.Release(ctx))
	}
	// Whoever takes over has to get the larger token. It asks the source after the end of this lease, so a
	// token counts when the lease was still held after it had come.
	if err := lease.Renew(ctx); err != nil {
		return nil, err
	}
	return lease, nil
}

func (l Leases) take(ctx context.Context, resource, holder string) (row Token, err error) {
	err = l.DB.QueryRow(ctx, acquireSQL, resource, holder, l.TTL).Scan(&row)
	return row, err
}

const renewSQL = `UPDATE walrelay_kit.fences f
	SET expires_at = clock_timestamp() + $3::interval, updated_at = clock_timestamp()
	WHERE f.resource = $1 AND ` + newestSQL + ` = $2 AND f.expires_at > clock_timestamp()`

// Renew makes the lease last for TTL from now, with the same token, or returns ErrLost. A lease that has
// expired is lost, even when nobody else has taken it. After another error nothing is known: the lease
// may be tried again until its time is over. It is not for use beside Keep, which calls it.
func (l *Lease) Renew(ctx context.Context) error {
	sent := time.Now()
	tag, err := l.leases.DB.Exec(ctx, renewSQL, l.Resource, l.row, l.leases.TTL)
	if err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrLost
	}
	l.until = sent.Add(l.leases.TTL)
	return nil
}

const releaseSQL = `UPDATE walrelay_kit.fences f
	SET holder = NULL, expires_at = NULL, updated_at = clock_timestamp()
	WHERE f.resource = $1 AND ` + newestSQL + ` = $2 AND f.expires_at > clock_timestamp()`

// Release gives the lease back, so that others need not wait for its end. ErrLost says that it was not held
// any more. Call it when all work under the lease has ended, after Keep's stop.
func (l *Lease) Release(ctx context.Context) error {
	tag, err := l.leases.DB.Exec(ctx, releaseSQL, l.Resource, l.row)
	if err != nil {
		return fmt.Errorf("release lease: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrLost
	}
	return nil
}
