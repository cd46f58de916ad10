package testenv

import (
	"context"
	"io"
	"testing"
)

// Alive is for the proof that what a test process started dies with it.
func Alive(pid int) bool { return alive(pid) }

// PerformAlone is Perform without the end of the servers that the tests share.
func PerformAlone(ctx context.Context, log io.Writer, body func(t testing.TB)) bool {
	return perform(ctx, log, body)
}

// Sweep removes what test processes that were killed have left.
func Sweep(t testing.TB) {
	shared, err := sharedDir()
	if err == nil {
		err = sweep(shared)
	}
	if err != nil {
		t.Fatal(err)
	}
}
