// Command payments is an application that charges each payment once, from the client's HTTP request to a ledger
// in another database, whatever is repeated or dies on the way:
//
//	client ── POST, Idempotency-Key ──► API ──► PostgreSQL: key, payment and event in one transaction
//	                                                │ walrelay
//	ledger's PostgreSQL: inbox and entry ◄── consumer ◄── Kafka
//	in one transaction
//
// The application:
//
//	payment.go     the two effects: charge an account, book the payment
//	api.go         POST /payments, guarded by kit/idempotency/httpkey
//	consumer.go    applies events with kit/inbox
//	payments.sql, ledger.sql
//
// The proof, which starts all of that for real, breaks it, and counts the money:
//
//	prove.go       the order of things
//	world.go       servers and processes
//	service.go     a process that is started again whenever it ends
//	faults.go      what goes wrong
//	clients.go     who asks for payments, again and again
//	books.go       compares what clients were told with both databases
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

const usage = `usage:
  DATABASE_URL=… payments api [--listen host:port]          of the payments
  DATABASE_URL=… payments consume [--brokers host:port,…]   of the ledger
  payments prove [--for 1m] [--seed n]                      starts everything itself
`

// run is main without the process. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("payments", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { _, _ = io.WriteString(stderr, usage) }
	listen := flags.String("listen", "127.0.0.1:8080", "")
	brokers := flags.String("brokers", "127.0.0.1:9092", "")
	duration := flags.Duration("for", time.Minute, "")
	seed := flags.Uint64("seed", rand.Uint64N(1_000_000), "")
	if len(args) == 0 {
		flags.Usage()
		return 2
	}
	switch err := flags.Parse(args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil: // which Parse has written
		return 2
	case flags.NArg() > 0:
		flags.Usage()
		return 2
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	var err error
	switch args[0] {
	case "api":
		err = serve(ctx, os.Getenv("DATABASE_URL"), *listen, log)
	case "consume":
		err = consume(ctx, os.Getenv("DATABASE_URL"), strings.Split(*brokers, ","), log)
	case "prove":
		err = prove(ctx, *duration, *seed, stdout, stderr)
	default:
		flags.Usage()
		return 2
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "payments:", err)
		return 1
	}
	return 0
}
