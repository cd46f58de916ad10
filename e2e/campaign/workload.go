package main

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// writers is how many connections write, and hold further transactions open.
const writers = 4

// workload is all that is written during a campaign.
type workload struct {
	w       *world
	writers []*writer
	pace    *pace
	pulse   *pulse
	stop    chan struct{}
	group   *errgroup.Group
}

func startWorkload(ctx context.Context, w *world, p *pulse) *workload {
	group, ctx := errgroup.WithContext(ctx)
	l := &workload{w: w, pace: w.pace, pulse: p, stop: make(chan struct{}), group: group}
	for number := range writers {
		wr := newWriter(w, number, l.pace)
		l.writers = append(l.writers, wr)
		group.Go(func() error { return wr.write(ctx, l.stop) })
	}
	group.Go(func() error { return p.beat(ctx, l.stop) })
	group.Go(func() error {
		l.pace.vary(ctx, l.stop, rand.New(rand.NewPCG(w.options.seed, 1)))
		return nil
	})
	return l
}

// end stops the writers and waits until they have finished what is pending.
func (l *workload) end() error {
	close(l.stop)
	return l.group.Wait()
}

// pace says how fast a writer writes: evenly, not at all or in bursts, by turns.
type pace struct {
	rate   float64       // events a second
	factor atomic.Uint64 // bits of a float64
}

func newPace(rate float64) *pace {
	p := &pace{rate: rate}
	p.factor.Store(math.Float64bits(1))
	return p
}

// vary chooses another speed every few seconds. In the end nobody needs to wait any more.
func (p *pace) vary(ctx context.Context, stop <-chan struct{}, random *rand.Rand) {
	defer p.burst()
	for {
		factor, most := 1.0, 8*time.Second
		switch random.IntN(6) {
		case 0:
			factor = 0
		case 1:
			factor, most = 8, 3*time.Second
		}
		p.factor.Store(math.Float64bits(factor))
		timer := time.NewTimer(between(random, time.Second, most))
		select {
		case <-timer.C:
		case <-stop:
		case <-ctx.Done():
		}
		timer.Stop()
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		default:
		}
	}
}

// burst lets everybody write without a pause until the end of the present phase.
func (p *pace) burst() { p.factor.Store(math.Float64bits(math.Inf(1))) }

// cost is how long n events take at the normal speed, in seconds.
func (p *pace) cost(n int) float64 { return float64(n) / p.rate }

// spend waits a little, and returns what is left of a cost after that.
func (p *pace) spend(ctx context.Context, cost float64) float64 {
	const step = 0.05 // seconds
	factor := math.Float64frombits(p.factor.Load())
	if factor > 0 && cost/factor < step {
		pause(ctx, time.Duration(cost/factor*float64(time.Second)))
		return 0
	}
	pause(ctx, time.Duration(step*float64(time.Second)))
	return cost - step*factor
}
