package testenv

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
)

// Perform runs body on a testing.TB outside of a test, so that a program can use this package, and
// says whether it succeeded: a failure ends body, and then the cleanups run, the last one first. In
// the end it stops the servers that Postgres and Kafka share. What is logged goes to log.
func Perform(ctx context.Context, log io.Writer, body func(t testing.TB)) bool {
	ok := perform(ctx, log, body)
	return stopShared() == 0 && ok
}

func perform(ctx context.Context, log io.Writer, body func(t testing.TB)) bool {
	s := &stage{ctx: ctx, log: log}
	ended := make(chan struct{})
	go func() { // which FailNow may end
		defer close(ended)
		defer s.cleanUp()
		body(s)
	}()
	<-ended
	return !s.Failed()
}

// stage is the testing.TB of Perform.
type stage struct {
	testing.TB // nil; lets stage pass as one. Only what is defined below may be called

	ctx context.Context

	mu       sync.Mutex
	log      io.Writer
	failed   bool
	cleanups []func()
}

// cleanUp goes on when a cleanup fails.
func (s *stage) cleanUp() {
	s.mu.Lock()
	last := len(s.cleanups) - 1
	if last < 0 {
		s.mu.Unlock()
		return
	}
	clean := s.cleanups[last]
	s.cleanups = s.cleanups[:last]
	s.mu.Unlock()
	defer s.cleanUp()
	clean()
}

// Cleanup implements testing.TB.
func (s *stage) Cleanup(clean func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, clean)
}

// Context implements testing.TB.
func (s *stage) Context() context.Context { return s.ctx }

// Name implements testing.TB. Databases, slots and topics are named after it.
func (s *stage) Name() string { return "stage" }

// Helper implements testing.TB.
func (s *stage) Helper() {}

// Failed implements testing.TB.
func (s *stage) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Logf implements testing.TB.
func (s *stage) Logf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintf(s.log, format+"\n", args...)
}

// Errorf implements testing.TB.
func (s *stage) Errorf(format string, args ...any) {
	s.Logf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = true
}

// Fatalf implements testing.TB.
func (s *stage) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}
