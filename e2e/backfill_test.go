package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// The rows from before the slot come first, in the slot's own snapshot: with writers at work all the time,
// every row comes exactly once, either as a replayed one or in the stream.
func TestBackfill_MeetsTheStream(t *testing.T) {
	t.Parallel()
	for name, start := range deliveries() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testenv.ForMajors(t, func(t *testing.T, major int) {
				s := start(t, testenv.Postgres(t, major), testenv.Kafka(t), 3)
				s.set("WALRELAY_BACKFILL", "true")
				const old, young = 5000, 1000
				s.db.Exec(t, `INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload)
					SELECT lpad(n::text, 32, '0')::uuid, 'orders', (n % 7)::text, 't', '{}' FROM generate_series(0, $1 - 1) AS n`, old)
				consumer := s.consume(s.topic)
				written := make(chan error, 1)
				relay := s.start()
				go func() { written <- write(context.Background(), s.db.DSN, old, young) }()
				relay.WaitForLog(t, `"message":"streaming"`, wait)
				require.NoError(t, <-written)

				records := consumer.WaitFor(t, old+young, wait)
				ids := delivered(records)
				slices.Sort(ids)
				require.Len(t, slices.Compact(ids), old+young, "each once")
				beforeStream(t, records)
				s.caughtUp()
				s.stop(relay)
				require.Equal(t, "-infinity", s.registered("covered_since"), "retention may delete them")
				require.Regexp(t, `backfill +done +\d+ published +0 refused`, s.run("replay", "list"))

				s.relay() // it is done, and is not done again
				s.insert(old+young, "k", `{}`)
				require.Equal(t, []string{eventID(old + young)}, delivered(consumer.WaitFor(t, 1, wait)))
			})
		})
	}
}

// write commits events one after the other.
func write(ctx context.Context, dsn string, first, n int) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for i := range n {
		if _, err := conn.Exec(ctx, insertSQL, eventID(first+i), fmt.Sprint(i%7), `{}`); err != nil {
			return err
		}
	}
	return nil
}

// beforeStream requires that in each partition every replayed record lies before the stream's.
func beforeStream(t *testing.T, records []*kgo.Record) {
	t.Helper()
	streamed := map[int32]bool{}
	for _, r := range records {
		if judge.Header(r, "walrelay-replay") == "" {
			streamed[r.Partition] = true
			continue
		}
		require.Equal(t, "backfill", judge.Header(r, "walrelay-replay"))
		require.False(t, streamed[r.Partition], "a row from before the slot after one of the stream")
	}
}

// A backfill that is killed is finished before the stream begins, by whoever starts next; a second instance
// waits for it.
func TestBackfill_Killed(t *testing.T) {
	t.Parallel()
	cluster := testenv.StartKafka(t, testenv.KafkaConfig{})
	s := newSetup(t, testenv.Postgres(t, lastMajor()), cluster, 2)
	s.set("WALRELAY_BACKFILL", "true")
	const rows = 3000
	s.db.Exec(t, `INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT lpad(n::text, 32, '0')::uuid, 'orders', (n % 7)::text, 't', '{}' FROM generate_series(0, $1 - 1) AS n`, rows)
	cluster.PauseBroker(t, 0) // it cannot be finished
	first := s.start()
	first.WaitForLog(t, `publishing the rows from before the slot`, wait)
	second := s.another()
	secondRelay := second.start()
	secondRelay.WaitForLog(t, `standing by: another instance publishes the rows from before the slot`, wait)
	second.ready(200, "standby")
	first.Kill(t)
	cluster.ResumeBroker(t, 0)
	secondRelay.WaitForLog(t, `"message":"streaming"`, wait)

	consumer := s.cluster.Consume(t, s.topic)
	seen := map[string]bool{}
	for len(seen) < rows {
		seen[judge.Header(consumer.WaitFor(t, 1, wait)[0], "id")] = true
	}
	s.insert(rows, "k", `{}`)
	for {
		record := consumer.WaitFor(t, 1, wait)[0]
		if judge.Header(record, "walrelay-replay") == "" {
			require.Equal(t, eventID(rows), judge.Header(record, "id"))
			break
		}
	}
}
