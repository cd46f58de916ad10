package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/walrelay/walrelay/testenv"
)

// fault is something that goes wrong. It returns when what it broke runs again; a paused process goes on later.
type fault struct {
	name   string
	strike func(ctx context.Context, w *world, later *sync.WaitGroup)
}

func allFaults() []fault {
	kill := func(of func(*world) []*service) func(context.Context, *world, *sync.WaitGroup) {
		return func(_ context.Context, w *world, _ *sync.WaitGroup) { pick(w.random, of(w)).signal(syscall.SIGKILL) }
	}
	// A paused process keeps its key, its transaction or its partitions, and works on when others have them.
	stun := func(of func(*world) []*service) func(context.Context, *world, *sync.WaitGroup) {
		return func(ctx context.Context, w *world, later *sync.WaitGroup) {
			s, d := pick(w.random, of(w)), between(w.random, time.Second, 9*time.Second)
			s.signal(syscall.SIGSTOP)
			later.Go(func() {
				pause(ctx, d)
				s.signal(syscall.SIGCONT)
			})
		}
	}
	apis := func(w *world) []*service { return w.apis }
	consumers := func(w *world) []*service { return w.consumers }
	return []fault{
		{"API killed", kill(apis)},
		{"API paused", stun(apis)},
		{"all APIs killed", func(_ context.Context, w *world, _ *sync.WaitGroup) {
			for _, s := range w.apis {
				s.signal(syscall.SIGKILL)
			}
		}},
		{"relay killed", kill(func(w *world) []*service { return []*service{w.relay} })},
		{"consumer killed", kill(consumers)},
		{"consumer paused", stun(consumers)},
		{"payments database restarted", func(ctx context.Context, w *world, _ *sync.WaitGroup) {
			w.restart(ctx, w.payments.Server())
		}},
		{"ledger database restarted", func(ctx context.Context, w *world, _ *sync.WaitGroup) {
			w.restart(ctx, w.ledger.Server())
		}},
		{"broker killed", func(ctx context.Context, w *world, _ *sync.WaitGroup) {
			i := w.random.IntN(brokers)
			w.kafka.KillBroker(w.t, i)
			w.hold(ctx)
			w.kafka.StartBroker(w.t, i)
		}},
	}
}

func (w *world) restart(ctx context.Context, server *testenv.Server) {
	if w.random.IntN(2) == 0 {
		server.Kill(w.t)
	} else {
		server.Stop(w.t, testenv.Immediate)
	}
	w.hold(ctx)
	server.Start(w.t)
}

// hold lets an outage last.
func (w *world) hold(ctx context.Context) { pause(ctx, between(w.random, 0, 2*time.Second)) }

// breakThings deals the faults in turn, each time in another order, for a while, and for longer until that is enough.
// It returns how many there were.
func (w *world) breakThings(
	ctx context.Context, duration time.Duration, enough func(kinds int) bool,
) (struck map[string]int) {
	struck = map[string]int{}
	var later sync.WaitGroup
	defer later.Wait()
	faults := allFaults()
	start := time.Now()
	for n := 0; ; n++ {
		pause(ctx, between(w.random, 0, 1500*time.Millisecond))
		if time.Since(start) >= duration && enough(len(struck)) || ctx.Err() != nil {
			return struck
		}
		if n%len(faults) == 0 {
			w.random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		}
		f := faults[n%len(faults)]
		w.t.Logf("%5.1fs %s", time.Since(start).Seconds(), f.name)
		f.strike(ctx, w, &later)
		struck[f.name]++
	}
}

func pick[T any](random *rand.Rand, choices []T) T { return choices[random.IntN(len(choices))] }

// between is a random duration.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)+1))
}
