package main

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// errSignal is the cause of a context that a signal ended: a wanted stop, not a failure.
var errSignal = errors.New("stopped by signal")

// interrupted is the signal that a command was stopped by, in place of an error that only says so.
func interrupted(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errSignal) && errors.Is(err, context.Canceled) {
		return cause
	}
	return err
}

// withSignals returns a context that the first signal cancels, with the cause errSignal; the second
// calls abort, which skips all waiting. That is safe, since what was not confirmed is sent again.
func withSignals(ctx context.Context, signals <-chan os.Signal, abort func()) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case s := <-signals:
			cancel(fmt.Errorf("%w %s", errSignal, s))
		case <-ctx.Done():
			return
		}
		<-signals
		abort()
	}()
	return ctx
}
