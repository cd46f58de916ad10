// Command campaign looks for lost events. For a while it writes to a real PostgreSQL in all the ways
// that an application may, breaks walrelay, PostgreSQL, Kafka and the network in between, one fault
// after the other, and in the end compares what is in Kafka with what was committed.
//
//	go run ./e2e/campaign --for 10m --seed 7 --faults kafka,relay-kill --pg 18 --shape messages
//
// A seed repeats the choices, but not the timing, of a campaign. The exit code is 1 when anything was
// lost, invented or put in another order, or when events did not flow again after a fault was over.
//
//	options.go     the flags
//	campaign.go    the order of things
//	world.go       the servers, with a proxy (wire.go) before each
//	relays.go      restarts walrelay when it ends, as a service manager does
//	shape.go       how events are written and what records are made of them; cloudevents.go and formats.go have some
//	writer.go      transactions of all kinds; outcome.go finds out about those whose COMMIT got no answer
//	pulse.go       tells when events flow again
//	fault.go       the list of faults; relay.go, postgres.go, kafka.go, network.go and others have them
//	gap.go         faults after which events are missing rightly, once walrelay has said so
//	gate.go        a time without open transactions
//	fatal.go       ends of walrelay that restarting would hide
//	report.go      what is printed
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/walrelay/walrelay/testenv"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opts, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	var result *report
	ok := testenv.Perform(ctx, stderr, func(t testing.TB) {
		t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(testenv.Binary(t))) }) // testenv.Main does it in tests
		result = campaign(ctx, t, opts)
	})
	if result == nil || ctx.Err() != nil {
		return 1
	}
	write := result.writeTable
	if opts.json {
		write = result.writeJSON
	}
	if err := write(stdout); err != nil || !ok {
		return 1
	}
	return 0
}
