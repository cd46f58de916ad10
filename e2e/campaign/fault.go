package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// fault is one way to break something.
type fault struct {
	group, name, about string
	onlyByName         bool
	since              int // the first PostgreSQL major that has it; 0: all

	least, most time.Duration // how long it lasts
	// strike breaks something, calls hold, and mends it. What mends itself needs no hold.
	strike func(ctx context.Context, w *world, hold func()) error
}

// allFaults lists them in the order in which the report does.
func allFaults() []*fault {
	return slices.Concat(relayFaults(), postgresFaults(), lossFaults(), kafkaFaults(), networkFaults())
}

// possible leaves out what the server is too old for.
func possible(faults []*fault, major int, log func(format string, args ...any)) []*fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f *fault) bool {
		if f.since > major {
			log("%s is left out: it needs PostgreSQL %d", f.name, f.since)
		}
		return f.since > major
	})
}

// deck deals faults in random order, and each of them once before any of them again.
type deck struct {
	faults []*fault
	left   []*fault
	random *rand.Rand
}

func (d *deck) next() *fault {
	if len(d.left) == 0 {
		d.left = slices.Clone(d.faults)
		d.random.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	f := d.left[0]
	d.left = d.left[1:]
	return f
}
