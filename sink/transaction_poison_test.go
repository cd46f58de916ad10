package sink

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// bad publishes transactions from..to of five events each in "orders"; spoil changes events by "lsn-index".
func (s *session) bad(from, to int, spoil map[string]func(*decoder.Event)) {
	s.lsn = uint64(from - 1)
	for lsn := from; lsn <= to; lsn++ {
		s.lsn++
		for i := range 5 {
			ev := s.part("orders", i)
			if change := spoil[fmt.Sprintf("%d-%d", lsn, i)]; change != nil {
				change(ev)
			}
			s.publish(ev)
		}
		s.k.Reached(pglogrepl.LSN(lsn))
	}
}

// record writes poison events down, as the session does, until there are n.
func (s *session) record(n int) {
	s.t.Helper()
	recorded := 0
	s.until(fmt.Sprintf("%d poison events", n), func() bool {
		for ; recorded < len(s.poison); recorded++ {
			s.k.Recorded([]uint64{s.poison[recorded].Seq})
		}
		return len(s.poison) >= n || s.mail.Err != nil
	})
	require.NoError(s.t, s.mail.Err)
	require.Len(s.t, s.poison, n)
}

// again begins runs until one does not fail, and publishes and records in each. The poison of the last one is that of
// all, since what an earlier one has written down and passed does not come again.
func (s *session) again(poison int, publish func(*session)) (last *session, runs int) {
	s.t.Helper()
	var found []checkpoint.Poison
	for s = begin(s.t, s.k, goesOn()); ; s = begin(s.t, s.k, goesOn()) {
		runs++
		require.Less(s.t, runs, 10, "it goes on for ever")
		publish(s)
		recorded := 0
		s.until("the end", func() bool {
			for ; recorded < len(s.poison); recorded++ {
				p := s.poison[recorded]
				s.k.Recorded([]uint64{p.Seq})
				found = slices.DeleteFunc(found, func(q checkpoint.Poison) bool { return q.Position == p.Position })
				found = append(found, p)
			}
			return s.mail.Err != nil || s.mail.Reached >= pglogrepl.LSN(s.lsn) && len(found) >= poison
		})
		if s.mail.Err == nil {
			s.poison = found
			return s, runs
		}
	}
}

// all are the ids of transactions of five events each, without those in but.
func all(first, last int, but ...string) (ids []string) {
	for lsn := first; lsn <= last; lsn++ {
		for i := range 5 {
			id := fmt.Sprintf("id-%d-%d", lsn, i)
			missing := false
			for _, b := range but {
				missing = missing || id == "id-"+b
			}
			if !missing {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

func unfit(ev *decoder.Event)  { ev.Timestamp = []byte("infinity") }
func guilty(ev *decoder.Event) { ev.Payload = []byte(culprit) }

func size(n int) func(*decoder.Event) {
	return func(ev *decoder.Event) { ev.Payload = make([]byte, n) }
}

// A poison event is written down before its transaction is committed.
func TestTransactionPoison_NothingPassesUnrecorded(t *testing.T) {
	t.Parallel()
	for _, policy := range []Policy{Skip, DeadLetter} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(1, "orders", "dead"))
			k := start(t, c.ListenAddrs(), func(c *Config) { exactly(c); c.OnPoison, c.DeadTopic = policy, "dead" })
			s := begin(t, k, checkpoint.Run{Line: line()})
			s.bad(1, 1, nil)
			s.settle()
			s.reaches()
			s.bad(2, 3, map[string]func(*decoder.Event){"2-2": unfit})
			s.until("the poison", func() bool { return len(s.poison) == 1 })
			s.never(100*time.Millisecond, func() bool { return len(s.settled) > 5 || s.mail.Reached > 1 })
			sees(t, c.ListenAddrs(), "orders", all(1, 1))
			sees(t, c.ListenAddrs(), "dead", nil)

			s.record(1)
			s.reaches()
			require.Len(t, s.settled, 14)
			sees(t, c.ListenAddrs(), "orders", all(1, 3, "2-2"))
			if policy == Skip {
				sees(t, c.ListenAddrs(), "dead", nil)
				require.Equal(t, checkpoint.Skipped, s.poison[0].Action)
			} else {
				sees(t, c.ListenAddrs(), "dead", []string{"id-2-2"})
				require.Equal(t, checkpoint.DeadLettered, s.poison[0].Action)
			}
			// The next run leaves it out.
			s = begin(t, k, goesOn())
			s.bad(1, 4, map[string]func(*decoder.Event){"2-2": unfit})
			s.reaches()
			require.Empty(t, s.poison)
			sees(t, c.ListenAddrs(), "orders", all(1, 4, "2-2"))
		})
	}
}

// Dead letter and neighbours appear together: a crash between them leaves neither.
func TestTransactionPoison_DeadLetterIsInTheTransaction(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders", "dead"))
	k := start(t, c.ListenAddrs(), func(c *Config) { exactly(c); c.OnPoison, c.DeadTopic = DeadLetter, "dead" })
	s := begin(t, k, checkpoint.Run{Line: line()})
	answersWith(c, kmsg.EndTxn, 47, 1)
	spoil := map[string]func(*decoder.Event){"1-2": unfit}
	s.bad(1, 1, spoil)
	s.until("the poison", func() bool { return len(s.poison) == 1 })
	k.Recorded([]uint64{s.poison[0].Seq})
	require.Error(t, s.fails())
	require.Len(t, consume(t, c.ListenAddrs(), 1, "dead"), 1, "produced, but not committed")
	sees(t, c.ListenAddrs(), "dead", nil)
	s, _ = s.again(1, func(s *session) { s.bad(1, 1, spoil) })
	sees(t, c.ListenAddrs(), "dead", []string{"id-1-2"})
	sees(t, c.ListenAddrs(), "orders", all(1, 1, "1-2"))
}

// named is modes under a name.
func named(t *testing.T, name string, test func(t *testing.T, c *kfake.Cluster)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		modes(t, test)
	})
}

// Nothing of the stuck event's own transaction leaves, and what came before it does.
func TestTransactionPoison_Stop(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*decoder.Event){
		"at once": unfit, "once the topic is known": size(5000), "by the broker": guilty,
	} {
		named(t, name, func(t *testing.T, c *kfake.Cluster) {
			admin, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
			require.NoError(t, err)
			defer admin.Close()
			_, err = kadm.NewClient(admin).AlterTopicConfigs(context.Background(),
				[]kadm.AlterConfig{{Name: "max.message.bytes", Value: new("4000")}}, "orders")
			require.NoError(t, err)
			k := start(t, c.ListenAddrs(), func(c *Config) { exactly(c); c.BatchBytes = 2 << 10 })
			s := begin(t, k, checkpoint.Run{Line: line()})
			events := map[string]func(*decoder.Event){"3-2": spoil}
			s.bad(1, 5, events)
			s.until("an outcome", func() bool { return s.mail.Err != nil || len(s.poison) > 0 })
			if s.mail.Err != nil {
				s, _ = s.again(1, func(s *session) {
					s.bad(1, 5, events)
					s.lsn = 2
				})
			}
			s.until("what came before", func() bool { return s.mail.Reached >= 2 })
			require.Equal(t, checkpoint.Stopped, s.poison[0].Action)
			require.Equal(t, at(3, 2), s.poison[0].Position)
			require.NoError(t, s.mail.Err)
			sees(t, c.ListenAddrs(), "orders", all(1, 2))

			run := goesOn()
			run.Verdicts = map[checkpoint.Position]checkpoint.Verdict{at(3, 2): checkpoint.VerdictRetry}
			s = begin(t, k, run)
			s.bad(1, 5, nil)
			s.reaches()
			sees(t, c.ListenAddrs(), "orders", all(1, 5))
		})
	}
}

// A broker refuses a record: its transaction is given up, and the culprit is found in the next runs.
func TestTransactionPoison_RefusedByTheBroker(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c *kfake.Cluster) {
		k := start(t, c.ListenAddrs(), func(c *Config) { exactly(c); c.OnPoison, c.DeadTopic = DeadLetter, "dead" })
		s := begin(t, k, checkpoint.Run{Line: line()})
		spoil := map[string]func(*decoder.Event){"2-2": guilty, "4-0": guilty}
		s.bad(1, 6, spoil)
		require.ErrorContains(t, s.fails(), "its transaction is given up")
		s, runs := s.again(2, func(s *session) { s.bad(1, 6, spoil) })
		require.LessOrEqual(t, runs, 4)
		sees(t, c.ListenAddrs(), "orders", all(1, 6, "2-2", "4-0"))
		sees(t, c.ListenAddrs(), "dead", []string{"id-2-2", "id-4-0"})
		require.Eventually(t, func() bool { // after what was reached is said
			k.mu.Lock()
			defer k.mu.Unlock()
			return len(k.suspects) == 0
		}, patience, time.Millisecond)

		// Later transactions are whole batches again.
		s.bad(7, 8, nil)
		s.reaches()
		sees(t, c.ListenAddrs(), "orders", all(1, 8, "2-2", "4-0"))
	})
}

// A suspect stays alone in its batch, also when it is the last of what is left from a sealed one.
func TestTransactionPoison_SuspectsStayAlone(t *testing.T) {
	t.Parallel()
	k, _ := publisher(t, exactly)
	s := &session{t: t, k: k}
	k.suspects[at(2, 1)] = true
	s.lsn = 1
	s.publish(s.part("orders", 0))
	k.Reached(1)
	s.lsn = 2
	s.publish(s.part("orders", 0), s.part("orders", 1))
	p := k.topics["orders"].partitions[partitionOf([]byte("key-1"), 3)]
	k.seal(p, at(1, 0))
	ev := s.part("orders", 2)
	ev.Key = []byte("key-1")
	s.publish(ev)
	for _, b := range append(p.gathered, p.open) {
		if slicesHas(b, at(2, 1)) {
			require.Len(t, b.entries, 1)
		}
	}
}

func slicesHas(b *batch, pos checkpoint.Position) bool {
	for i := range b.entries {
		if b.entries[i].pos == pos {
			return true
		}
	}
	return false
}

// A limit is lowered: batches that are too large now are no reason to skip anything.
func TestTransactionPoison_LimitLowered(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), func(c *Config) { exactly(c); c.OnPoison = Skip })
	s := begin(t, k, checkpoint.Run{Line: line()})
	s.bad(1, 1, nil)
	s.settle()
	admin, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	require.NoError(t, err)
	defer admin.Close()
	_, err = kadm.NewClient(admin).AlterTopicConfigs(context.Background(),
		[]kadm.AlterConfig{{Name: "max.message.bytes", Value: new("2000")}}, "orders")
	require.NoError(t, err)
	large := map[string]func(*decoder.Event){"2-0": size(1500), "2-1": size(1500), "3-3": size(3000)}
	s.bad(2, 4, large)
	require.ErrorContains(t, s.fails(), "its transaction is given up")
	s, _ = s.again(1, func(s *session) { s.bad(1, 4, large) })
	require.Equal(t, at(3, 3), s.poison[0].Position)
	sees(t, c.ListenAddrs(), "orders", all(1, 4, "3-3"))
}

// The dead-letter topic refuses letters: they are unfit, and the stream goes on.
func TestTransactionPoison_RefusedLetters(t *testing.T) {
	t.Parallel()
	for _, code := range []*kerr.Error{kerr.InvalidRecord, kerr.MessageTooLarge} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(1, "orders", "dead"))
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "dead", Err: code, Count: -1})
			k := start(t, c.ListenAddrs(), func(c *Config) { exactly(c); c.OnPoison, c.DeadTopic = DeadLetter, "dead" })
			s := begin(t, k, checkpoint.Run{Line: line()})
			spoil := map[string]func(*decoder.Event){"1-1": unfit, "2-2": unfit, "2-3": unfit}
			s, _ = s.again(3, func(s *session) { s.bad(1, 3, spoil) })
			for _, p := range s.poison {
				require.Equal(t, checkpoint.Unfit, p.Action)
				require.Contains(t, p.Reason, "not a timestamp")
				require.Contains(t, p.Reason, "the broker refuses it")
			}
			sees(t, c.ListenAddrs(), "orders", all(1, 3, "1-1", "2-2", "2-3"))
		})
	}
}

// Events whose topic is unknown hold every transaction up, and then go on in order.
func TestTransactionPoison_Limbo(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), exactly)
	s := begin(t, k, checkpoint.Run{Line: line()})
	s.bad(1, 1, nil)
	s.settle()
	later := map[string]func(*decoder.Event){
		"2-3": func(ev *decoder.Event) { ev.Route[0] = []byte("later") },
		"3-3": func(ev *decoder.Event) { ev.Route[0] = []byte("later") },
	}
	s.bad(2, 4, later)
	require.Eventually(t, func() bool { return len(k.Troubles()) == 1 }, patience, time.Millisecond)
	s.take()
	require.Len(t, s.settled, 5)
	require.NoError(t, c.CreateTopic("later", 1, nil))
	s.settle()
	s.reaches()
	sees(t, c.ListenAddrs(), "orders", all(1, 4, "2-3", "3-3"))
	sees(t, c.ListenAddrs(), "later", []string{"id-2-3", "id-3-3"})
}

func TestTransactionPoison_MissingTopic(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), func(c *Config) { exactly(c); c.OnPoison = Skip })
	s := begin(t, k, checkpoint.Run{Line: line()})
	missing := map[string]func(*decoder.Event){
		"2-3": func(ev *decoder.Event) { ev.Route[0] = []byte("missing") },
		"3-3": func(ev *decoder.Event) { ev.Route[0] = []byte("missing") },
	}
	s.bad(1, 4, missing)
	s.record(2)
	s.reaches()
	require.Equal(t, "the topic does not exist", s.poison[0].Reason)
	sees(t, c.ListenAddrs(), "orders", all(1, 4, "2-3", "3-3"))
}

// The topic of states takes no events.
func TestTransactionPoison_StateTopic(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), func(c *Config) { exactly(c); c.OnPoison = Skip })
	s := begin(t, k, checkpoint.Run{Line: line()})
	s.bad(1, 2, map[string]func(*decoder.Event){"1-1": func(ev *decoder.Event) { ev.Route[0] = []byte("states") }})
	s.record(1)
	s.reaches()
	sees(t, c.ListenAddrs(), "orders", all(1, 2, "1-1"))
}
