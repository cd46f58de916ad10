package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pglogrepl"
)

// loss is a fault by which PostgreSQL sends for ever less than what is committed. walrelay must say so
// and wait for the operator.
type loss struct {
	away   bool // walrelay cannot reach the server meanwhile
	harm   func(ctx context.Context, w *world) error
	mend   func(ctx context.Context, w *world) error // before the operator's word
	keeps  bool                                      // what is written once it is mended is kept
	unslot bool                                      // the slot has to go
}

// strike lets writers write between harm and mend, and excuses exactly that. Everything before is
// delivered by then, and no transaction is open at either end.
func (l loss) strike(ctx context.Context, w *world, hold func()) error {
	if _, err := w.relays.active(ctx); err != nil {
		return err
	}
	defer w.gate.open()
	if err := w.gate.shut(ctx); err != nil {
		return err
	}
	if err := w.settled(ctx, stepLimit); err != nil {
		return err
	}
	back, err := w.separate(l.away)
	if err != nil {
		return err
	}
	before, err := w.epoch(ctx)
	if err != nil {
		return err
	}
	if err := l.harm(ctx, w); err != nil {
		return err
	}
	g := gap{w: w, first: w.ledger.Len()}
	if g.begin, err = w.position(ctx); err != nil {
		return err
	}
	w.gate.open()
	hold()
	if err := w.gate.shut(ctx); err != nil {
		return err
	}
	g.last = w.ledger.Len()
	if g.end, err = w.position(ctx); err != nil {
		return err
	}
	if err := l.mend(ctx, w); err != nil {
		return err
	}
	if l.keeps {
		w.gate.open()
	}
	if err := back(); err != nil {
		return err
	}
	if err := g.stated(ctx); err != nil {
		return err
	}
	return g.accept(ctx, l.unslot, before)
}

// separate keeps walrelay from the server, or not, in one of several ways. The result undoes that.
func (w *world) separate(away bool) (back func() error, err error) {
	ways := []string{"cut off", "stopped", "running"}
	if away {
		ways = ways[:2]
	}
	way := pick(w.random, ways...)
	w.t.Logf("        walrelay is %s", way)
	switch way {
	case "cut off":
		w.postgres.cut()
		return w.postgres.mend, nil
	case "stopped":
		var ran []int
		for i, in := range w.relays.two {
			if in.done == nil {
				continue
			}
			ran = append(ran, i)
			if err := w.relays.stop(i); err != nil {
				return nil, err
			}
		}
		return func() error {
			for _, i := range ran {
				w.relays.start(i)
			}
			return nil
		}, nil
	default:
		return func() error { return nil }, nil
	}
}

// gap is what was committed in vain.
type gap struct {
	w           *world
	first, last int           // in the ledger, without the last
	begin, end  pglogrepl.LSN // in the log
	command     []string      // that walrelay recommends
}

// gapText is how walrelay states a gap.
var gapText = regexp.MustCompile(`rows committed between ([0-9A-F/]+) and ([0-9A-F/]+) may be missing`)

// commandText is the command that it recommends.
var commandText = regexp.MustCompile("`walrelay (stream new-epoch [^`]+)`")

// stated waits for walrelay to end with a message that names the whole gap, which is excused then.
func (g *gap) stated(ctx context.Context) error {
	if !await(ctx, stepLimit, func(context.Context) bool { return g.read() }) {
		return fmt.Errorf("walrelay does not state that rows between %s and %s are missing", g.begin, g.end)
	}
	g.w.ledger.Gap(g.first, g.last)
	return nil
}

// read looks for messages of a gap, which are foreseen, and says whether one names all of this one.
func (g *gap) read() (whole bool) {
	for _, f := range g.w.relays.fatals() {
		command := commandText.FindStringSubmatch(f.message)
		if command == nil || !strings.Contains(f.message, "may be missing") {
			continue
		}
		g.w.relays.foreseen[f.process] = true
		stated := gapText.FindStringSubmatch(f.message)
		if stated == nil {
			continue
		}
		from, fromErr := pglogrepl.ParseLSN(stated[1])
		to, toErr := pglogrepl.ParseLSN(stated[2])
		if errors.Join(fromErr, toErr) == nil && from <= g.begin && to >= g.end {
			whole = true
			g.command = strings.Fields(command[1])
		}
	}
	return whole
}

// accept is the operator's part, as docs/operations.md has it. From the end of it on everything is
// delivered again, in a new epoch.
func (g *gap) accept(ctx context.Context, unslot bool, before int) error {
	if unslot {
		if err := g.w.dropSlot(ctx); err != nil {
			return err
		}
	}
	g.w.relays.command(g.w.t, g.command...)
	if _, err := g.w.relays.active(ctx); err != nil {
		return err
	}
	if err := g.w.settled(ctx, recoveryLimit); err != nil { // the slot is complete
		return err
	}
	g.read() // of those that ended in between
	after, err := g.w.epoch(ctx)
	if err == nil && after <= before {
		err = fmt.Errorf("epoch %d follows epoch %d", after, before)
	}
	return err
}

// position is the end of the log.
func (w *world) position(ctx context.Context) (lsn pglogrepl.LSN, err error) {
	err = w.db.Conn.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&lsn)
	return lsn, err
}

// epoch is the stream's, as registered.
func (w *world) epoch(ctx context.Context) (epoch int, err error) {
	err = w.db.Conn.QueryRow(ctx, "SELECT epoch FROM walrelay.streams WHERE name = $1", slot).Scan(&epoch)
	return epoch, err
}
