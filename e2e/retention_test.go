package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// retainingMajors are the oldest and the newest server.
func retainingMajors(t *testing.T, test func(t *testing.T, major int)) {
	t.Helper()
	t.Parallel()
	for _, major := range []int{14, 18} {
		t.Run(fmt.Sprintf("postgres-%d", major), func(t *testing.T) {
			t.Parallel()
			test(t, major)
		})
	}
}

// rows is how many rows the outbox has.
func (s *setup) rows() (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRow(s.t, "SELECT count(*) FROM public.outbox").Scan(&n))
	return n
}

// empties waits until the outbox has no row left.
func (s *setup) empties() {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.rows() == 0 }, 3*wait, tick)
}

// While the brokers are away nothing is deleted, whatever its age and however late it was committed.
func TestRetention_BrokersAway(t *testing.T) {
	t.Parallel()
	cluster := testenv.StartKafka(t, testenv.KafkaConfig{})
	for _, major := range []int{14, 18} { // one after the other: they share the broker
		t.Run(fmt.Sprintf("postgres-%d", major), func(t *testing.T) {
			s := newSetup(t, testenv.Postgres(t, major), cluster, 2)
			s.insert(0, "k", `{}`) // the slot does not know of it
			s.set("WALRELAY_RETENTION", "1ms")
			s.set("WALRELAY_PRODUCE_TIMEOUT", "500ms")
			relay := s.relay()
			consumer := cluster.Consume(t, s.topic)
			late := s.begin()
			_, err := late.Exec(t.Context(), insertSQL, eventID(1), "k", `{}`)
			require.NoError(t, err)
			s.insert(2, "k", `{}`)
			require.Equal(t, []string{eventID(2)}, delivered(consumer.WaitFor(t, 1, wait)))
			require.Eventually(t, func() bool { return s.rows() == 1 }, wait, tick)

			cluster.PauseBroker(t, 0)
			commit(t, late)
			s.insert(3, "k", `{}`)
			s.during(4*time.Second, func() { require.Equal(t, 3, s.rows()) })
			s.reaches("walrelay_retention_deleted_rows_total", "", 1)
			// A crash forgets what was chosen, and what was in flight comes again.
			relay.Kill(t)
			relay = s.start()
			s.ready(http.StatusServiceUnavailable)
			s.during(2*time.Second, func() { require.Equal(t, 3, s.rows()) })

			cluster.ResumeBroker(t, 0)
			for seen := map[string]bool{}; !seen[eventID(1)] || !seen[eventID(3)]; { // either may come twice
				seen[judge.Header(consumer.WaitFor(t, 1, wait)[0], "id")] = true
			}
			require.Eventually(t, func() bool { return s.rows() == 1 }, wait, tick)
			var left string
			require.NoError(t, s.db.QueryRow(t, "SELECT id::text FROM public.outbox").Scan(&left))
			require.Equal(t, eventID(0), left, "what was there before the slot is left to a person")
			require.InDelta(t, 0, s.metric("walrelay_retention_errors_total", ""), 0)
			require.Eventually(t, func() bool { // counted once they are gone
				_, status := s.get("/status")
				return strings.Contains(status, `"deleted_rows": 2`)
			}, wait, tick)
			s.stop(relay)
		})
	}
}

// proofOfConfirmation makes the table write down, for each row that is deleted, how far the slot was
// confirmed.
const proofOfConfirmation = `
	CREATE TABLE public.deleted (id uuid PRIMARY KEY, confirmed pg_lsn NOT NULL);
	CREATE FUNCTION public.note_deletion() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO public.deleted SELECT OLD.id, confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = TG_ARGV[0];
		RETURN OLD;
	END $$;
	CREATE TRIGGER note_deletion BEFORE DELETE ON public.outbox FOR EACH ROW EXECUTE FUNCTION public.note_deletion('%s')`

// Whatever moment walrelay is killed at, every event arrives, no row is deleted before its event was
// confirmed, and none is left in the end.
func TestRetention_Kill(t *testing.T) {
	retainingMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 3)
		s.db.Exec(t, fmt.Sprintf(proofOfConfirmation, s.slot))
		s.set("WALRELAY_RETENTION", "1ms")
		v := s.killed(fromEnv(t, "WALRELAY_E2E_EVENTS", 10_000), fromEnv(t, "WALRELAY_E2E_KILLS", 3), func(int) {})
		s.relay()
		s.empties()

		confirmed := map[string]pglogrepl.LSN{}
		rows, err := s.db.Conn.Query(t.Context(), "SELECT id::text, confirmed::text FROM public.deleted")
		require.NoError(t, err)
		for rows.Next() {
			var id string
			var lsn pglogrepl.LSN
			require.NoError(t, rows.Scan(&id, &lsn))
			confirmed[id] = lsn
		}
		require.NoError(t, rows.Err())
		require.Len(t, confirmed, v.Committed)
		for _, r := range s.cluster.Consume(t, s.topic).WaitFor(t, v.Records, 5*wait) {
			require.Greater(t, confirmed[judge.Header(r, "id")], positionLSN(t, r))
		}
	})
}

// A column that is missing is a fault at the start.
func TestRetention_NoColumn(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, 18), testenv.Kafka(t), 1)
	s.set("WALRELAY_RETENTION", "1h")
	s.set("WALRELAY_RETENTION_COLUMN", "inserted")
	fatal(t, s.start(), `has no column "inserted"`, "WALRELAY_RETENTION_COLUMN")
	require.Zero(t, s.ends(s.topic).Sum())
}
