package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/walrelay/walrelay/testenv"
)

// service is a process that is started again whenever it ends, as a service manager does.
type service struct {
	name    string
	t       testing.TB
	command testenv.Command
	ended   chan struct{} // closed when it is not started again
	stop    context.CancelFunc

	mu        sync.Mutex
	processes []*testenv.Process // in the order of their starts
}

func startService(t testing.TB, name string, command testenv.Command) *service {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s := &service{name: name, t: t, command: command, ended: make(chan struct{}), stop: stop}
	go s.supervise(ctx)
	return s
}

func (s *service) supervise(ctx context.Context) {
	defer close(s.ended)
	for {
		p := s.launch(ctx)
		if p == nil {
			return
		}
		p.Wait(s.t, 1000*time.Hour)
		pause(ctx, 200*time.Millisecond)
	}
}

// launch returns nil once the service is stopped.
func (s *service) launch(ctx context.Context) *testenv.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	p := testenv.StartProcess(s.t, s.command)
	s.processes = append(s.processes, p)
	return p
}

// signal does nothing while no process runs.
func (s *service) signal(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.processes); n > 0 {
		s.processes[n-1].Signal(s.t, sig)
	}
}

// end stops the service in order, and by force when that takes too long.
func (s *service) end() error {
	s.stop()
	s.signal(syscall.SIGCONT)
	s.signal(syscall.SIGTERM)
	timer := time.NewTimer(45 * time.Second)
	defer timer.Stop()
	select {
	case <-s.ended:
		return nil
	case <-timer.C:
		s.signal(syscall.SIGKILL)
		<-s.ended
		return fmt.Errorf("%s does not end within 45s of SIGTERM", s.name)
	}
}

// log is what all processes of the service have written.
func (s *service) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var text strings.Builder
	for _, p := range s.processes {
		text.WriteString(p.Log())
	}
	return text.String()
}

// crashes are signs of a fault that starting again would hide.
func (s *service) crashes() (found []string) {
	for line := range strings.Lines(s.log()) {
		for _, sign := range []string{"panic: ", "http: panic", "fatal error: ", "DATA RACE"} {
			if strings.Contains(line, sign) {
				found = append(found, s.name+": "+strings.TrimSpace(line))
			}
		}
	}
	return found
}

// pause waits, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// await looks at a condition until it holds. It reports whether it did in time.
func await(ctx context.Context, limit time.Duration, holds func(ctx context.Context) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for ctx.Err() == nil {
		if holds(ctx) {
			return true
		}
		pause(ctx, 100*time.Millisecond)
	}
	return false
}
