package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// dailyOutbox has a partition for each of the last two days, and one for today and tomorrow.
const dailyOutbox = `
	CREATE TABLE public.outbox (id uuid DEFAULT gen_random_uuid(), aggregatetype text NOT NULL, aggregateid text NOT NULL,
		type text NOT NULL, payload jsonb, created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (id, created_at))
		PARTITION BY RANGE (created_at);
	DO $$ BEGIN
		EXECUTE format('CREATE TABLE public.outbox_0 PARTITION OF public.outbox FOR VALUES FROM (%%L) TO (%%L)',
			current_date - 2, current_date - 1);
		EXECUTE format('CREATE TABLE public.outbox_1 PARTITION OF public.outbox FOR VALUES FROM (%%L) TO (%%L)',
			current_date - 1, current_date);
		EXECUTE format('CREATE TABLE public.outbox_2 PARTITION OF public.outbox FOR VALUES FROM (%%L) TO (%%L)',
			current_date, current_date + 2);
	END $$;
	CREATE PUBLICATION walrelay FOR TABLE public.outbox WITH (publish = 'insert', publish_via_partition_root = %t)`

// Old partitions go as a whole, and nothing of what was written into them is lost, even if it is read after
// they were detached or dropped.
func TestRetention_Partitions(t *testing.T) {
	retainingMajors(t, func(t *testing.T, major int) {
		for _, viaRoot := range []bool{true, false} {
			s := newBare(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
			s.db.Exec(t, fmt.Sprintf(dailyOutbox, viaRoot))
			s.run("migrate", "up")
			s.set("WALRELAY_RETENTION", "1ms")
			consumer := s.cluster.Consume(t, s.topic)
			insert := func(n, day int) {
				s.db.Exec(t, `INSERT INTO public.outbox VALUES ($1, 'orders', 'k', 'created', '{}',
					current_date - $2::int + interval '1 hour')`, eventID(n), day)
			}
			relay := s.relay()
			insert(1, 2)
			insert(2, 1)
			require.Len(t, consumer.WaitFor(t, 2, wait), 2)
			s.stop(relay)
			partitions := func() (n int) {
				require.NoError(t, s.db.QueryRow(t, `SELECT count(*) FROM pg_class WHERE relname ~ '^outbox_\d$'`).Scan(&n))
				return n
			}
			require.Equal(t, 3, partitions(), "older than the slot: left to a person")

			// As a process leaves it that was killed in between, with an event that nobody has read.
			insert(3, 2)
			s.db.Exec(t, `UPDATE walrelay.streams SET covered_since = '-infinity',
				detached = jsonb_build_array(jsonb_build_object(
				'oid', 'public.outbox_0'::regclass::oid::int8, 'name', 'public.outbox_0', 'schema', 'public',
				'table', 'outbox', 'dropped', false))`)
			s.db.Exec(t, `ALTER TABLE public.outbox DETACH PARTITION public.outbox_0`)
			relay = s.relay()
			require.Equal(t, []string{eventID(3)}, delivered(consumer.WaitFor(t, 1, wait)))
			require.Eventually(t, func() bool { return partitions() == 1 }, wait, tick)
			insert(4, 0)
			require.Equal(t, []string{eventID(4)}, delivered(consumer.WaitFor(t, 1, wait)))
			s.reaches("walrelay_retention_dropped_partitions_total", "", 2)
			require.InDelta(t, 0, s.metric("walrelay_retention_errors_total", ""), 0)
			s.stop(relay)
		}
	})
}
