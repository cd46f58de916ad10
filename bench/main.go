// Command bench measures walrelay on this machine, against real servers that it starts itself.
//
//	go run ./bench --events 1000000 --rows-per-tx 10,1 --rounds 3
//
// Drain: how fast a backlog in the write-ahead log reaches Kafka, and what that costs. PostgreSQL's
// own pg_recvlogical drains the same log to /dev/null in turn with walrelay. A machine's speed swings
// within minutes, so only the ratio of the two in one round means anything elsewhere.
//
// Latency: from an INSERT to its record in a consumer's hands, at a steady rate.
//
// The judge of delivery is an independent client (franz-go): the sum of the partitions' end offsets
// stops the clock, and afterwards every event is read back and counted.
//
//	options.go   the flags
//	bench.go     servers, and the order of things
//	drain.go     rounds and their ratios; relay.go and recvlogical.go are the contenders
//	latency.go   paced inserts and their arrival
//	report.go    what is printed
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
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
	ctx, cancel := context.WithTimeoutCause(ctx, opts.timeout, fmt.Errorf("not done within %v", opts.timeout))
	defer cancel()

	var result *report
	ok := testenv.Perform(ctx, named{stderr}, func(t testing.TB) {
		t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(testenv.Binary(t))) }) // testenv.Main does it in tests
		var err error
		result, err = measure(ctx, t, opts)
		switch {
		case ctx.Err() != nil: // and no failure, of which the servers' logs would tell
			t.Logf("%v", context.Cause(ctx))
		case err != nil:
			t.Fatalf("%v", err)
		}
	})
	if !ok || ctx.Err() != nil {
		return 1
	}
	write := result.writeTable
	if opts.json {
		write = result.writeJSON
	}
	if err := write(stdout); err != nil {
		_, _ = fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

// named puts the program's name before each message.
type named struct{ w io.Writer }

func (n named) Write(message []byte) (int, error) {
	if _, err := fmt.Fprintf(n.w, "bench: %s", message); err != nil {
		return 0, err
	}
	return len(message), nil
}
