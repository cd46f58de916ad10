package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
)

// stage is the testing.TB that package testenv asks for, outside of a test: a failure ends what is
// performed on it, and then the cleanups run, the last one first.
type stage struct {
	testing.TB // nil; lets stage pass as one. testenv calls only what is defined below

	ctx context.Context //nolint:containedctx // as in testing.T
	log io.Writer

	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

// perform runs body and says whether it succeeded.
func (s *stage) perform(body func(t testing.TB)) bool {
	ended := make(chan struct{})
	go func() { // which FailNow may end
		defer close(ended)
		defer s.cleanUp()
		body(s)
	}()
	<-ended
	return !s.Failed()
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

// Name implements testing.TB. Databases are named after it.
func (s *stage) Name() string { return "bench" }

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
	_, _ = fmt.Fprintf(s.log, "bench: "+format+"\n", args...)
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
