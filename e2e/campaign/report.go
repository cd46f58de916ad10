package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/walrelay/walrelay/e2e/judge"
)

// report is what a campaign has found.
type report struct {
	Seed       uint64        `json:"seed"`
	Shape      string        `json:"shape"`
	Postgres   string        `json:"postgres"`
	Delivery   string        `json:"delivery"`
	Duration   time.Duration `json:"duration_ns"`
	Faults     []*tally      `json:"faults"`
	RolledBack int           `json:"rolled_back"`
	Unknown    int           `json:"commits_without_answer"`
	Starts     int           `json:"relay_starts"`
	Exits      map[int]int   `json:"relay_exits_by_code"` // -1: by a signal
	Committed  int           `json:"committed"`
	Delivered  int           `json:"delivered"`
	Lost       int           `json:"lost"`
	Phantom    int           `json:"phantom"`
	Reordered  int           `json:"reordered"`
	Duplicated int           `json:"duplicated"`
	Renewed    int           `json:"duplicated_by_new_epoch"`
	Gaps       int           `json:"interrupted_repeats"`
	Excused    int           `json:"excused"` // of a deleted topic, or of a gap that was stated
	AfterDedup int           `json:"after_dedup"`
	Verdict    string        `json:"verdict"`
}

// tally is what one kind of fault has done.
type tally struct {
	Name       string        `json:"name"`
	Times      int           `json:"times"`
	Longest    time.Duration `json:"longest_recovery_ns"`
	Duplicates int           `json:"duplicates"`
}

// episode is one fault that struck.
type episode struct {
	fault    *fault
	recovery time.Duration // from the end of the fault until events flowed
	before   judge.Offsets // where the topics ended when it began
}

// add enters the verdict and what the episodes had to do with it.
func (r *report) add(v *judge.Verdict, episodes []episode, end judge.Offsets) {
	r.Committed, r.Delivered = v.Committed, v.Delivered
	r.Lost, r.Phantom = v.Count(judge.Lost), v.Count(judge.Phantom)
	r.Reordered = v.Count(judge.Reordered, judge.MovedKey, judge.PositionFell)
	r.Duplicated, r.Renewed, r.Gaps = v.Duplicates, v.Renewed, v.Count(judge.GapInRepeat)
	r.Excused, r.AfterDedup, r.Verdict = v.Excused, v.AfterDedup(), v.String()
	for _, f := range allFaults() {
		t := &tally{Name: f.name}
		for i, e := range episodes {
			if e.fault.name != f.name {
				continue
			}
			next := end
			if i+1 < len(episodes) {
				next = episodes[i+1].before
			}
			t.Times++
			t.Longest = max(t.Longest, e.recovery)
			t.Duplicates += v.RepeatsBetween(e.before, next)
		}
		if t.Times > 0 {
			r.Faults = append(r.Faults, t)
		}
	}
}

// writeTable ends with the verdict in one line.
func (r *report) writeTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "fault\ttimes\tlongest recovery\tduplicates")
	for _, t := range r.Faults {
		_, _ = fmt.Fprintf(table, "%s\t%d\t%.1fs\t%d\n", t.Name, t.Times, t.Longest.Seconds(), t.Duplicates)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	var exits []string
	for code, n := range r.Exits {
		exits = append(exits, fmt.Sprintf("%d with %d", n, code))
	}
	slices.Sort(exits)
	_, err := fmt.Fprintf(w, `
seed %d, %s, PostgreSQL %s, %s, %v
rolled back %d events; %d commits without an answer; %d starts of walrelay, exits: %v
%d duplicates came with a new epoch; %d repeats were interrupted; %d events are excused
%s
`, r.Seed, r.Shape, r.Postgres, r.Delivery, r.Duration.Round(time.Second), r.RolledBack, r.Unknown, r.Starts, exits,
		r.Renewed, r.Gaps, r.Excused, r.Verdict)
	return err
}

func (r *report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
