package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/walrelay/walrelay/e2e/judge"
)

const (
	// stepLimit is for what takes a moment on a machine that is not busy. It only says what hangs.
	stepLimit = 5 * time.Minute
	// recoveryLimit is for events to flow again once a fault is over, on a busy machine and with the
	// backlog before them.
	recoveryLimit = 5 * time.Minute
	// settleLimit is for everything to be delivered and confirmed in the end.
	settleLimit = 10 * time.Minute
)

// campaign writes, breaks and judges. It fails t for every fault of walrelay. The report is nil when
// it did not come to a verdict.
func campaign(ctx context.Context, t testing.TB, opts options) *report {
	t.Helper()
	t.Logf("seed %d, %s, PostgreSQL %d, %s, for %v",
		opts.seed, opts.shape.name, opts.postgres, opts.delivery, opts.duration)
	if opts.faults = possible(opts.faults, opts.postgres, t.Logf); len(opts.faults) == 0 {
		t.Fatalf("no fault is left")
	}
	w := newWorld(t, opts)
	if opts.logs != "" {
		defer func() {
			if err := w.relays.writeLogs(opts.logs); err != nil {
				t.Errorf("%v", err)
			}
		}()
	}
	defer w.relays.stopAll()
	w.relays.start(0)
	p, err := newPulse(w)
	if err != nil {
		t.Fatalf("%v", err)
	}
	watching, stopWatching := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		p.watch(watching)
	}()
	defer func() {
		stopWatching()
		<-watched
	}()
	if _, err := w.relays.active(ctx); err != nil { // before that there is no slot
		t.Fatalf("start: %v", err)
	}

	load := startWorkload(ctx, w, p)
	episodes, struck := w.breakThings(ctx, p)
	ended := load.end()
	if err := errors.Join(struck, ended); err != nil {
		t.Errorf("%v", err)
	}
	if ctx.Err() != nil {
		return nil
	}
	return w.judge(ctx, load, episodes)
}

// breakThings lets faults strike for the campaign's duration.
func (w *world) breakThings(ctx context.Context, p *pulse) ([]episode, error) {
	start := time.Now()
	if _, err := p.flows(ctx, recoveryLimit); err != nil {
		return nil, fmt.Errorf("at the start: %w", err)
	}
	var episodes []episode
	cards := &deck{faults: w.options.faults, random: rand.New(rand.NewPCG(w.options.seed, 2))}
	struck := map[string]bool{}
	for ctx.Err() == nil && (time.Since(start) < w.options.duration || len(struck) < w.options.kinds ||
		w.ledger.Len() < w.options.events) {
		pause(ctx, between(w.random, 0, 3*time.Second))
		if err := w.changeInstances(); err != nil {
			return episodes, err
		}
		f := cards.next()
		e := episode{fault: f}
		if !await(ctx, stepLimit, func(ctx context.Context) bool {
			var err error
			e.before, err = judge.EndOffsets(ctx, w.cluster.Admin, w.topics...)
			return err == nil
		}) {
			return episodes, errors.New("end offsets cannot be listed")
		}
		length := between(w.random, f.least, f.most)
		began := time.Now()
		w.t.Logf("%6.1fs %s for %v, streaming: %s",
			began.Sub(start).Seconds(), f.name, length.Round(time.Millisecond), w.who(ctx))
		if err := f.strike(ctx, w, func() { w.hold(ctx, f, length) }); err != nil {
			return episodes, fmt.Errorf("%s: %w", f.name, err)
		}
		var err error
		lasted := time.Since(began)
		if e.recovery, err = p.flows(ctx, recoveryLimit); err != nil {
			return episodes, fmt.Errorf("after %s: %w", f.name, err)
		}
		w.t.Logf("        lasted %.1fs, recovered in %.1fs", lasted.Seconds(), e.recovery.Seconds())
		struck[f.name] = true
		episodes = append(episodes, e)
	}
	return episodes, nil
}

// hold lets a fault last. Now and then one more thing goes wrong meanwhile: walrelay is
// killed, stopped or disconnected too.
func (w *world) hold(ctx context.Context, f *fault, length time.Duration) {
	if f.group == "relay" || w.random.IntN(2) > 0 {
		pause(ctx, length)
		return
	}
	part := between(w.random, length/2, length) // by then events wait, when it is Kafka that is broken
	pause(ctx, part)
	if _, pid := w.streaming(ctx); pid != 0 && w.random.IntN(4) == 0 {
		w.t.Logf("        meanwhile the walsender ends")
		_, _ = w.db.Conn.Exec(ctx, "SELECT pg_terminate_backend($1)", pid) // it may be gone by itself
	} else {
		sig := pick(w.random, syscall.SIGKILL, syscall.SIGTERM)
		w.t.Logf("        meanwhile %v", sig)
		for _, in := range w.relays.two {
			in.signal(sig)
		}
	}
	pause(ctx, length-part)
}

// changeInstances starts or stops a second instance now and then.
func (w *world) changeInstances() error {
	if w.random.IntN(3) > 0 {
		return nil
	}
	for i, in := range w.relays.two {
		if in.done == nil {
			w.relays.start(i)
			return nil
		}
	}
	return w.relays.stop(w.random.IntN(2))
}

func (w *world) who(ctx context.Context) string {
	name, _ := w.streaming(ctx)
	if name == "" {
		return "nobody"
	}
	return name
}

// marked waits for the markers of Kafka's transactions, which come to each partition some time after a commit is
// answered: without its own an event is not to be seen.
func (w *world) marked(ctx context.Context) bool {
	return await(ctx, settleLimit, func(ctx context.Context) bool {
		stable, err := w.cluster.Admin.ListCommittedOffsets(ctx, w.topics...)
		if err != nil || stable.Error() != nil {
			return false
		}
		ends, err := w.cluster.Admin.ListEndOffsets(ctx, w.topics...)
		open := err != nil || ends.Error() != nil
		ends.Each(func(end kadm.ListedOffset) {
			last, _ := stable.Lookup(end.Topic, end.Partition)
			open = open || last.Offset < end.Offset
		})
		return !open
	})
}

// judge lets everything settle, stops walrelay and compares.
func (w *world) judge(ctx context.Context, load *workload, episodes []episode) *report {
	if err := w.settled(ctx, settleLimit); err != nil {
		w.t.Errorf("settle: %v", err) // and judge all the same
	}
	w.relays.stopAll()
	if sql := w.options.shape.remark; sql != "" {
		var remark string
		if err := w.db.Conn.QueryRow(ctx, sql).Scan(&remark); err != nil {
			w.t.Errorf("remark: %v", err)
		}
		w.t.Logf("%s", remark)
	}
	for _, fault := range append(w.relays.crashes(), w.relays.unforeseen()...) {
		w.t.Errorf("%s", fault)
	}
	r := &report{
		Seed: w.options.seed, Shape: w.options.shape.name,
		Postgres: fmt.Sprintf("%d.%d", w.server.Version/10000, w.server.Version%10000),
		Delivery: w.options.delivery, Duration: w.options.duration, Exits: map[int]int{},
	}
	for _, wr := range append(load.writers, load.pulse.writer) {
		r.RolledBack += wr.rolled
		r.Unknown += wr.unknown
	}
	for _, in := range w.relays.two {
		r.Starts += len(in.ended)
		for code, n := range in.exits {
			r.Exits[code] += n
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*settleLimit)
	defer cancel()
	if w.options.delivery == exactlyOnce && !w.marked(ctx) {
		w.t.Errorf("a transaction of Kafka stays open")
	}
	verdict, err := judge.Topics(ctx, judge.Source{
		Brokers: w.cluster.Addrs(), Topics: w.topics, Committed: w.options.delivery == exactlyOnce,
		Form: w.options.shape.form,
	}, w.ledger)
	if err != nil {
		w.t.Fatalf("judge: %v", err)
	}
	end, err := judge.EndOffsets(ctx, w.cluster.Admin, w.topics...)
	if err != nil {
		w.t.Fatalf("list end offsets: %v", err)
	}
	// A request that the network or a stopped process delays is the late write of a zombie, too.
	if err := verdict.Err(judge.GapInRepeat); err != nil {
		w.t.Errorf("%v", err)
	}
	if n := len(verdict.Timelines); n != w.failovers+1 {
		w.t.Errorf("positions have %d timelines after %d failovers", n, w.failovers)
	}
	if w.options.delivery == exactlyOnce && verdict.Duplicates > 0 {
		w.t.Errorf("%d duplicates in spite of exactly-once", verdict.Duplicates)
	}
	r.add(verdict, episodes, end)
	return r
}
