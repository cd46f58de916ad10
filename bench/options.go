package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	args []string // as given

	events    int
	rowsPerTx []int // one series of rounds each
	rounds    int   // 0: no drain
	postgres  int   // major
	fsync     bool
	latency   time.Duration // 0: none
	warmUp    time.Duration
	rate      int // events a second
	exactly   bool
	json      bool
	timeout   time.Duration
	profile   string // directory; empty: none
}

// parseOptions writes faults and help to w.
func parseOptions(args []string, w io.Writer) (options, error) {
	o := options{args: args, rowsPerTx: []int{10, 1}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(w)
	flags.IntVar(&o.events, "events", 1_000_000, "events in the backlog of a drain")
	flags.Func("rows-per-tx", "events of a transaction; a list makes several series (default 10,1)", o.setRowsPerTx)
	flags.IntVar(&o.rounds, "rounds", 3, "rounds of a series, in each of which every contender drains once; 0: no drain")
	flags.IntVar(&o.postgres, "pg", 17, "major version of PostgreSQL, 14 to 18")
	flags.BoolVar(&o.fsync, "fsync", false, "let PostgreSQL sync to disk (fsync, full_page_writes)")
	flags.DurationVar(&o.latency, "latency", 20*time.Second, "length of the latency measurement; 0: none")
	flags.DurationVar(&o.warmUp, "warm-up", 5*time.Second, "inserts before that, which don't count")
	flags.IntVar(&o.rate, "rate", 1000, "events a second of the latency measurement")
	flags.BoolVar(&o.exactly, "exactly-once", false,
		"measure exactly-once delivery too: drains at the default cut, latency at one of 20 ms")
	flags.BoolVar(&o.json, "json", false, "print all figures as one JSON object")
	flags.DurationVar(&o.timeout, "timeout", 45*time.Minute, "limit of the whole run")
	flags.StringVar(&o.profile, "profile", "", "directory for CPU profiles of walrelay during its drains, taken by perf")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	err := o.validate(flags.NArg())
	if err != nil {
		_, _ = fmt.Fprintln(w, "bench:", err)
	}
	return o, err
}

func (o *options) setRowsPerTx(list string) error {
	o.rowsPerTx = nil
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return errors.New("must be a list of numbers, as in 10,1")
		}
		o.rowsPerTx = append(o.rowsPerTx, n)
	}
	return nil
}

func (o *options) validate(rest int) error {
	switch {
	case rest > 0:
		return errors.New("there are only flags")
	case o.events < 1 || o.events > maxEvents:
		return fmt.Errorf("--events must be 1 to %d", maxEvents)
	case o.rounds < 0:
		return errors.New("--rounds must not be negative")
	case o.latency < 0 || o.warmUp < 0:
		return errors.New("--latency and --warm-up must not be negative")
	case o.rate < 1 || o.rate > 1_000_000:
		return errors.New("--rate must be 1 to 1000000")
	default:
		return nil
	}
}
