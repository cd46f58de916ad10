package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/e2e/judge"
)

// writer writes the events of its own keys, in transactions of all kinds, and enters those that are
// committed into the ledger. Whenever the connection breaks, it goes on with a new one.
type writer struct {
	w        *world
	number   int
	random   *rand.Rand
	pace     *pace
	conn     *pgx.Conn
	sequence int // of the last event, those of transactions that failed included
	pending  []*transaction
	rolled   int // events that were rolled back on purpose
	unknown  int // commits that got no answer
}

// transaction is one that is not finished yet.
type transaction struct {
	conn    *pgx.Conn // nil when it is prepared
	gid     string    // of a prepared transaction
	kept    []judge.Event
	witness string // id of a row of witnesses
	due     time.Time
}

// begin begins one on conn. Whatever the shape, there is a row then that tells afterwards whether it was committed.
func begin(ctx context.Context, conn *pgx.Conn, witness string) (*transaction, error) {
	_, err := conn.Exec(ctx, "BEGIN; INSERT INTO witnesses VALUES ('"+witness+"')")
	return &transaction{conn: conn, witness: witness}, err
}

func newWriter(w *world, number int, p *pace) *writer {
	return &writer{w: w, number: number, pace: p, random: rand.New(rand.NewPCG(w.options.seed, uint64(1000+number)))}
}

// write goes on until stop is closed, and then finishes what is pending. An error is one of the
// campaign, not of the server.
func (wr *writer) write(ctx context.Context, stop <-chan struct{}) error {
	defer func() {
		if wr.conn != nil {
			_ = wr.conn.Close(ctx)
		}
	}()
	for ctx.Err() == nil {
		select {
		case <-stop:
			return wr.finishDue(ctx, true)
		default:
		}
		if err := wr.rest(ctx); err != nil {
			return err
		}
		n, err := wr.transaction(ctx)
		if err != nil {
			return err
		}
		for wait := wr.pace.cost(n); wait > 0; wait = wr.pace.spend(ctx, wait) {
			if err := errors.Join(wr.finishDue(ctx, false), wr.rest(ctx)); err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}

// finishDue finishes what is due, or all that is pending.
func (wr *writer) finishDue(ctx context.Context, all bool) error {
	for len(wr.pending) > 0 && (all || len(wr.pending) > 3 || time.Now().After(wr.pending[0].due)) {
		if err := wr.finish(ctx); err != nil {
			return err
		}
	}
	return nil
}

// transaction inserts in one to three steps, some of which are undone, and then commits, rolls back,
// prepares, or leaves the end for later. It returns how many events were inserted.
func (wr *writer) transaction(ctx context.Context) (inserted int, err error) {
	conn := wr.connect(ctx)
	if conn == nil {
		return 0, nil
	}
	due := time.Now().Add(between(wr.random, 0, 2*time.Second))
	tx, err := begin(ctx, conn, wr.newID())
	if err == nil {
		tx.due = due
		inserted, err = wr.fill(ctx, tx)
	}
	if err != nil {
		wr.disconnect(ctx)
		return inserted, nil //nolint:nilerr // not committed, since nobody has asked for it
	}
	switch choice := wr.random.IntN(20); {
	case choice < 2 || len(tx.kept) == 0:
		wr.rolled += len(tx.kept)
		if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
			wr.disconnect(ctx)
		}
	case choice < 4:
		return inserted, wr.prepare(ctx, tx)
	case choice == 4:
		wr.pending = append(wr.pending, tx)
		wr.conn = nil // the transaction has it now
	default:
		return inserted, wr.commit(ctx, tx)
	}
	return inserted, nil
}

// fill writes events.
func (wr *writer) fill(ctx context.Context, tx *transaction) (inserted int, err error) {
	for range 1 + wr.random.IntN(3) {
		if _, err := tx.conn.Exec(ctx, "SAVEPOINT step"); err != nil {
			return inserted, err
		}
		events, err := wr.insert(ctx, tx.conn)
		if err != nil {
			return inserted, err
		}
		inserted += len(events)
		end := "RELEASE SAVEPOINT step"
		if wr.random.IntN(6) == 0 {
			end = "ROLLBACK TO SAVEPOINT step"
			wr.rolled += len(events)
		} else {
			tx.kept = append(tx.kept, events...)
		}
		if _, err := tx.conn.Exec(ctx, end); err != nil {
			return inserted, err
		}
	}
	return inserted, nil
}

// insert writes a few events mostly, now and then many, to one of the places.
func (wr *writer) insert(ctx context.Context, conn *pgx.Conn) ([]judge.Event, error) {
	var n int
	switch choice := wr.random.IntN(500); {
	case choice == 0:
		n = 1 + wr.random.IntN(5000)
	case choice < 20:
		n = 1 + wr.random.IntN(500)
	case choice < 100:
		n = 1 + wr.random.IntN(50)
	default:
		n = 1 + wr.random.IntN(5)
	}
	events := make([]judge.Event, n)
	for i := range events {
		events[i] = wr.event(n)
	}
	shape := wr.w.options.shape
	place, bucket := wr.random.IntN(len(shape.places)), wr.random.Int32N(wr.w.buckets.Load())
	return events, shape.insert(ctx, conn, place, bucket, events)
}

// event makes up an event, one of n in its transaction.
func (wr *writer) event(n int) judge.Event {
	kind := pick(wr.random, kinds...)
	e := judge.Event{ID: wr.newID(), Topic: prefix + kind}
	if kind != kinds[len(kinds)-1] || wr.random.IntN(4) == 0 {
		e.Key = fmt.Appendf(nil, "%d-%d", wr.number, wr.random.IntN(20))
	}
	size := wr.random.IntN(300)
	switch choice := wr.random.IntN(1000); {
	case choice < 10:
		return e // a tombstone
	case choice < 13 && n < 10:
		size = wr.random.IntN(100_000)
	case choice == 13 && n < 10:
		size = wr.random.IntN(900_000) // brokers take a little more than 1 MB
	}
	// The order is that of jsonb, and there is no space outside of texts: what expands JSON leaves it as it is.
	e.Value = fmt.Appendf(nil, `{"n":%d,"text":"%s","writer":%d}`, wr.sequence, strings.Repeat("lorem ipsum ", size/12),
		wr.number)
	return e
}

func (wr *writer) newID() string {
	wr.sequence++
	return eventID(wr.number, wr.sequence)
}

func eventID(writer, sequence int) string {
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", writer, sequence)
}

func parseEventID(text string) (writer, sequence int, ok bool) {
	n, _ := fmt.Sscanf(text, "%08x-0000-4000-8000-%012x", &writer, &sequence)
	return writer, sequence, n == 2
}

// connect returns the writer's connection; nil while the server is away.
func (wr *writer) connect(ctx context.Context) *pgx.Conn {
	if wr.conn == nil || wr.conn.IsClosed() {
		conn, err := wr.w.connect(ctx)
		if err != nil {
			pause(ctx, 100*time.Millisecond)
			return nil
		}
		wr.conn = conn
	}
	return wr.conn
}

func (wr *writer) disconnect(ctx context.Context) {
	_ = wr.conn.Close(ctx)
	wr.conn = nil
}

// connect opens a connection that goes past the proxy.
func (w *world) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return pgx.Connect(ctx, *w.dsn.Load())
}
