package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/walrelay/walrelay/testenv"
)

// drainSeries is the rounds over one backlog.
type drainSeries struct {
	RowsPerTx    int          `json:"rows_per_tx"`
	Events       int          `json:"events"`
	PayloadBytes float64      `json:"payload_bytes"` // average
	Rounds       []drainRound `json:"rounds"`
	Ratio        *spread      `json:"ratio"` // null without pg_recvlogical
	// ExactlyOnceRatio is null unless it was asked for.
	ExactlyOnceRatio *spread `json:"exactly_once_ratio,omitempty"`
}

// drainRound is one drain by each contender, right after each other.
type drainRound struct {
	Walrelay      drainResult  `json:"walrelay"`
	PgRecvlogical *drainResult `json:"pg_recvlogical"` // null when it is missing
	// Ratio of the events a second, walrelay's through pg_recvlogical's.
	Ratio float64 `json:"ratio,omitempty"`
	// ExactlyOnce is walrelay in that mode; null unless asked for. Its ratio is through the other mode's.
	ExactlyOnce      *drainResult `json:"exactly_once,omitempty"`
	ExactlyOnceRatio float64      `json:"exactly_once_ratio,omitempty"`
}

// drainResult is what a drain took. Broker, memory and counts are walrelay's only.
type drainResult struct {
	Seconds              float64 `json:"seconds"`
	EventsPerSecond      float64 `json:"events_per_second"`
	CPUSeconds           float64 `json:"cpu_seconds"`
	CPUSecondsPerMillion float64 `json:"cpu_seconds_per_million"`
	PeakRSSBytes         int64   `json:"peak_rss_bytes,omitempty"`
	Delivered            int     `json:"delivered,omitempty"` // records
	Distinct             int     `json:"distinct,omitempty"`  // different events among them

	// What others used meanwhile, without which a ratio cannot be understood on few cores:
	// PostgreSQL's processes for this drain, the broker, and the whole machine.
	ServerCPUSeconds  float64 `json:"server_cpu_seconds"`
	BrokerCPUSeconds  float64 `json:"broker_cpu_seconds,omitempty"`
	MachineCPUSeconds float64 `json:"machine_cpu_seconds"`
}

// strangers is what processes outside of the measurement used, so how far it was disturbed.
func (r *drainResult) strangers() float64 {
	return max(0, r.MachineCPUSeconds-r.CPUSeconds-r.ServerCPUSeconds-r.BrokerCPUSeconds)
}

type spread struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// settle is how long the servers get to calm down after each contender.
const settle = 2 * time.Second

// contender is a program that drains slots, one a round.
type contender struct {
	name  string
	slots []string
	run   func(ctx context.Context, task drainTask) (drainResult, error)
}

type drainTask struct {
	db      *testenv.Database
	slot    string
	end     string // position behind the backlog
	exactly bool   // exactly-once delivery
	profile string // file for walrelay's CPU profile; empty: none
}

const (
	relayName   = "walrelay"
	exactlyName = "exactly-once"
	receiveName = "pg_recvlogical"
)

// drain fills a backlog and lets the contenders drain it, each with a slot of its own for every
// round, made before: so all of them read the same log.
func (b *bench) drain(ctx context.Context, rows int) (drainSeries, error) {
	series := drainSeries{RowsPerTx: rows, Events: b.options.events}
	db, err := b.database(ctx)
	if err != nil {
		return series, err
	}
	contenders := []contender{{name: relayName, run: b.drainRelay}}
	if b.receive != "" {
		contenders = append(contenders, contender{name: receiveName, run: b.drainReceive})
	}
	if b.options.exactly {
		contenders = append(contenders, contender{name: exactlyName, run: b.drainRelay})
	}
	for i := range contenders {
		if contenders[i].slots, err = b.createSlots(ctx, db); err != nil {
			return series, err
		}
	}
	log, err := b.fill(ctx, db, rows)
	if err != nil {
		return series, err
	}
	series.PayloadBytes = log.payloadBytes

	for i := range b.options.rounds {
		results := map[string]drainResult{}
		for _, c := range contenders {
			task := drainTask{db: db, slot: c.slots[i], end: log.end, exactly: c.name == exactlyName}
			if b.options.profile != "" {
				name := fmt.Sprintf("drain-%d-rows-round-%d.perf", rows, i+1)
				task.profile = filepath.Join(b.options.profile, name)
			}
			if results[c.name], err = b.contend(ctx, c, task); err != nil {
				return series, fmt.Errorf("run %s in round %d: %w", c.name, i+1, err)
			}
		}
		series.Rounds = append(series.Rounds, newRound(results))
		slices.Reverse(contenders) // neither always comes first
	}
	if b.receive != "" {
		series.Ratio = ratios(series.Rounds, func(r drainRound) float64 { return r.Ratio })
	}
	if b.options.exactly {
		series.ExactlyOnceRatio = ratios(series.Rounds, func(r drainRound) float64 { return r.ExactlyOnceRatio })
	}
	return series, nil
}

// contend runs one contender on calm servers, works out its rates and drops its slot.
func (b *bench) contend(ctx context.Context, c contender, task drainTask) (drainResult, error) {
	before, err := cpuOfChildren(b.server.PID())
	if err != nil {
		return drainResult{}, err
	}
	result, err := c.run(ctx, task)
	if err != nil {
		return drainResult{}, err
	}
	events := float64(b.options.events)
	result.EventsPerSecond = events / result.Seconds
	result.CPUSecondsPerMillion = result.CPUSeconds / events * 1e6
	b.t.Logf("%s: %.0f events/s", c.name, result.EventsPerSecond)
	if err := dropSlot(ctx, task.db, task.slot); err != nil {
		return drainResult{}, err
	}
	if err := pause(ctx, settle); err != nil {
		return drainResult{}, err
	}
	after, err := cpuOfChildren(b.server.PID()) // of which the walsender is one, by now
	result.ServerCPUSeconds = (after - before).Seconds()
	return result, err
}

func newRound(results map[string]drainResult) drainRound {
	round := drainRound{Walrelay: results[relayName]}
	if receive, ok := results[receiveName]; ok {
		round.PgRecvlogical = &receive
		round.Ratio = round.Walrelay.EventsPerSecond / receive.EventsPerSecond
	}
	if exactly, ok := results[exactlyName]; ok {
		round.ExactlyOnce = &exactly
		round.ExactlyOnceRatio = exactly.EventsPerSecond / round.Walrelay.EventsPerSecond
	}
	return round
}

func ratios(rounds []drainRound, of func(drainRound) float64) *spread {
	sorted := make([]float64, len(rounds))
	for i, round := range rounds {
		sorted[i] = of(round)
	}
	slices.Sort(sorted)
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + median) / 2
	}
	return &spread{Min: sorted[0], Median: median, Max: sorted[len(sorted)-1]}
}
