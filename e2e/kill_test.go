package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

const killWriters = 4

// Whatever moment walrelay is killed at, nothing is lost, invented or put in another order, and a
// consumer that drops by position has every event once.
//
// WALRELAY_E2E_EVENTS and WALRELAY_E2E_KILLS say how many; WALRELAY_E2E_SEED repeats the choices of a
// run, though not its timing.
func TestKill(t *testing.T) {
	t.Parallel()
	events, kills := fromEnv(t, "WALRELAY_E2E_EVENTS", 100_000), fromEnv(t, "WALRELAY_E2E_KILLS", 5)
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 6)
		s.killed(events, kills, func(int) {})
	})
}

// killed writes and kills, and judges. While nothing runs after a kill, meanwhile is called.
func (s *setup) killed(events, kills int, meanwhile func(n int)) *judge.Verdict {
	s.t.Helper()
	t := s.t
	seed := fromEnv(t, "WALRELAY_E2E_SEED", int(rand.Uint32()))
	t.Logf("WALRELAY_E2E_SEED=%d", seed)
	s.set("WALRELAY_BATCH_BYTES", "10000") // many batches, several in flight
	relay := s.relay()
	group, ctx := errgroup.WithContext(t.Context())
	ledger := judge.NewLedger()
	writers := make([]*writer, killWriters)
	for i := range writers {
		writers[i] = newWriter(s, ledger, i, uint64(seed))
		group.Go(func() error { return writers[i].write(ctx, events/killWriters) })
	}

	random := rand.New(rand.NewPCG(uint64(seed), killWriters)) // to be repeated
	var dead []judge.Offsets                                   // where the topic ended when walrelay had been killed
	for n := range kills {
		s.awaitKill(random, (n+1)*events/(kills+1))
		relay.Kill(t)
		dead = append(dead, s.ends(s.topic))
		meanwhile(n)
		// Every other time a window that is smaller than some transactions.
		s.set("WALRELAY_IN_FLIGHT_EVENTS", []string{"300", "65536"}[n%2])
		relay = s.start()
	}
	require.NoError(t, group.Wait())
	s.caughtUp()
	relay.Signal(t, terminate)
	require.Equal(t, 0, relay.Wait(t, wait))

	rolledBack := 0
	for _, w := range writers {
		rolledBack += w.rolledBack
	}
	v := s.judge(ledger)
	require.Equal(t, v.Committed+v.Duplicates, v.Records)
	require.GreaterOrEqual(t, v.Committed, events)
	require.NotZero(t, rolledBack)

	dead = append(dead, s.ends(s.topic))
	repeats := []int{}
	for n := range kills {
		repeats = append(repeats, v.RepeatsBetween(dead[n], dead[n+1]))
	}
	t.Logf("%d events, %d rolled back, %d kills; duplicates after each: %d", v.Committed, rolledBack, kills, repeats)
	return v
}

// awaitKill waits for a random moment: soon after the start, when walrelay connects, registers or
// begins to stream, or in the middle of delivery, once the topic has grown to a share of its size.
func (s *setup) awaitKill(random *rand.Rand, size int) {
	s.t.Helper()
	soon := time.Duration(random.IntN(1000)) * time.Millisecond
	if random.IntN(3) > 0 {
		size += random.IntN(size)/4 - size/8
		require.Eventually(s.t, func() bool {
			return s.ends(s.topic).Sum() >= int64(size)
		}, 5*wait, time.Millisecond)
		soon /= 100
	}
	timer := time.NewTimer(soon)
	defer timer.Stop()
	<-timer.C
}

func fromEnv(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text, ok := os.LookupEnv(name)
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// writer writes the events of its own keys, in transactions of all sizes, and enters what it has
// committed into the ledger.
type writer struct {
	s          *setup
	ledger     *judge.Ledger
	number     int
	random     *rand.Rand
	written    int // events, rolled back ones included
	rolledBack int
	committed  int
}

func newWriter(s *setup, ledger *judge.Ledger, number int, seed uint64) *writer {
	random := rand.New(rand.NewPCG(seed, uint64(number))) // to be repeated
	return &writer{s: s, ledger: ledger, number: number, random: random}
}

// write commits at least n events.
func (w *writer) write(ctx context.Context, n int) error {
	conn, err := w.s.db.Conn.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire connection: %w", err)
	}
	defer conn.Release()
	for w.committed < n {
		if err := w.transaction(ctx, conn.Conn()); err != nil {
			return fmt.Errorf("writer %d: %w", w.number, err)
		}
	}
	return nil
}

// transaction inserts in one to three steps, each of which may be undone, and the whole too.
func (w *writer) transaction(ctx context.Context, conn *pgx.Conn) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	var kept []judge.Event
	for range 1 + w.random.IntN(3) {
		step, err := tx.Begin(ctx) // a savepoint
		if err != nil {
			return err
		}
		events, err := w.insert(ctx, step)
		switch {
		case err != nil:
			return err
		case w.random.IntN(5) == 0:
			w.rolledBack += len(events)
			err = step.Rollback(ctx)
		default:
			kept = append(kept, events...)
			err = step.Commit(ctx)
		}
		if err != nil {
			return err
		}
	}
	if w.random.IntN(10) == 0 {
		w.rolledBack += len(kept)
		return tx.Rollback(ctx)
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	w.committed += len(kept)
	return w.ledger.Commit(kept...)
}

// insert inserts a few rows mostly, and now and then many.
func (w *writer) insert(ctx context.Context, tx pgx.Tx) ([]judge.Event, error) {
	n := 1 + w.random.IntN(10)
	if w.random.IntN(10) == 0 {
		n = 1 + w.random.IntN(1000)
	}
	events := make([]judge.Event, n)
	ids, keys, payloads := make([]string, n), make([]string, n), make([]string, n)
	for i := range events {
		w.written++
		ids[i] = eventID(w.number*1e9 + w.written)
		keys[i] = fmt.Sprintf("%d-%d", w.number, w.random.IntN(50))
		payloads[i] = fmt.Sprintf(`{"n": %d, "writer": %d}`, w.written, w.number) // as jsonb prints it
		events[i] = w.s.event(ids[i], keys[i], payloads[i])
	}
	_, err := tx.Exec(ctx, `INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT id, 'orders', key, 'created', payload
		FROM unnest($1::uuid[], $2::text[], $3::jsonb[]) AS e (id, key, payload)`,
		ids, keys, payloads)
	return events, err
}
