// Command walrelay streams a PostgreSQL transactional outbox to Kafka.
//
// This package is the composition root: commands, environment, signals, exit codes. Nothing else
// reads the environment.
//
//	settings.go     every setting, declared once
//	setting.go      the kinds of settings; a wrong text is kept, not returned
//	validate.go     the rules; every fault is listed at once
//	run.go          puts the stream together
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1 // the stream or the command ended with an error
	exitUsage = 2 // wrong configuration or usage
)

// gcPercent trades a little time for memory: nearly all of the heap is what is in flight, which lives
// for milliseconds.
const gcPercent = 25

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	ctx := withSignals(context.Background(), signals, func() { os.Exit(exitError) })
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// cli is the grammar of the command line. Settings are flags of every command.
type cli struct {
	Settings `embed:""`

	Run        runCommand        `cmd:"" help:"Stream the outbox to Kafka until stopped."`
	Doctor     doctorCommand     `cmd:"" help:"Check both sides, and say what is wrong, why it matters and what mends it."`
	Config     configCommand     `cmd:"" help:"Print the effective configuration, secrets redacted."`
	Migrate    migrateCommand    `cmd:"" help:"Create or update walrelay's tables and the outbox."`
	Stream     streamCommand     `cmd:"" help:"Look at the stream and decide about events that cannot be delivered."`
	Slot       slotCommand       `cmd:"" help:"Look at the replication slot, create, drop or advance it."`
	Status     statusCommand     `cmd:"" help:"Show the stream live: state, lag, rate, slot, instances."`
	Tail       tailCommand       `cmd:"" help:"Print events as they would be published, from now on, on a temporary slot."`
	Replay     replayCommand     `cmd:"" help:"Publish rows of the outbox tables again."`
	Letters    lettersCommand    `cmd:"" name:"deadletters" help:"Events that did not reach their topic: list, redrive."`
	Partitions partitionsCommand `cmd:"" help:"Partitions of outbox tables: make those that are to come."`
	Version    versionCommand    `cmd:"" help:"Print the version."`
}

// command is what every command gets: the settings as given, not yet validated, and where to write.
type command struct {
	settings *Settings
	declared []declared
	env      environment
	stdout   io.Writer
	stderr   io.Writer
}

// requirement adds the faults of what a command cannot do without.
type requirement func(*faults)

// validate returns a usageError that lists every fault, the command's requirements included.
func (c *command) validate(requirements ...requirement) error {
	var f faults
	c.env.checkUnknown(c.declared, &f)
	c.settings.validate(c.declared, &f)
	for _, require := range requirements {
		require(&f)
	}
	return f.err()
}

func (c *command) database(f *faults) { c.settings.requireDatabase(c.env, f) }

func (c *command) brokers(f *faults) { c.settings.requireBrokers(f) }

// run is main without the process: tests call it.
func run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	variables := parseEnvironment(env)
	var c cli
	helped := false
	parser, err := kong.New(&c,
		kong.Name("walrelay"),
		kong.Description("Streams a PostgreSQL transactional outbox to Kafka.\n\n"+beginning+".\n\n"+
			"Every setting is a flag and a variable: --kafka-brokers is WALRELAY_KAFKA_BROKERS."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { helped = true }),
		kong.Resolvers(resolver(variables)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 120}),
	)
	if err != nil {
		return exit(stderr, err)
	}
	if len(args) == 0 {
		return exit(stderr, usageError{errors.New("a command is missing; `walrelay --help` lists them\n" + beginning)})
	}
	selected, err := parser.Parse(args)
	if helped {
		return exitOK
	}
	if err != nil {
		return exit(stderr, usageError{errors.New(withoutURLs(err.Error(), args) + "; `walrelay --help` shows how")})
	}
	selected.BindTo(ctx, (*context.Context)(nil))
	return exit(stderr, interrupted(ctx, selected.Run(&command{
		settings: &c.Settings, declared: declaredIn(parser.Model), env: variables, stdout: stdout, stderr: stderr,
	})))
}

// beginning is what somebody needs who starts walrelay for the first time.
const beginning = "To begin, set WALRELAY_DATABASE_URL and WALRELAY_KAFKA_BROKERS; then `walrelay doctor` says " +
	"what is missing, `walrelay migrate up` makes the tables, and `walrelay run` streams"

// withoutURLs hides arguments that may be a database's URL, with its password, where no argument was expected.
func withoutURLs(text string, args []string) string {
	for _, arg := range args {
		if strings.Contains(arg, "://") {
			text = strings.ReplaceAll(text, arg, redacted)
		}
	}
	return text
}

// exit tells the user why and picks the exit code.
func exit(stderr io.Writer, err error) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		_, _ = fmt.Fprintln(stderr, "walrelay:", err)
		return exitUsage
	case errors.Is(err, errLogged), errors.Is(err, errFaults):
		return exitError
	default:
		_, _ = fmt.Fprintln(stderr, "walrelay:", err)
		return exitError
	}
}

// errLogged ends a command whose error its own logger has written.
var errLogged = errors.New("the error is in the log")
