// Command demo shows walrelay at work on a machine that has nothing but Go: it starts a PostgreSQL, a
// broker in this process, the walrelay program and a small shop that writes orders with their events,
// stops the broker now and then, and counts with a consumer of its own what arrives.
//
//	demo.go        the play: what is started, in which order, and how it ends
//	home.go        the one directory that everything temporary lies in
//	process.go     child processes, which die with this one
//	database.go    PostgreSQL: ours, or one that the user names
//	unpack.go      fetching PostgreSQL
//	broker.go      the broker: ours, or some that the user names; gate.go stops ours
//	relay.go       the walrelay program and its /status
//	shop.go        orders and their events
//	ledger.go      what became of each event: the judge
//	consumer.go    what arrives
//	dashboard.go   what is shown while it runs; view.go draws it; summary.go comes last
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1 // events were lost, or the demo itself failed
	exitUsage = 2
)

func main() {
	signals := make(chan os.Signal, 2)
	// A reader of our output that goes away (SIGPIPE) must not keep us from cleaning up either.
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	soft, hard := stops(context.Background(), signals)
	os.Exit(run(soft, hard, os.Args[1:], os.Stdout, os.Stderr))
}

var (
	errSignal = errors.New("stopped by a signal")
	errAbort  = errors.New("stopped at once by a second signal")
)

// stops returns two contexts. The first signal ends soft: the shop closes, and what is on its way may
// arrive. The second ends hard: nothing is waited for, but everything is still cleaned up.
func stops(ctx context.Context, signals <-chan os.Signal) (soft, hard context.Context) {
	hard, abort := context.WithCancelCause(ctx)
	soft, stop := context.WithCancelCause(hard)
	go func() {
		<-signals
		stop(errSignal)
		for s := range signals {
			if s != syscall.SIGPIPE { // comes with every line that nobody reads
				abort(errAbort)
			}
		}
	}()
	return soft, hard
}

// cli is the grammar of the command line.
//
//nolint:lll // a struct tag cannot be broken over lines
type cli struct {
	For          *time.Duration `placeholder:"30s" help:"How long the shop is open. Unset: until Ctrl-C on a terminal, else 30s."`
	Rate         int            `default:"300" help:"Events a second that the shop tries to commit, on average."`
	NoOutage     bool           `help:"Never stop the broker."`
	Walrelay     string         `placeholder:"FILE" help:"The walrelay program. Unset: the one beside this program."`
	DatabaseURL  string         `env:"WALRELAY_DATABASE_URL" placeholder:"URL" help:"Use this PostgreSQL server, in a database made for the demo and dropped at its end. Unset: fetch and start one."`
	KafkaBrokers []string       `env:"WALRELAY_KAFKA_BROKERS" placeholder:"HOST:PORT" help:"Use these brokers, without TLS, with a topic made for the demo and deleted at its end; they are never stopped. Unset: start one in this process."`

	Unpack string `hidden:"" help:"Fetch PostgreSQL, unpack it into this directory, and nothing else."`
}

// Validate implements kong's check of the command line.
func (c *cli) Validate() error {
	if c.Rate < 1 || c.Rate > 10000 {
		return errors.New("--rate must be between 1 and 10000")
	}
	if c.For != nil && *c.For <= 0 {
		return errors.New("--for must be positive")
	}
	return nil
}

// run is main without the process.
func run(soft, hard context.Context, args []string, stdout, stderr io.Writer) int {
	var c cli
	helped := false
	parser, err := kong.New(&c,
		kong.Name("demo"),
		kong.Description("Shows walrelay at work: a shop, PostgreSQL, walrelay, a broker that fails, "+
			"and a count of what arrives."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 120}),
	)
	if err != nil {
		return exit(stderr, err)
	}
	_, err = parser.Parse(args)
	if helped {
		return exitOK
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "demo:", err)
		return exitUsage
	}
	if c.Unpack != "" {
		return exit(stderr, unpack(c.Unpack))
	}
	return exit(stderr, c.play(soft, hard, stdout))
}

func exit(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	if !errors.Is(err, errLoss) {
		_, _ = fmt.Fprintln(stderr, "demo:", err)
	}
	return exitError
}
