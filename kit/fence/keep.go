package fence

import (
	"context"
	"errors"
	"time"
)

// Keep renews the lease every third of its TTL until stop is called, and returns a context for the work
// under it. That context ends when the lease is lost, with the cause ErrLost, or with ctx. When the
// database does not answer, it is tried again and again, and the context ends before the lease does: the time
// runs from before the last successful renewal was sent, on this machine's monotonic clock.
//
// That saves work and spares others; it does not replace the token: a paused process cannot see its context
// end, and on a suspended machine that clock stands still.
//
// Stop waits for the goroutine that renews, does not release the lease, and may be called again. It has to
// be called, as the function that context.WithCancel returns.
func (l *Lease) Keep(ctx context.Context) (held context.Context, stop context.CancelFunc) {
	held, cancel := context.WithCancelCause(ctx)
	expiry := time.AfterFunc(time.Until(l.until), func() { cancel(ErrLost) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer expiry.Stop()
		cancel(l.keep(held, expiry))
	}()
	return held, func() {
		cancel(context.Canceled)
		<-done
	}
}

// keep returns why the lease is not kept any longer.
func (l *Lease) keep(held context.Context, expiry *time.Timer) error {
	every := l.leases.TTL / 3
	next := time.NewTimer(time.Until(l.until) - 2*every)
	defer next.Stop()
	for {
		select {
		case <-held.Done():
			return held.Err()
		case <-next.C:
		}
		err := l.Renew(held)
		switch {
		case errors.Is(err, ErrLost):
			return ErrLost
		case err != nil: // a tenth of the time leaves several attempts
			next.Reset(every / 3)
		default:
			expiry.Reset(time.Until(l.until))
			next.Reset(every)
		}
	}
}
