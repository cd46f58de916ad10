package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// How long the end may take.
const (
	drainLimit   = 30 * time.Second // for what is committed to arrive
	consumeLimit = 15 * time.Second // for the consumer to read what the broker has
)

// phase is what the demo is doing.
type phase int32

const (
	shopOpen  phase = iota
	draining        // the shop is closed, events are on their way
	finishing       // walrelay is told to stop
)

// play is a demo whose parts have been started.
type play struct {
	database *database
	broker   *broker
	relay    *relay
	consumer *consumer
	ledger   *ledger
	shop     *shop

	open    time.Duration // how long the shop is open; 0: until soft ends
	outages bool
	began   time.Time
	phase   atomic.Int32
}

// play starts everything, plays, and takes everything down again.
func (c *cli) play(soft, hard context.Context, stdout io.Writer) (err error) {
	program, err := findRelay(c.Walrelay)
	if err != nil {
		return err
	}
	h, err := openHome()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()

	say := func(format string, args ...any) { _, _ = fmt.Fprintf(stdout, format+"\n", args...) }
	name := "walrelay_demo_" + strings.ToLower(rand.Text()[:8])
	if c.DatabaseURL == "" {
		say("starting PostgreSQL %s (downloaded at the first run)", postgresVersion)
	} else {
		say("making database and slot %s, to be dropped at the end", name)
	}
	db, err := openDatabase(soft, h, name, c.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()

	if len(c.KafkaBrokers) == 0 {
		say("starting a broker in this process")
	} else {
		say("making topic %s, to be deleted at the end", name)
	}
	b, err := openBroker(soft, name, c.KafkaBrokers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()

	say("starting walrelay")
	r, err := newRelay(program, h, db, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.kill()) }()
	if err := r.start(soft); err != nil {
		return err
	}

	l := newLedger()
	reader, err := openConsumer(b, l)
	if err != nil {
		return err
	}
	defer reader.client.Close()

	s := &shop{url: db.url, rate: c.Rate, ledger: l}
	if err := s.open(soft); err != nil {
		return err
	}
	screen := newScreen(stdout)
	p := &play{database: db, broker: b, relay: r, consumer: reader, ledger: l, shop: s, began: time.Now()}
	p.open, p.outages = c.openFor(screen.terminal), b.gate != nil && !c.NoOutage
	err = p.run(soft, hard, screen)
	if loss := p.summarise(stdout); err == nil {
		err = loss
	}
	return err
}

// openFor is how long the shop is open; 0 is until a signal.
func (c *cli) openFor(terminal bool) time.Duration {
	switch {
	case c.For != nil:
		return *c.For
	case terminal:
		return 0
	default:
		return 30 * time.Second
	}
}

// run plays until the shop has closed and everything has arrived.
func (p *play) run(soft, hard context.Context, screen *screen) error {
	running, cancel := context.WithCancel(hard)
	defer cancel()
	group, ctx := errgroup.WithContext(running)
	group.Go(func() error { return p.consumer.run(ctx) })
	group.Go(func() error { return p.relay.watch(ctx) })
	group.Go(func() error { return screen.run(ctx, p.look) })
	group.Go(func() error {
		defer cancel()
		return p.acts(soft, ctx)
	})
	return group.Wait()
}

// acts are what happens, one after the other.
func (p *play) acts(soft, ctx context.Context) error {
	if err := p.trade(soft, ctx); err != nil {
		return err
	}
	p.phase.Store(int32(draining))
	// What has not arrived in time counts as lost.
	if err := await(ctx, drainLimit, func() bool { return p.ledger.totals().inFlight() == 0 }); err != nil {
		return err
	}
	p.phase.Store(int32(finishing))
	if err := p.relay.stop(); err != nil {
		return err
	}
	// From here on the topic does not grow: read it to its end, so that every duplicate is counted.
	ends, err := p.broker.ends(ctx)
	if err != nil {
		return err
	}
	return await(ctx, consumeLimit, func() bool { return p.consumer.reached(ends) })
}

// trade runs the shop, and the outages, as long as it is open.
func (p *play) trade(soft, ctx context.Context) error {
	open, shut := context.WithCancel(soft)
	defer shut()
	if p.open > 0 {
		open, shut = context.WithTimeout(open, p.open)
		defer shut()
	}
	group, ctx := errgroup.WithContext(ctx)
	// A part that fails closes the shop.
	defer context.AfterFunc(ctx, shut)()
	group.Go(func() error { return p.shop.run(open, ctx) })
	if p.outages {
		group.Go(func() error {
			p.broker.fail(open, planOutages(p.open))
			return nil
		})
	}
	return group.Wait()
}

// await waits until done says so or the time is up. It is an error only when ctx ends.
func await(ctx context.Context, limit time.Duration, done func() bool) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(limit); !done() && time.Now().Before(deadline); {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// look takes what the screen shows of this moment.
func (p *play) look(now time.Time) scene {
	s := scene{
		uptime: now.Sub(p.began), open: p.open, phase: phase(p.phase.Load()),
		postgres: p.database.version, broker: p.broker.state(now),
		tally: p.ledger.totals(), newest: p.consumer.newest(),
	}
	recent, _ := p.ledger.latencies(now)
	s.p50, s.p99 = recent.quantile(0.5), recent.quantile(0.99)
	if status := p.relay.last(); status != nil {
		s.relay, s.lagSeconds = status.Status.State, status.SecondsBehind
		if status.Lag != nil {
			s.lagBytes = &status.Lag.ConfirmedBytes
		}
	}
	return s
}
