package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// report is everything measured.
type report struct {
	Machine machine        `json:"machine"`
	Setup   setup          `json:"setup"`
	Drain   []drainSeries  `json:"drain"`
	Latency *latencyResult `json:"latency"` // null when it was left out
	// ExactlyOnceLatency is null unless it was asked for.
	ExactlyOnceLatency *latencyResult `json:"exactly_once_latency,omitempty"`
}

func (r *report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

func (r *report) writeTable(w io.Writer) error {
	var b strings.Builder
	r.head(&b)
	for i := range r.Drain {
		r.Drain[i].table(&b)
	}
	if r.Latency != nil {
		r.Latency.table(&b, "")
	}
	if r.ExactlyOnceLatency != nil {
		r.ExactlyOnceLatency.table(&b, fmt.Sprintf(", exactly-once with transactions cut every %v", latencyCut))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *report) head(w io.Writer) {
	m, s := r.Machine, r.Setup
	receive := s.PgRecvlogical
	if receive == "" {
		receive = "missing, so there are no ratios"
	}
	for _, line := range [][2]string{
		{"command", s.Command},
		{"machine", fmt.Sprintf("%d cores, %s, %d GiB, Linux %s, load average %s before the run",
			m.Cores, m.CPU, m.MemoryBytes>>30, m.Kernel, m.LoadAverage)},
		{"walrelay", strings.TrimPrefix(s.Walrelay, "walrelay ") + ", default settings"},
		{"pg_recvlogical", strings.TrimPrefix(receive, "pg_recvlogical ")},
		{"PostgreSQL", fmt.Sprintf("%s over TCP, fsync %s, full_page_writes %s, synchronous_commit %s",
			s.PostgreSQL, s.Fsync, s.FullPageWrites, s.SynchronousCommit)},
		{"Kafka", fmt.Sprintf("%s, 1 broker, %d partitions, acks=all", s.Kafka, s.Partitions)},
	} {
		_, _ = fmt.Fprintf(w, "%-15s %s\n", line[0], line[1])
	}
}

func (s *drainSeries) table(w io.Writer) {
	_, _ = fmt.Fprintf(w, "\nDrain: %d events of %.0f bytes, %d a transaction\n", s.Events, s.PayloadBytes, s.RowsPerTx)
	columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(columns, "round\t\tseconds\tevents/s\tCPU s/million\tpeak MB\t"+
		"CPU s of walsender\tKafka\tstrangers\t\n")
	relay := func(number, name string, r *drainResult) {
		_, _ = fmt.Fprintf(columns, "%s\t%s\t%.2f\t%.0f\t%.2f\t%.1f\t%.2f\t%.2f\t%.2f\t\n",
			number, name, r.Seconds, r.EventsPerSecond, r.CPUSecondsPerMillion, float64(r.PeakRSSBytes)/1e6,
			r.ServerCPUSeconds, r.BrokerCPUSeconds, r.strangers())
	}
	for i, round := range s.Rounds {
		relay(strconv.Itoa(i+1), relayName, &round.Walrelay)
		if round.ExactlyOnce != nil {
			relay("", exactlyName, round.ExactlyOnce)
		}
		if r := round.PgRecvlogical; r != nil {
			_, _ = fmt.Fprintf(columns, "\t%s\t%.2f\t%.0f\t%.2f\t\t%.2f\t\t%.2f\t\n",
				receiveName, r.Seconds, r.EventsPerSecond, r.CPUSecondsPerMillion, r.ServerCPUSeconds, r.strangers())
		}
	}
	_ = columns.Flush()
	line := func(name string, total *spread, of func(drainRound) float64) {
		if total == nil {
			return
		}
		_, _ = fmt.Fprintf(w, "%s:", name)
		for _, round := range s.Rounds {
			_, _ = fmt.Fprintf(w, " %.2f", of(round))
		}
		_, _ = fmt.Fprintf(w, "; min %.2f, median %.2f, max %.2f\n", total.Min, total.Median, total.Max)
	}
	line("walrelay / pg_recvlogical", s.Ratio, func(r drainRound) float64 { return r.Ratio })
	line("exactly-once / at-least-once", s.ExactlyOnceRatio, func(r drainRound) float64 { return r.ExactlyOnceRatio })
}

func (l *latencyResult) table(w io.Writer, mode string) {
	_, _ = fmt.Fprintf(w, "\nLatency: %d events at %.0f/s (%d asked), 1 a transaction, %d connections%s\n",
		l.Events, l.Rate, l.RateAsked, inserters, mode)
	columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(columns, "milliseconds\tp50\tp90\tp99\tmax\t\n")
	for _, line := range []struct {
		name string
		p    percentiles
	}{
		{"before INSERT is sent to consumed", l.InsertToConsume},
		{"after commit returned to consumed", l.CommitToConsume},
	} {
		p := line.p
		_, _ = fmt.Fprintf(columns, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t\n", line.name, p.P50, p.P90, p.P99, p.Max)
	}
	_ = columns.Flush()
}
