package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/sink"
)

// The levels of a finding, the same on both sides.
const (
	levelOK      = "ok"
	levelWarning = "warning"
	levelFault   = "fault"
	levelUnknown = "unknown" // could not be looked at
)

// finding is one line of a diagnosis. Its JSON is stable: fields are only added.
type finding struct {
	Side   string `json:"side"`  // postgresql or kafka
	Check  string `json:"check"` // stable id, in kebab case
	Object string `json:"object"`
	Level  string `json:"level"`
	Found  string `json:"found"`
	Why    string `json:"why"` // empty when ok
	Fix    string `json:"fix"` // empty when ok
}

// unknown is a finding that could not be had. The error is shown without the server's detail.
func (f finding) unknown(err error) finding {
	f.Level, f.Found = levelUnknown, "could not be looked at: "+cdc.Reason(err)
	f.Why, f.Fix = "what is wrong here stays unseen", "mend what is said of the connection and of privileges"
	return f
}

// diagnosis is what both sides found, in the order in which it is printed.
type diagnosis []finding

func diagnosisOf(findings []cdc.Finding) diagnosis {
	d := make(diagnosis, 0, len(findings))
	for _, f := range findings {
		d = append(d, finding{sidePostgres, f.Check, f.Object, string(f.Level), f.Found, f.Why, f.Fix})
	}
	return d
}

func brokersDiagnosis(findings []sink.Finding) diagnosis {
	d := make(diagnosis, 0, len(findings))
	for _, f := range findings {
		d = append(d, finding{sideKafka, f.Check, f.Object, string(f.Level), f.Found, f.Why, f.Fix})
	}
	return d
}

func (d diagnosis) count(level string) int {
	n := 0
	for _, f := range d {
		if f.Level == level {
			n++
		}
	}
	return n
}

func (d diagnosis) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(map[string]any{
		"findings": append(diagnosis{}, d...),
		"summary": map[string]int{
			levelOK: d.count(levelOK), levelWarning: d.count(levelWarning),
			levelFault: d.count(levelFault), levelUnknown: d.count(levelUnknown),
		},
	})
}

// writeText writes a line for each finding, and below it why it matters and what mends it.
func (d diagnosis) writeText(w io.Writer) error {
	var b strings.Builder
	for _, side := range []struct{ name, title string }{{sidePostgres, "PostgreSQL"}, {sideKafka, "Kafka"}} {
		fmt.Fprintln(&b, side.title)
		for _, f := range d {
			if f.Side != side.name {
				continue
			}
			fmt.Fprintf(&b, "  %-8s %s, %s: %s\n", f.Level, f.Check, f.Object, f.Found)
			if f.Why != "" {
				fmt.Fprintf(&b, "           why: %s\n", f.Why)
			}
			if f.Fix != "" {
				fmt.Fprintf(&b, "           fix: %s\n", f.Fix)
			}
		}
	}
	fmt.Fprintf(&b, "%d ok, %d warning, %d fault, %d unknown\n",
		d.count(levelOK), d.count(levelWarning), d.count(levelFault), d.count(levelUnknown))
	_, err := io.WriteString(w, b.String())
	return err
}

// describe tells the shape of a record. What an application wrote into key, payload and headers stays out,
// but for the names of headers, the id, the type and, if it is mapped, the timestamp.
func describe(rec sink.Record, timed bool) string {
	key := "a key"
	if rec.Key == nil {
		key = "a null key (the partition comes from the id)"
	}
	value := "a payload"
	if rec.Value == nil {
		value = "no payload (a tombstone)"
	}
	var id, kind string
	var headers []string
	for _, h := range rec.Headers {
		switch {
		case h.Name == "id":
			id = string(h.Value)
		case h.Name == "eventType":
			kind = string(h.Value)
		case !strings.HasPrefix(h.Name, "walrelay-"):
			headers = append(headers, h.Name)
		}
	}
	parts := []string{"topic " + rec.Topic, key, value, fmt.Sprintf("id %q", id)}
	if kind != "" {
		parts = append(parts, fmt.Sprintf("type %q", kind))
	}
	if len(headers) > 0 {
		parts = append(parts, "headers "+strings.Join(headers, " "))
	}
	if timed { // otherwise it will be the commit's
		parts = append(parts, "timestamp "+rec.Timestamp.UTC().Format(time.RFC3339))
	}
	return strings.Join(append(parts, fmt.Sprintf("%d bytes", rec.Size)), ", ")
}
