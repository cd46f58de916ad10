package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"
)

// options say what the campaign is to do.
type options struct {
	duration time.Duration // of the faults and the writers; settling and judging come on top
	kinds    int           // of faults that strike at least, however long that takes
	events   int           // that are committed at least, likewise
	seed     uint64
	faults   []*fault
	postgres int // major
	delivery string
	shape    *shape
	rate     int // events a second, on average
	json     bool
	logs     string // directory for the logs of walrelay; empty: nowhere
}

const exactlyOnce = "exactly-once"

func parseOptions(args []string, stderr io.Writer) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("campaign", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&o.duration, "for", 2*time.Minute, "how long to write and to break things")
	flags.Uint64Var(&o.seed, "seed", rand.Uint64N(1_000_000), "repeats the choices of a campaign")
	flags.IntVar(&o.postgres, "pg", 18, "PostgreSQL major, 14 to 18")
	flags.StringVar(&o.delivery, "delivery", "at-least-once", "at-least-once or "+exactlyOnce)
	shapeName := flags.String("shape", shapes()[0].name, "how events are written and what becomes of them")
	flags.IntVar(&o.rate, "rate", 1000, "events a second, on average")
	flags.BoolVar(&o.json, "json", false, "print the report as JSON")
	flags.StringVar(&o.logs, "logs", "", "directory to leave the logs of walrelay in")
	names := flags.String("faults", "", "comma-separated faults or groups of them; default: all but those marked")
	flags.Usage = func() {
		_, _ = fmt.Fprintln(stderr, "Usage of campaign:")
		flags.PrintDefaults()
		_, _ = fmt.Fprintln(stderr, "Shapes:")
		for _, s := range shapes() {
			_, _ = fmt.Fprintf(stderr, "  %-12s %s\n", s.name, s.about)
		}
		_, _ = fmt.Fprintln(stderr, "Faults:")
		for _, f := range allFaults() {
			mark := ""
			if f.onlyByName {
				mark = " (only by name)"
			} else if f.since > 0 {
				mark = fmt.Sprintf(" (PostgreSQL %d and later)", f.since)
			}
			_, _ = fmt.Fprintf(stderr, "  %-10s %-26s %s%s\n", f.group, f.name, f.about, mark)
		}
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.shape, err = selectShape(*shapeName); err == nil {
		o.faults, err = selectFaults(*names)
	}
	if err == nil && (flags.NArg() > 0 || o.duration <= 0 || o.rate <= 0) {
		err = errors.New("see --help")
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "campaign:", err)
	}
	return o, err
}

// selectFaults picks faults by their names and groups.
func selectFaults(names string) ([]*fault, error) {
	var selected []*fault
	if names == "" {
		for _, f := range allFaults() {
			if !f.onlyByName {
				selected = append(selected, f)
			}
		}
		return selected, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		found := false
		for _, f := range allFaults() {
			if f.name == name || f.group == name && !f.onlyByName {
				selected, found = append(selected, f), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no fault is called %q", name)
		}
	}
	return selected, nil
}
