package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/walrelay/walrelay/testenv"
)

// relays are the instances of walrelay, of which one streams and the other, if there is one, stands by.
type relays struct {
	w        *world
	two      [2]*instance
	foreseen map[*testenv.Process]bool // those whose end with exit code 1 a fault was to bring about
}

// instance is a place for a process that is started again whenever it ends.
type instance struct {
	name string
	w    *world
	ctx  context.Context //nolint:containedctx // ends the supervision
	stop context.CancelFunc
	done chan struct{} // nil while the instance does not run

	mu      sync.Mutex
	process *testenv.Process
	asked   *testenv.Process // to end, by SIGTERM: a second one would end it at once
	random  *rand.Rand
	ended   []*testenv.Process // all that ran before
	exits   map[int]int        // number by exit code
}

func newRelays(w *world) *relays {
	r := &relays{w: w, foreseen: map[*testenv.Process]bool{}}
	for i := range r.two {
		r.two[i] = &instance{
			name: fmt.Sprintf("relay-%d", i), w: w, exits: map[int]int{},
			random: rand.New(rand.NewPCG(w.options.seed, uint64(100+i))),
		}
	}
	return r
}

// command runs a command of walrelay to its end.
func (r *relays) command(t testing.TB, args ...string) {
	t.Helper()
	p := testenv.StartProcess(t, testenv.Command{
		Path: testenv.Binary(t), Args: args, Env: r.w.relayEnv("command", r.two[0].random),
	})
	if code := p.Wait(t, stepLimit); code != 0 {
		t.Fatalf("walrelay %s: exit code %d: %s%s", strings.Join(args, " "), code, p.Stdout(), p.Log())
	}
}

// start starts an instance unless it runs.
func (r *relays) start(i int) {
	in := r.two[i]
	if in.done != nil {
		return
	}
	in.ctx, in.stop = context.WithCancel(r.w.t.Context())
	in.done = make(chan struct{})
	go in.supervise()
}

// supervise restarts the process until the instance is stopped.
func (in *instance) supervise() {
	defer close(in.done)
	for in.ctx.Err() == nil {
		in.mu.Lock()
		p := testenv.StartProcess(in.w.t, testenv.Command{
			Path: testenv.Binary(in.w.t), Args: []string{"run"}, Env: in.w.relayEnv(in.name, in.random),
		})
		in.process = p
		in.mu.Unlock()
		code := p.Wait(in.w.t, 1000*time.Hour)
		in.mu.Lock()
		in.exits[code]++
		in.ended = append(in.ended, p)
		in.process = nil
		in.mu.Unlock()
		pause(in.ctx, 200*time.Millisecond)
	}
}

// stop ends an instance in order, or by force when that takes too long.
func (r *relays) stop(i int) error {
	in := r.two[i]
	if in.done == nil {
		return nil
	}
	in.stop()
	in.signal(syscall.SIGCONT)
	in.signal(syscall.SIGTERM)
	timer := time.NewTimer(stepLimit)
	defer timer.Stop()
	var err error
	select {
	case <-in.done:
	case <-timer.C:
		err = fmt.Errorf("%s does not end within %v of SIGTERM", in.name, stepLimit)
		in.signal(syscall.SIGKILL)
		<-in.done
	}
	in.done = nil
	return err
}

// signal does nothing while no process runs.
func (in *instance) signal(sig os.Signal) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.process == nil || sig == syscall.SIGTERM && in.asked == in.process {
		return
	}
	if sig == syscall.SIGTERM {
		in.asked = in.process
	}
	in.process.Signal(in.w.t, sig)
}

// active waits for the instance that streams.
func (r *relays) active(ctx context.Context) (*instance, error) {
	var found *instance
	if !await(ctx, stepLimit, func(ctx context.Context) bool {
		name, _ := r.w.streaming(ctx)
		for _, in := range r.two {
			if in.name == name {
				found = in
			}
		}
		return found != nil
	}) {
		return nil, fmt.Errorf("no instance streams")
	}
	return found, nil
}

// crashes are signs in the logs of a fault that restarting would hide.
func (r *relays) crashes() []string {
	var found []string
	for _, in := range r.two {
		for _, p := range in.all() {
			for line := range strings.Lines(p.Log()) {
				for _, sign := range []string{"panic: ", "fatal error: ", "DATA RACE"} {
					if strings.Contains(line, sign) {
						found = append(found, in.name+": "+strings.TrimSpace(line))
					}
				}
			}
		}
		if in.exits[2] > 0 {
			found = append(found, in.name+": wrong configuration")
		}
	}
	return found
}

// all are the processes of an instance.
func (in *instance) all() []*testenv.Process {
	in.mu.Lock()
	defer in.mu.Unlock()
	all := append([]*testenv.Process(nil), in.ended...)
	if in.process != nil {
		all = append(all, in.process)
	}
	return all
}

// writeLogs leaves one file for each instance.
func (r *relays) writeLogs(dir string) error {
	for _, in := range r.two {
		var text strings.Builder
		for n, p := range in.all() {
			fmt.Fprintf(&text, "=== start %d, process %d\n%s", n+1, p.PID(), p.Log())
		}
		if text.Len() == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, in.name+".log"), []byte(text.String()), 0o600); err != nil {
			return fmt.Errorf("write log: %w", err)
		}
	}
	return nil
}

// keepOne stops an instance that was started for a while, unless it is the one that streams.
func (r *relays) keepOne(i int) {
	if name, _ := r.w.streaming(r.w.t.Context()); name == r.two[i].name {
		i = 1 - i
	}
	if err := r.stop(i); err != nil {
		r.w.t.Errorf("%v", err)
	}
}

// release tells walrelay to try the event again that it is stuck at, if it is.
func (r *relays) release(ctx context.Context) error {
	in, err := r.active(ctx)
	if err != nil {
		return err
	}
	released := map[string]bool{}
	// It may be at work on the event still, and then be stuck at a later one of those it had read.
	for range 20 {
		for _, p := range in.all() {
			for _, found := range stuck.FindAllStringSubmatch(p.Log(), -1) {
				if !released[found[1]] {
					released[found[1]] = true
					r.command(r.w.t, "stream", "release", found[1], "--verdict", "retry")
				}
			}
		}
		pause(ctx, 100*time.Millisecond)
	}
	return nil
}

// stuck finds the command that the log recommends.
var stuck = regexp.MustCompile(`walrelay stream release ([0-9A-F-]+) --verdict`)

// stopAll stops all instances.
func (r *relays) stopAll() {
	for i := range r.two {
		if err := r.stop(i); err != nil {
			r.w.t.Errorf("%v", err)
		}
	}
}
