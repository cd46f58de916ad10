package main

import (
	"context"
	"syscall"
	"time"
)

// strikeWire is how a fault of one wire strikes.
type strikeWire func(ctx context.Context, w *world, wire *wire, hold func()) error

// networkFaults are those of the connections between walrelay and one of the servers.
func networkFaults() []*fault {
	const group = "network"
	var faults []*fault
	for _, side := range []struct {
		name string
		wire func(w *world) *wire
	}{
		{"pg", func(w *world) *wire { return w.postgres }},
		{"kafka", func(w *world) *wire { return w.kafka[w.random.IntN(brokers)] }},
	} {
		add := func(name, about string, least, most time.Duration, strike strikeWire) {
			faults = append(faults, &fault{
				group: group, name: side.name + "-" + name, about: about, least: least, most: most,
				strike: func(ctx context.Context, w *world, hold func()) error {
					return strike(ctx, w, side.wire(w), hold)
				},
			})
		}
		add("latency", "answers come late", 2*time.Second, 6*time.Second,
			poisoned("latency", map[string]int{"latency": 400, "jitter": 300}))
		add("bandwidth", "few bytes a second in both directions", 2*time.Second, 6*time.Second,
			poisoned("bandwidth", map[string]int{"rate": 20}))
		add("reset", "connections are reset as soon as anything is sent", time.Second, 5*time.Second,
			poisoned("reset_peer", map[string]int{"timeout": 50}))
		add("half-open", "connections stay, and nothing arrives", 2*time.Second, 14*time.Second,
			poisoned("timeout", map[string]int{"timeout": 0}))
		add("slow-close", "connections are ended, and the end arrives late", time.Second, 3*time.Second, slowClose)
		add("cut", "connections are ended and refused", 0, 5*time.Second, cut)
	}
	return append(faults, &fault{
		group: group, name: "kafka-outage", about: "no broker is reached, and walrelay is killed meanwhile",
		least: 2 * time.Second, most: 8 * time.Second, strike: outage,
	})
}

// outage kills walrelay while events wait for Kafka: none of them may count as delivered.
func outage(ctx context.Context, w *world, hold func()) error {
	nothing := toxic{Type: "timeout", Stream: "upstream", Attributes: map[string]int{"timeout": 0}}
	silent := w.random.IntN(2) == 0 // or else refused
	for _, wire := range w.kafka {
		if !silent {
			wire.cut()
		} else if err := wire.poison(nothing); err != nil {
			return err
		}
	}
	w.pace.burst()
	hold()
	for _, in := range w.relays.two {
		in.signal(syscall.SIGKILL)
	}
	for _, wire := range w.kafka {
		wire.heal(ctx)
		if silent {
			continue
		}
		if err := wire.mend(); err != nil {
			return err
		}
	}
	return nil
}

// poisoned adds a toxic in one direction or in both.
func poisoned(kind string, attributes map[string]int) strikeWire {
	return func(ctx context.Context, w *world, wire *wire, hold func()) error {
		both := []string{"upstream", "downstream"}
		for _, stream := range pick(w.random, both, both[:1], both[1:]) {
			if err := wire.poison(toxic{Type: kind, Stream: stream, Attributes: attributes}); err != nil {
				return err
			}
		}
		hold()
		wire.heal(ctx)
		return nil
	}
}

// slowClose makes the ends of connections late, and then ends them on the server's side.
func slowClose(ctx context.Context, w *world, wire *wire, hold func()) error {
	late := map[string]int{"delay": 2000}
	for _, stream := range []string{"upstream", "downstream"} {
		if err := wire.poison(toxic{Type: "slow_close", Stream: stream, Attributes: late}); err != nil {
			return err
		}
	}
	hold()
	if wire == w.postgres {
		if _, pid := w.streaming(ctx); pid != 0 {
			if _, err := w.db.Conn.Exec(ctx, "SELECT pg_terminate_backend($1)", pid); err != nil {
				return err
			}
		}
	} else if err := wire.cutAndMend(); err != nil {
		return err
	}
	hold()
	wire.heal(ctx)
	return nil
}

func cut(_ context.Context, _ *world, wire *wire, hold func()) error {
	wire.cut()
	hold()
	return wire.mend()
}
