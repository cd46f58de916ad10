package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// What could break the comparison of positions by which consumers drop repetitions, each judged.

// seldom is an interval of confirmations within which a test kills the relay, however slow the machine, so that what
// was delivered comes again; often is one within which a test waits for confirmation.
const (
	seldom = "1h"
	often  = "200ms"
)

// confirms sets the interval of confirmations. Server and relay allow each other as much silence.
func (s *setup) confirms(interval string) {
	s.t.Helper()
	s.set("WALRELAY_STATUS_INTERVAL", interval)
	s.db.Exec(s.t, "ALTER DATABASE "+s.db.Name+" SET wal_sender_timeout = '3h'")
	s.set("WALRELAY_RECEIVE_TIMEOUT", "3h")
}

// commits inserts n events of seven keys, each in a transaction of its own, and enters them into the ledger.
func (s *setup) commits(ledger *judge.Ledger, n int) {
	s.t.Helper()
	for range n {
		number := ledger.Len()
		key, payload := fmt.Sprint(number%7), fmt.Sprintf(`{"n": %d}`, number)
		s.insert(number, key, payload)
		require.NoError(s.t, ledger.Commit(s.event(eventID(number), key, payload)))
	}
}

// lastMajor is for tests that look at the same on every server.
func lastMajor() int { return testenv.Majors()[len(testenv.Majors())-1] }

// arrives waits until the topic holds n records, which may be many.
func (s *setup) arrives(n int) {
	s.t.Helper()
	limit := wait + time.Duration(n)*50*time.Microsecond
	require.Eventually(s.t, func() bool { return s.ends(s.topic).Sum() >= int64(n) }, limit, tick)
}

// A null key is spread by the event's id, and so a repetition goes where the event went.
func TestPosition_NullKeys(t *testing.T) {
	t.Parallel()
	s := newOwn(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 4, ownOutbox, ownPublication)
	s.confirms(seldom)
	s.set("WALRELAY_BATCH_BYTES", "2000")
	ledger := judge.NewLedger()
	for range 3 {
		relay := s.relay()
		before := s.ends(s.topic).Sum()
		for range 60 {
			n := ledger.Len()
			var key any
			event := s.event(fmt.Sprint(n), "k", fmt.Sprintf(`{"n": %d}`, n))
			if event.Key = nil; n%5 == 0 {
				key, event.Key = "k", []byte("k")
			}
			s.db.Exec(t, insertOwnSQL, n, key, string(event.Value))
			require.NoError(t, ledger.Commit(event))
		}
		s.arrives(int(before) + 60)
		relay.Kill(t)
	}
	s.confirms(often)
	s.relay()
	s.caughtUp()

	v := s.judge(ledger)
	require.GreaterOrEqual(t, v.Duplicates, 60)
	for partition, end := range s.ends(s.topic) {
		require.NotZero(t, end, partition)
	}
	t.Log(v)
}

// Other routing begins a new epoch. What was delivered and not confirmed comes again as it is routed now.
func TestPosition_Routing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		variable, value string // behind the prefix of topics, for one
		topic, key      string // empty: as before
	}{
		"topic":      {"WALRELAY_TOPIC", "{aggregatetype}.v2", "orders.v2", ""},
		"key column": {"WALRELAY_COLUMN_KEY", "type", "", "created"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 3)
			topics := []string{s.topic}
			s.confirms(seldom)
			relay := s.relay()
			ledger := judge.NewLedger()
			s.commits(ledger, 10)
			s.arrives(10)
			s.commits(ledger, 40)
			s.arrives(50)
			relay.Kill(t)
			s.commits(ledger, 20)

			if test.topic != "" {
				topics = append(topics, s.prefix+test.topic)
				s.cluster.CreateTopic(t, topics[1], 3, nil)
				test.value = s.prefix + test.value
			}
			s.set(test.variable, test.value)
			s.confirms(often)
			s.relay()
			s.commits(ledger, 20)
			s.caughtUp()
			for n := range ledger.Len() {
				event := s.event(eventID(n), fmt.Sprint(n%7), fmt.Sprintf(`{"n": %d}`, n))
				if test.key != "" {
					event.Key = []byte(test.key)
				}
				event.Topic = topics[len(topics)-1]
				require.NoError(t, ledger.Reroute(2, event))
			}

			v := s.verdict(ledger, topics...)
			require.NoError(t, v.Err())
			require.Equal(t, 50, v.Epochs[1])
			require.GreaterOrEqual(t, v.Epochs[2], 80)
			require.GreaterOrEqual(t, v.Renewed, 40)
			t.Log(v)
		})
	}
}

// Two databases, each with its stream, write to one topic, with the same ids and keys. Their positions have
// nothing to do with each other, and consumers compare by stream.
func TestPosition_TwoDatabases(t *testing.T) {
	t.Parallel()
	majors := testenv.Majors()
	one := newSetup(t, testenv.Postgres(t, majors[0]), testenv.Kafka(t), 2)
	two := newSetup(t, testenv.Postgres(t, majors[len(majors)-1]), testenv.Kafka(t), 1)
	two.topic = one.topic
	two.set("WALRELAY_TOPIC", one.env["WALRELAY_TOPIC"])
	setups := []*setup{one, two}
	ledgers := map[string]*judge.Ledger{one.slot: judge.NewLedger(), two.slot: judge.NewLedger()}
	for _, interval := range []string{seldom, often} {
		var relays []*testenv.Process
		for _, s := range setups {
			s.confirms(interval)
			relays = append(relays, s.relay())
		}
		before := int(one.ends(one.topic).Sum())
		for range 5 {
			for _, s := range setups {
				s.commits(ledgers[s.slot], 20)
			}
		}
		one.arrives(before + 200)
		if interval == often {
			one.caughtUp()
			two.caughtUp()
			break
		}
		for _, relay := range relays {
			relay.Kill(t)
		}
	}

	source := judge.Source{Brokers: one.cluster.Addrs(), Topics: []string{one.topic}}
	verdicts, err := judge.Streams(t.Context(), source, ledgers)
	require.NoError(t, err)
	for stream, v := range verdicts {
		require.NoError(t, v.Err(), stream)
		require.Equal(t, 200, v.Delivered)
		require.GreaterOrEqual(t, v.Duplicates, 50)
		require.Len(t, v.Epochs, 1)
		t.Log(v)
	}
}

// A server that is set back to an earlier state, with slot and registry, writes its log once more. Nothing
// tells walrelay so, which is why the operator has to: then the positions of the new life lie above all of
// the old one's, also those of epochs that the restored registry has never heard of.
func TestPosition_RestoredSnapshot(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, lastMajor(), testenv.Config{})
	s := newSetup(t, server, testenv.Kafka(t), 2)
	ledger, inDatabase := judge.NewLedger(), judge.NewLedger()
	both := func(n int) {
		before := ledger.Len()
		s.commits(ledger, n)
		for number := before; number < ledger.Len(); number++ {
			require.NoError(t, inDatabase.Commit(
				s.event(eventID(number), fmt.Sprint(number%7), fmt.Sprintf(`{"n": %d}`, number))))
		}
	}
	s.confirms(seldom)
	relay := s.relay()
	both(10)
	s.arrives(10)
	both(30)
	s.arrives(40)
	relay.Kill(t)
	snapshot := t.TempDir() + "/data"
	server.Stop(t, testenv.Fast)
	copyDirectory(t, server.Dir, snapshot)
	restored := func() {
		if server.Running() {
			server.Stop(t, testenv.Fast)
			require.NoError(t, os.RemoveAll(server.Dir))
			copyDirectory(t, snapshot, server.Dir)
		}
		server.Start(t)
		s.db.Conn.Reset()
	}

	t.Log("the old life")
	restored()
	s.confirms(often)
	s.cluster.AddPartitions(t, s.topic, 1) // so that the epoch is raised
	relay = s.relay()
	s.commits(ledger, 30)
	s.caughtUp()
	require.Equal(t, "2", s.registered("epoch"))
	s.stop(relay)

	t.Log("restored")
	restored()
	require.Equal(t, "1", s.registered("epoch"))
	s.run("stream", "new-epoch")
	relay = s.relay()
	both(30)
	s.caughtUp()
	s.stop(relay)
	v := s.verdict(ledger, s.topic)
	require.NoError(t, v.Err())
	require.Len(t, v.Epochs, 3)
	t.Log(v)
	v = s.verdict(inDatabase, s.topic)
	require.NoError(t, v.Err(judge.Phantom), "what the restored database never had")
	require.Equal(t, 30, v.Count(judge.Phantom))

	t.Log("restored without a word")
	restored()
	s.relay()
	s.commits(ledger, 10)
	s.caughtUp()
	require.Equal(t, 10, s.verdict(ledger, s.topic).Count(judge.Dropped), "that is what the command is for")
}

// copyDirectory copies as it is, owners and rights included.
func copyDirectory(t *testing.T, from, to string) {
	t.Helper()
	out, err := exec.CommandContext(context.Background(), "cp", "-a", from, to).CombinedOutput()
	require.NoError(t, err, string(out))
}
