package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/testenv"
)

// What contradicts the state in Kafka ends the process with one message. The remedy that it names lets the
// stream go on.
func TestExactlyOnce_Refusals(t *testing.T) {
	t.Parallel()
	s := newExactly(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 2)
	f := follow(s)
	relay := s.relay()
	f.delivers()
	refused := func(parts ...string) {
		t.Helper()
		before := s.confirmed()
		fatal(t, s.start(), append(parts, `stream "`+s.slot+`"`)...)
		require.Equal(t, before, s.confirmed())
	}

	t.Log("the topic of states has another cleanup policy")
	s.stop(relay)
	s.cleanup("delete")
	f.insert(f.number(), "k", `{}`)
	refused(s.states(), "cleanup.policy=delete", "set its cleanup.policy to compact")
	s.cleanup("compact")
	relay = s.relay()
	f.sees(f.events)
	require.Equal(t, "1", s.registered("epoch"))

	t.Log("it lost its end")
	old := s.state().record
	f.delivers()
	s.caughtUp()
	s.stop(relay)
	s.replaceStates(old)
	refused("the slot is confirmed up to "+s.confirmed().String(), "the topic of states lost its end",
		"run `walrelay stream new-epoch`")
	relay = f.goesOn()

	t.Log("it was deleted")
	s.stop(relay)
	s.deleteStates()
	f.writes()
	refused("no state is found, though the registry says that one was written", "run `walrelay stream new-epoch`")
	relay = f.goesOn()

	t.Log("it was deleted while the stream was running")
	s.deleteStates()
	n := f.number()
	f.insert(n, "k", `{}`)
	relay.WaitForLog(t, "add partitions to the transaction: "+s.states(), wait)
	require.Empty(t, f.consumer.Rest(t, 200*time.Millisecond))
	s.createStates(16) // as many as walrelay has created before
	f.sees(n)
	s.caughtUp()
	s.stop(relay)
	s.relay()
	f.delivers()
	s.caughtUp()
	v := s.verdict(f.ledger, s.topic)
	require.NoError(t, v.Err())
	require.Len(t, v.Epochs, 3)
}

// A transaction that is cut is delivered to its end by the rules under which it began.
func TestExactlyOnce_RoutingInTransaction(t *testing.T) {
	t.Parallel()
	const rows = 30_000
	cluster, kafka := gatedKafka(t)
	s := newExactly(t, testenv.Postgres(t, lastMajor()), cluster, 2)
	s.set("WALRELAY_KAFKA_BROKERS", cluster.ListenerAddrs()[0])
	s.set("WALRELAY_IN_FLIGHT_EVENTS", "2000") // so a transaction of Kafka has fewer
	other := s.prefix + "other"
	s.cluster.CreateTopic(t, other, 2, nil)
	relay := s.relay()
	kafka.closeAfter(rows * 60) // of more than 100 a row
	s.bulk(rows, 100, "")
	require.Eventually(t, func() bool { return kafka.holds() > 0 }, wait, tick)
	relay.Kill(t)
	require.True(t, s.state().Partial, "killed in the middle")
	s.set("WALRELAY_KAFKA_BROKERS", cluster.Seeds())

	former := s.env["WALRELAY_TOPIC"]
	s.set("WALRELAY_TOPIC", other)
	fatal(t, s.start(), "routing was changed while the state stands in the middle of the transaction at",
		"start once with the former routing (topic, key and id settings)")
	s.set("WALRELAY_TOPIC", former)
	relay = s.relay()
	s.counts(rows)
	s.caughtUp()
	s.stop(relay)

	s.set("WALRELAY_TOPIC", other)
	relay = s.relay()
	s.insert(1e6, "k", `{}`)
	require.Equal(t, []string{eventID(1e6)}, delivered(s.consume(other).WaitFor(t, 1, wait)))
	s.stop(relay)
	s.kafkaTransactions(s.topic, other).whole(t)
}

// A cold copy of the database, started with the same configuration beside the stream, harms nobody. When the
// original is gone it can take its place, by the operator's word.
func TestExactlyOnce_Clone(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, lastMajor(), testenv.Config{})
	copied := testenv.StartPostgres(t, lastMajor(), testenv.Config{})
	s := newExactly(t, server, testenv.Kafka(t), 2)
	f := follow(s)
	relay := s.relay()
	f.delivers()
	server.Stop(t, testenv.Fast)
	copied.Stop(t, testenv.Fast)
	become(t, copied, server)
	server.Start(t)
	copied.Start(t)
	s.db.Conn.Reset()
	f.delivers()
	s.caughtUp()
	before := s.kafkaTransactions().producers()

	clone := s.another()
	clone.db = databaseOn(t, copied, s.db.Name)
	clone.set("WALRELAY_DATABASE_URL", clone.db.DSN)
	n := f.number()
	clone.insert(n, "k", `{}`) // which the original never has
	for range 2 {
		fatal(t, clone.start(), `stream "`+s.slot+`"`, "which this server never had: it is an older copy",
			"if this is the right server and the right cluster", "run `walrelay stream new-epoch`")
		f.delivers()
		require.False(t, f.seen[eventID(n)])
	}
	s.caughtUp()
	require.Equal(t, before, s.kafkaTransactions().producers(), "nobody was fenced")
	s.judge(f.ledger)

	s.stop(relay)
	f.setup = clone
	f.goesOn()
	require.True(t, f.seen[eventID(n)])
}

// become gives a server the data of another one, as that was stopped. Address and settings stay.
func become(t *testing.T, server, other *testenv.Server) {
	t.Helper()
	settings := map[string][]byte{}
	for _, name := range []string{"postgresql.conf", "pg_hba.conf"} {
		text, err := os.ReadFile(filepath.Join(server.Dir, name))
		require.NoError(t, err)
		settings[name] = text
	}
	require.NoError(t, os.RemoveAll(server.Dir))
	copyDirectory(t, other.Dir, server.Dir)
	for name, text := range settings {
		require.NoError(t, os.WriteFile(filepath.Join(server.Dir, name), text, 0o600))
	}
}

// cleanup sets the policy of the topic of states.
func (s *setup) cleanup(policy string) {
	s.t.Helper()
	s.alter(s.states(), "cleanup.policy", policy)
}

func (s *setup) deleteStates() {
	s.t.Helper()
	_, err := s.cluster.Admin.DeleteTopic(s.t.Context(), s.states())
	require.NoError(s.t, err)
	require.Eventually(s.t, func() bool {
		topics, err := s.cluster.Admin.ListTopics(s.t.Context(), s.states())
		require.NoError(s.t, err)
		return !topics.Has(s.states())
	}, wait, tick)
}

// createStates is not testenv's CreateTopic, which deletes in the end what was there before, too.
func (s *setup) createStates(partitions int32) {
	s.t.Helper()
	policy := "compact"
	_, err := s.cluster.Admin.CreateTopic(s.t.Context(), partitions, 1, map[string]*string{"cleanup.policy": &policy},
		s.states())
	require.NoError(s.t, err)
}

// replaceStates makes the topic of states anew, with one record.
func (s *setup) replaceStates(record *kgo.Record) {
	s.t.Helper()
	_, err := checkpoint.ParseState(record.Value)
	require.NoError(s.t, err)
	s.deleteStates()
	s.createStates(1)
	client, err := kgo.NewClient(kgo.SeedBrokers(s.cluster.Addrs()...))
	require.NoError(s.t, err)
	defer client.Close()
	again := &kgo.Record{Topic: s.states(), Key: record.Key, Value: record.Value}
	require.NoError(s.t, client.ProduceSync(context.Background(), again).FirstErr())
}
