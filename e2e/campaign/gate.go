package main

import (
	"context"
	"errors"
	"sync"
)

// gate holds the writers and the pulse up, so that for a while nothing is written and no transaction is
// open, not even a prepared one.
type gate struct {
	mu      sync.Mutex
	opening chan struct{} // closed when the gate opens; nil while it is open
	waiting int           // writers, and the pulse
}

// shut waits until the last transaction is finished.
func (g *gate) shut(ctx context.Context) error {
	g.mu.Lock()
	if g.opening == nil {
		g.opening = make(chan struct{})
	}
	g.mu.Unlock()
	if !await(ctx, stepLimit, func(context.Context) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.waiting == writers+1
	}) {
		return errors.New("the writers do not come to rest")
	}
	return nil
}

// open lets everybody go on. An open gate stays so.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opening != nil {
		close(g.opening)
		g.opening = nil
	}
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opening != nil
}

// pass waits while the gate is shut. Who calls it has finished everything.
func (g *gate) pass(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.opening != nil && ctx.Err() == nil { // it may have been shut again before this one noticed
		opening := g.opening
		g.waiting++
		g.mu.Unlock()
		select {
		case <-opening:
		case <-ctx.Done():
		}
		g.mu.Lock()
		g.waiting--
	}
}

// rest finishes what is pending and waits, while the gate is shut.
func (wr *writer) rest(ctx context.Context) error {
	if !wr.w.gate.isShut() {
		return nil
	}
	err := wr.finishDue(ctx, true)
	wr.w.gate.pass(ctx)
	return err
}
