package main

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// relayFaults are those of walrelay's own processes.
func relayFaults() []*fault {
	const group = "relay"
	return []*fault{
		{
			group: group, name: "relay-kill", about: "SIGKILL of the instance that streams, in a burst",
			most: time.Second, strike: signalRelay(syscall.SIGKILL),
		},
		{
			group: group, name: "relay-term", about: "SIGTERM of the instance that streams, in a burst",
			most: time.Second, strike: signalRelay(syscall.SIGTERM),
		},
		{
			group: group, name: "relay-crash-loop", about: "several SIGKILLs in a row", strike: crashLoop,
		},
		{
			group: group, name: "relay-pause", about: "SIGSTOP and SIGCONT of the instance that streams",
			least: time.Second, most: 10 * time.Second,
			strike: func(ctx context.Context, w *world, hold func()) error {
				in, err := w.relays.active(ctx)
				if err != nil {
					return err
				}
				in.signal(syscall.SIGSTOP)
				hold()
				in.signal(syscall.SIGCONT)
				return nil
			},
		},
		{
			group: group, name: "relay-zombie", about: "another instance takes over from a stopped one, which then goes on",
			least: 100 * time.Millisecond, most: 4 * time.Second, strike: zombie,
		},
	}
}

func signalRelay(sig syscall.Signal) func(context.Context, *world, func()) error {
	return func(ctx context.Context, w *world, hold func()) error {
		in, err := w.relays.active(ctx)
		if err != nil {
			return err
		}
		w.pace.burst()
		hold()
		in.signal(sig)
		return nil
	}
}

// crashLoop hits the process while it starts, connects and begins to stream.
func crashLoop(ctx context.Context, w *world, _ func()) error {
	for range 2 + w.random.IntN(4) {
		for _, in := range w.relays.two {
			in.signal(syscall.SIGKILL)
		}
		pause(ctx, between(w.random, 0, 2*time.Second))
	}
	return nil
}

// zombie lets the server's wal_sender_timeout end the connection of an instance that is stopped.
func zombie(ctx context.Context, w *world, hold func()) error {
	stopped, err := w.relays.active(ctx)
	if err != nil {
		return err
	}
	for i, in := range w.relays.two {
		if in != stopped {
			w.relays.start(i)
			defer w.relays.keepOne(i)
		}
	}
	pause(ctx, 500*time.Millisecond) // it connects, mostly
	stopped.signal(syscall.SIGSTOP)
	defer stopped.signal(syscall.SIGCONT)
	if !await(ctx, stepLimit, func(ctx context.Context) bool {
		name, _ := w.streaming(ctx)
		return name != "" && name != stopped.name
	}) {
		return errors.New("no other instance takes over")
	}
	hold()
	return nil
}
