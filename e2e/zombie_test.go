package e2e

import (
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// Batches that are on their way to Kafka when another process takes over arrive after all that this one
// delivers. They are written, since their producer id is another one, and do no harm to a consumer that
// keeps the highest position.
func TestZombie(t *testing.T) {
	t.Parallel()
	cluster, kafka := gatedKafka(t)
	server := testenv.Postgres(t, testenv.Majors()[len(testenv.Majors())-1])

	t.Run("thaws after the takeover", func(t *testing.T) {
		s := newSetup(t, server, cluster, 2)
		ledger := judge.NewLedger()
		zombie := s.onTheWay(kafka, ledger)
		s.free(zombie, true)

		next := s.another()
		next.set("WALRELAY_KAFKA_BROKERS", cluster.Seeds())
		next.relay()
		s.caughtUp()
		delivered := s.ends(s.topic)
		require.EqualValues(t, ledger.Len(), delivered.Sum())
		s.arrive(kafka, delivered)
		zombie.Signal(t, syscall.SIGCONT)
		s.ready(200, "standby")
		s.commits(ledger, 20)
		s.caughtUp()

		v := s.verdict(ledger, s.topic)
		require.NoError(t, v.Err(judge.GapInRepeat)) // which late writes are
		require.Len(t, v.Epochs, 1)
		require.Zero(t, v.AfterDedup())
		require.NotZero(t, v.RepeatsBetween(delivered, s.ends(s.topic)))
		t.Log(v)
	})

	t.Run("exactly once", func(t *testing.T) {
		const rows = 20_000 // few enough for one transaction
		s := newExactly(t, server, cluster, 2)
		s.set("WALRELAY_KAFKA_BROKERS", cluster.ListenerAddrs()[0])
		s.set("WALRELAY_BATCH_BYTES", "2000")
		s.set("WALRELAY_TRANSACTION_TIMEOUT", "10m") // the brokers would end that of a slow successor, too
		zombie := s.relay()
		kafka.closeAfter(rows * 20) // of more than 100 a row
		s.bulk(rows, 1000, "")
		require.Eventually(t, func() bool { return kafka.holds() > 2*2000 }, wait, tick)
		s.free(zombie, true)

		next := s.another()
		next.set("WALRELAY_KAFKA_BROKERS", cluster.Seeds())
		successor := next.relay()
		s.counts(rows)
		s.caughtUp()
		s.marked()
		delivered := s.ends(s.topic)
		kafka.open()
		require.Eventually(t, func() bool { return kafka.holds() == 0 }, wait, tick)
		zombie.Signal(t, syscall.SIGCONT)
		s.ready(200, "standby")
		require.Equal(t, delivered, s.ends(s.topic), "what comes late is refused")
		s.insert(1e6, "k", `{}`)
		s.caughtUp()
		s.stop(zombie)
		s.stop(successor) // an idle stream has transactions too, which must not be open when they are looked at
		x := s.kafkaTransactions(s.topic)
		x.whole(t)
		require.Len(t, x.producers(), 2)
		require.NotZero(t, x.aborted)
	})

	t.Run("killed, and the topic gains partitions", func(t *testing.T) {
		s := newSetup(t, server, cluster, 2)
		ledger := judge.NewLedger()
		relay := s.onTheWay(kafka, ledger)
		cluster.AddPartitions(t, s.topic, 3)
		relay.Kill(t)

		s.set("WALRELAY_KAFKA_BROKERS", cluster.Seeds())
		s.relay()
		s.caughtUp()
		require.Equal(t, "2", s.registered("epoch"))
		delivered := s.ends(s.topic)
		require.EqualValues(t, ledger.Len(), delivered.Sum())
		s.arrive(kafka, delivered)
		s.commits(ledger, 20)
		s.caughtUp()

		v := s.verdict(ledger, s.topic)
		require.NoError(t, v.Err())
		require.Len(t, v.Epochs, 2)
		require.NotZero(t, v.RepeatsBetween(delivered, s.ends(s.topic)))
		t.Log(v)
	})
}

// onTheWay starts a relay that produces through the gate, and shuts that so that several batches of each
// partition are on their way.
func (s *setup) onTheWay(kafka *gate, ledger *judge.Ledger) *testenv.Process {
	s.t.Helper()
	const batch = 2000 // bytes
	s.set("WALRELAY_KAFKA_BROKERS", s.cluster.ListenerAddrs()[0])
	s.set("WALRELAY_BATCH_BYTES", strconv.Itoa(batch))
	relay := s.relay()
	s.commits(ledger, 20)
	s.caughtUp()
	kafka.close()
	s.commits(ledger, 200)
	require.Eventually(s.t, func() bool { return kafka.holds() > 3*2*batch }, wait, tick)
	return relay
}

// arrive opens the gate and waits until what was held is in the topic.
func (s *setup) arrive(kafka *gate, before judge.Offsets) {
	s.t.Helper()
	kafka.open()
	require.Eventually(s.t, func() bool { return s.ends(s.topic).Sum() > before.Sum() }, wait, tick)
}
