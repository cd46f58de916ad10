package e2e

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// fill writes n segments of log that nobody subscribes to.
func (s *setup) fill(n int) {
	s.t.Helper()
	for range n {
		s.db.Exec(s.t, "SELECT pg_logical_emit_message(true, 'x', 'y')")
		s.db.Exec(s.t, "SELECT pg_switch_wal()")
	}
}

// Whatever keeps a stream from confirming, a slot that may be given up is given up, and the gap is stated.
func TestBudget_DropSlot(t *testing.T) {
	retainingMajors(t, func(t *testing.T, major int) {
		server := testenv.StartPostgres(t, major, testenv.Config{})
		budgeted := func(s *setup) *setup {
			s.set("WALRELAY_WAL_BUDGET", "64MiB")
			s.set("WALRELAY_WAL_BUDGET_ACTION", "drop-slot")
			return s
		}
		held := budgeted(newSetup(t, server, testenv.Kafka(t), 1))
		stuck := budgeted(newPoisoned(t, server, "stop"))
		beginning := budgeted(newSetup(t, server, testenv.Kafka(t), 1))
		healthy := budgeted(newSetup(t, server, testenv.Kafka(t), 1))

		f := follow(held)
		relays := map[*setup]*testenv.Process{held: held.relay(), stuck: stuck.relay(), healthy: healthy.relay()}
		f.delivers()
		held.insertInto("nosuchtopic", f.number(), "k", `{}`)
		heldUp(t, relays[held], "topic "+held.prefix+"nosuchtopic")
		stuck.insertRow(1, poisons[0].row)
		stuck.stuck(1, poisons[0].reason)
		beginning.stop(beginning.relay())
		beginning.set("WALRELAY_KAFKA_BROKERS", freeAddr(t))
		relays[beginning] = beginning.start()
		beginning.ready(http.StatusServiceUnavailable, "start producing")

		held.fill(6)
		for _, s := range []*setup{held, stuck, beginning} {
			require.Equal(t, 1, relays[s].Wait(t, 2*wait), relays[s].Log())
			log := relays[s].Log()
			for _, part := range []string{
				"was dropped: it kept", "more than WALRELAY_WAL_BUDGET allows (67108864)", "may be missing, that is from 20",
				"rows committed between " + s.registered("confirmed_lsn") + " and " + s.registered("given_up ->> 'until_lsn'"),
				"walrelay stream new-epoch " + s.slot,
			} {
				require.Contains(t, log, part)
			}
			var slots int
			require.NoError(t, s.db.QueryRow(t, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1", s.slot).
				Scan(&slots))
			require.Zero(t, slots)
		}
		fatal(t, held.start(), "is gone", "may be missing", "walrelay stream new-epoch "+held.slot)

		// One that confirms is spared, though the server has yet to see that it keeps too much for it.
		healthy.db.Exec(t, "CHECKPOINT")
		healthy.caughtUp()
		require.True(t, relays[healthy].Running())
		healthy.insert(1, "k", `{}`)
		healthy.cluster.Consume(t, healthy.topic).WaitFor(t, 1, wait)
	})
}

// A stream over its budget says so, lets streams of lesser value rest, and lets them go on when it has room.
func TestBudget_PauseOthers(t *testing.T) {
	retainingMajors(t, func(t *testing.T, major int) {
		server := testenv.StartPostgres(t, major, testenv.Config{})
		lesser := newSetup(t, server, testenv.Kafka(t), 1)
		lesser.relay()
		dear := *lesser
		dear.slot = lesser.db.Slot(t)
		dear.env = maps.Clone(lesser.env)
		dear.set("WALRELAY_SLOT", dear.slot)
		dear.set("WALRELAY_ADMIN_ADDR", freeAddr(t))
		dear.set("WALRELAY_TOPIC", dear.prefix+"dear.{aggregatetype}")
		dear.set("WALRELAY_WAL_BUDGET", "64MiB")
		dear.set("WALRELAY_WAL_BUDGET_ACTION", "pause-others")
		dear.set("WALRELAY_WAL_BUDGET_PAUSE", "no-such-stream, "+lesser.slot)
		relay := dear.relay()
		dear.insert(1, "k", `{}`) // its topic is missing
		heldUp(t, relay, "topic "+dear.prefix+"dear.orders")
		require.InDelta(t, 0, dear.metric("walrelay_wal_budget_exceeded", ""), 0)
		require.InDelta(t, 64<<20, dear.metric("walrelay_wal_budget_bytes", ""), 0)

		dear.fill(6)
		lesser.ready(http.StatusOK, "paused", "by stream "+dear.slot)
		require.InDelta(t, 1, dear.metric("walrelay_wal_budget_exceeded", ""), 0)
		dear.ready(http.StatusOK, "streaming", "more write-ahead log for the slot than WALRELAY_WAL_BUDGET")

		dear.cluster.CreateTopic(t, dear.prefix+"dear.orders", 1, nil)
		require.Eventually(t, func() bool {
			dear.db.Exec(t, "CHECKPOINT")
			dear.db.Exec(t, "SELECT pg_logical_emit_message(true, 'e2e', repeat('x', 300000))")
			return dear.metric("walrelay_wal_budget_exceeded", "") == 0
		}, wait, 10*tick)
		lesser.ready(http.StatusOK, "streaming")
		require.True(t, relay.Running())
		require.Equal(t, 1, strings.Count(relay.Log(), "a stream cannot be paused for the budget"))
	})
}
