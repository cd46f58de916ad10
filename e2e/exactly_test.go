package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"golang.org/x/sync/errgroup"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// The same kills as in TestKill, and the broker too: a consumer that reads what is committed has every
// event once.
func TestExactlyOnce_Kill(t *testing.T) {
	t.Parallel()
	events, kills := fromEnv(t, "WALRELAY_E2E_EVENTS", 20_000), fromEnv(t, "WALRELAY_E2E_KILLS", 4)
	cluster := testenv.StartKafka(t, testenv.KafkaConfig{})
	s := newExactly(t, testenv.Postgres(t, lastMajor()), cluster, 6)
	v := s.killed(events, kills, func(n int) {
		if n == 1 {
			cluster.KillBroker(t, 0)
			cluster.StartBroker(t, 0)
		}
	})
	require.Zero(t, v.Duplicates)
	x := s.kafkaTransactions(s.topic)
	x.whole(t)
	t.Logf("%d transactions of %d producers; %d records were aborted", len(x.states), len(x.producers()), x.aborted)
}

// A transaction of PostgreSQL whose events go to three topics is in one of Kafka, whatever moment walrelay
// is killed at.
func TestExactlyOnce_Whole(t *testing.T) {
	t.Parallel()
	const kills = 5
	s := newExactly(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 2)
	aggregates := []string{"orders", "payments", "parcels"}
	topics := []string{s.topic}
	for _, a := range aggregates[1:] {
		s.cluster.CreateTopic(t, s.prefix+a, 2, nil)
		topics = append(topics, s.prefix+a)
	}
	s.set("WALRELAY_TRANSACTION_INTERVAL", "20ms") // many ends of transactions to kill it at
	relay := s.relay()
	ledger := judge.NewLedger()
	ctx, stop := context.WithCancel(t.Context())
	committed := make(chan []int, 1)
	go func() {
		var sizes []int
		for ctx.Err() == nil {
			// Up to what takes a while to arrive, so that some end of a transaction of Kafka comes meanwhile.
			size := len(aggregates) * (1 + len(sizes)*37%400)
			if s.across(aggregates, size, ledger) != nil {
				break
			}
			sizes = append(sizes, size)
		}
		committed <- sizes
	}()
	for n := range kills {
		s.grows(1000)
		s.during(time.Duration(n)*7*time.Millisecond, func() {})
		relay.Kill(t)
		relay = s.relay()
	}
	stop()
	want := <-committed
	s.caughtUp()
	s.stop(relay)

	v := s.verdict(ledger, topics...)
	require.NoError(t, v.Err())
	require.Zero(t, v.Duplicates)
	x := s.kafkaTransactions(topics...)
	sizes := slices.Sorted(maps.Values(x.whole(t)))
	slices.Sort(want)
	require.Equal(t, want, sizes)
	require.Len(t, x.producers(), kills+1)
	for _, w := range x.states {
		require.False(t, w.Partial)
	}
	t.Logf("%d transactions in %d of Kafka; %d records were aborted", len(want), len(x.states), x.aborted)
}

// across commits one transaction of so many events, for each aggregate type in turn.
func (s *setup) across(aggregates []string, size int, ledger *judge.Ledger) error {
	first := ledger.Len()
	_, err := s.db.Conn.Exec(context.Background(), `
		INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT lpad(n::text, 32, '0')::uuid, ($3::text[])[1 + n % cardinality($3::text[])], (n % 7)::text, 'created', '{}'
		FROM generate_series($1::int, $1 + $2 - 1) AS n`, first, size, aggregates)
	if err != nil {
		return err
	}
	events := make([]judge.Event, size)
	for i := range events {
		n := first + i
		events[i] = judge.Event{
			ID: eventID(n), Topic: s.prefix + aggregates[n%len(aggregates)], Key: []byte(fmt.Sprint(n % 7)), Value: []byte(`{}`),
		}
	}
	return ledger.Commit(events...)
}

// underLoad writes in the background until the returned function is called, which enters nothing into the ledger
// that was not committed.
func (s *setup) underLoad(ledger *judge.Ledger, seed uint64) (end func()) {
	s.t.Helper()
	group, ctx := errgroup.WithContext(s.t.Context())
	ctx, cancel := context.WithCancel(ctx)
	s.t.Cleanup(cancel)
	w := newWriter(s, ledger, int(seed), seed)
	conn, err := s.db.Conn.Acquire(s.t.Context())
	require.NoError(s.t, err)
	group.Go(func() error {
		defer conn.Release()
		for ctx.Err() == nil {
			// Not with ctx: a commit that is broken off may have happened.
			if err := w.transaction(context.WithoutCancel(ctx), conn.Conn()); err != nil {
				return err
			}
		}
		return nil
	})
	return func() {
		s.t.Helper()
		cancel()
		require.NoError(s.t, group.Wait())
	}
}

// grows waits until consumers may see n records more of the topic.
func (s *setup) grows(n int64) {
	s.t.Helper()
	list := s.cluster.Admin.ListEndOffsets
	if s.committed {
		list = s.cluster.Admin.ListCommittedOffsets
	}
	visible := func() (sum int64, ok bool) { // not while a partition has no leader, as in ends
		ends, err := list(context.Background(), s.topic)
		ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
		return sum, err == nil && ends.Error() == nil
	}
	var size int64
	require.Eventually(s.t, func() (ok bool) { size, ok = visible(); return ok }, wait, tick)
	require.Eventually(s.t, func() bool {
		now, ok := visible()
		return ok && now >= size+n
	}, wait, tick)
}

// An instance that was frozen in the middle of its work finds itself fenced when it thaws, and stands by.
func TestExactlyOnce_Zombie(t *testing.T) {
	t.Parallel()
	s := newExactly(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 3)
	ledger := judge.NewLedger()
	s.set("WALRELAY_TRANSACTION_INTERVAL", "20ms")
	all := instances{{s, s.relay()}}
	all = all.add(s)
	end := s.underLoad(ledger, 1)
	const freezes = 2
	for range freezes {
		holder, others := all.holder(s)
		s.grows(1000)
		holder.free(holder.Process, true)
		others[0].ready(200, "streaming")
		s.grows(1000)
		holder.Signal(t, syscall.SIGCONT)
		holder.ready(200, "standby: another session holds the slot")
		again, _ := all.holder(s)
		require.Equal(t, others[0].PID(), again.PID())
		s.grows(1000)
	}
	end()
	s.caughtUp()
	require.Zero(t, s.judge(ledger).Duplicates)
	holder, others := all.holder(s)
	holder.stop(holder.Process)
	others[0].stop(others[0].Process)
	x := s.kafkaTransactions(s.topic)
	x.whole(t)
	require.GreaterOrEqual(t, len(x.producers()), freezes+1)
	for _, i := range all {
		require.NotContains(t, i.Log(), `"level":"error"`)
	}
}

// Of three instances one has the transactional id: those that wait leave it alone, and one that is stopped
// hands over without a repetition.
func TestExactlyOnce_Standby(t *testing.T) {
	t.Parallel()
	s := newExactly(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 3)
	ledger := judge.NewLedger()
	all := instances{{s, s.relay()}}
	all = all.add(s).add(s)
	end := s.underLoad(ledger, 1)
	for range 2 {
		holder, others := all.holder(s)
		s.grows(1000)
		holder.stop(holder.Process)
		all = others
	}
	last, _ := all.holder(s)
	s.grows(2000)
	end()
	s.caughtUp()
	last.stop(last.Process)
	require.Zero(t, s.judge(ledger).Duplicates)
	x := s.kafkaTransactions(s.topic)
	x.whole(t)
	require.Len(t, x.producers(), 3, "one for each instance that streamed")
	require.Zero(t, x.aborted)
}

// Between the modes nothing is lost, and after a stop in good order nothing comes twice.
func TestExactlyOnce_Switch(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		t.Run(map[bool]string{false: "stopped", true: "killed"}[kill], func(t *testing.T) {
			t.Parallel()
			s := newExactly(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 3)
			ledger := judge.NewLedger()
			// What a killed process has left open hides what comes after it from those who read what is
			// committed, until the next one in exactly-once delivery or the brokers end it.
			s.committed = !kill
			modes := []string{"at-least-once", "exactly-once", "at-least-once", "exactly-once"}
			s.set("WALRELAY_DELIVERY", modes[0])
			relay := s.relay()
			end := s.underLoad(ledger, 1)
			s.grows(1000)
			for _, mode := range modes[1:] {
				if kill {
					relay.Kill(t)
				} else {
					s.stop(relay)
				}
				s.set("WALRELAY_DELIVERY", mode)
				relay = s.relay()
				s.grows(1000)
			}
			end()
			s.caughtUp()
			s.stop(relay)
			s.committed = true
			v := s.verdict(ledger, s.topic)
			t.Log(v)
			require.Equal(t, fmt.Sprint(len(modes)), s.registered("epoch"))
			if kill {
				require.NoError(t, v.Err(judge.GapInRepeat)) // which late writes are
			} else {
				require.NoError(t, v.Err())
				require.Zero(t, v.Duplicates)
			}
		})
	}
}

// The letters of dead events are in the transaction of their neighbours, and a stream that is stuck leaves
// nothing half done.
func TestExactlyOnce_Poison(t *testing.T) {
	t.Parallel()
	s := newPoisoned(t, testenv.Postgres(t, lastMajor()), "stop")
	s.exactly()
	f := follow(s)
	relay := s.relay()
	f.delivers()
	for i, verdict := range []string{"dead-letter", "skip"} {
		action := []string{"dead-lettered", "skipped"}[i]
		before, poison, after := f.number(), f.number(), f.number()
		tx := s.begin()
		for _, r := range []struct {
			n       int
			payload string
		}{{before, `{}`}, {poison, text(30000)}, {after, `{}`}} {
			_, err := tx.Exec(t.Context(), insertSQL, eventID(r.n), "k", r.payload)
			require.NoError(t, err)
		}
		commit(t, tx)
		at := s.stuck(poison, "max.message.bytes")
		s.holds(at)
		require.Empty(t, f.consumer.Rest(t, 200*time.Millisecond), "nothing of the transaction")
		if i == 0 {
			relay.Kill(t) // while it is stuck
			relay = s.relay()
			require.Equal(t, at, s.stuck(poison, "max.message.bytes"))
		}
		s.run("stream", "release", at.String(), "--verdict", verdict)
		f.sees(before)
		f.sees(after)
		require.Equal(t, action, s.letter(poison).action)
	}
	f.delivers()
	s.caughtUp()
	s.stop(relay)
	require.Zero(t, s.judge(f.ledger).Duplicates)
	sizes := s.kafkaTransactions(s.topic, s.dead()).whole(t)
	count := map[int]int{}
	for _, size := range sizes {
		count[size]++
	}
	require.Equal(t, map[int]int{1: 2, 2: 1, 3: 1}, count, "two alone, with the skipped one two, with its letter three")
}
