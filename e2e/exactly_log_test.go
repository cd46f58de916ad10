package e2e

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// newExactly is newSetup for exactly-once delivery, with a topic of states that no other test uses.
func newExactly(t *testing.T, server *testenv.Server, cluster *testenv.Cluster, partitions int) *setup {
	t.Helper()
	s := newSetup(t, server, cluster, partitions)
	s.exactly()
	return s
}

// deliveries are the set-ups of the delivery modes, by name.
func deliveries() map[string]func(*testing.T, *testenv.Server, *testenv.Cluster, int) *setup {
	return map[string]func(*testing.T, *testenv.Server, *testenv.Cluster, int) *setup{
		"at-least-once": newSetup, "exactly-once": newExactly,
	}
}

// exactly switches to exactly-once delivery, and to consumers that rely on it.
func (s *setup) exactly() {
	s.t.Helper()
	s.set("WALRELAY_DELIVERY", "exactly-once")
	s.set("WALRELAY_STATE_TOPIC", s.states())
	s.committed = true
	s.cluster.CreateTopic(s.t, s.states(), 1, map[string]string{"cleanup.policy": "compact"})
}

func (s *setup) states() string { return s.prefix + "state" }

// consume reads what the setup's consumers may see.
func (s *setup) consume(topics ...string) *testenv.Consumer {
	s.t.Helper()
	if s.committed {
		return s.cluster.ConsumeCommitted(s.t, topics...)
	}
	return s.cluster.Consume(s.t, topics...)
}

// state is the one that was committed last.
func (s *setup) state() written {
	s.t.Helper()
	states := s.kafkaTransactions().states
	require.NotEmpty(s.t, states)
	return states[len(states)-1]
}

// producer is one life of a transactional id: another instance, or another run, has another one.
type producer struct {
	id    int64
	epoch int16
}

// chunk is what one transaction of Kafka has left in a partition, or would have.
type chunk struct {
	producer
	records []*kgo.Record
}

// written is a state with the producer of its transaction.
type written struct {
	*checkpoint.State
	producer
	position string
	record   *kgo.Record
}

// transactions is what a stream has written in transactions that were committed.
type transactions struct {
	states  []written
	chunks  map[judge.Partition][]chunk
	aborted int // events; a state may have gone alone, and then a stop does not wait for it
	open    int // transactions, counted in each partition
}

// kafkaTransactions reads topics with the markers that end transactions in each partition. The topic of
// states has one partition, and each transaction has one record there.
func (s *setup) kafkaTransactions(topics ...string) *transactions {
	s.t.Helper()
	result := &transactions{chunks: map[judge.Partition][]chunk{}}
	for name, records := range s.everything(append(topics, s.states())...) {
		open := map[int64]chunk{}
		for _, r := range records {
			if !r.Attrs.IsControl() {
				require.True(s.t, r.Attrs.IsTransactional(), "%s-%d at %d", r.Topic, r.Partition, r.Offset)
				c := open[r.ProducerID]
				if len(c.records) == 0 {
					c.producer = producer{r.ProducerID, r.ProducerEpoch}
				}
				require.Equal(s.t, c.epoch, r.ProducerEpoch, "one transaction, two producers")
				c.records = append(c.records, r)
				open[r.ProducerID] = c
				continue
			}
			c := open[r.ProducerID]
			delete(open, r.ProducerID)
			// Version and type, of two bytes each: https://kafka.apache.org/documentation/#controlbatch.
			switch commits := r.Key[3] == 1; {
			case !commits && name.Topic != s.states():
				result.aborted += len(c.records)
			case commits && len(c.records) > 0:
				result.chunks[name] = append(result.chunks[name], c)
			}
		}
		result.open += len(open)
	}
	states := judge.Partition{Topic: s.states()}
	for _, c := range result.chunks[states] {
		require.Len(s.t, c.records, 1, "a transaction has one state")
		state, err := checkpoint.ParseState(c.records[0].Value)
		require.NoError(s.t, err)
		w := written{State: state, producer: c.producer, record: c.records[0]}
		if !state.Position.IsZero() {
			w.position = state.Position.String()
		}
		result.states = append(result.states, w)
	}
	delete(result.chunks, states)
	return result
}

// producers are those which have committed something, in their order.
func (x *transactions) producers() (all []producer) {
	for _, w := range x.states {
		if len(all) == 0 || all[len(all)-1] != w.producer {
			all = append(all, w.producer)
		}
	}
	return all
}

// whole expects that what each transaction of Kafka has in each partition are just the events between the
// state before and its own, so that no consumer sees a part of it, and that no transaction of PostgreSQL is
// divided unless a state says so. It returns the number of events by the transaction of PostgreSQL.
//
// Markers don't name the transaction that they end. What ties those of several partitions together is their
// order: the states of a producer follow one another as its transactions do, and its last one is that which a
// kill has or has not prevented.
func (x *transactions) whole(t *testing.T) map[string]int {
	t.Helper()
	require.Zero(t, x.open, "a transaction is open")
	sizes, in, divided := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, w := range x.states {
		if w.Partial {
			divided[transactionOf(w.position)] = true
		}
	}
	for name, chunks := range x.chunks {
		before := -1
		for _, c := range chunks {
			at := x.state(t, c.records[0])
			require.Greater(t, at, before, "two transactions for one state in %v", name)
			require.Equal(t, x.states[at].producer, c.producer, "events and state of two producers in %v", name)
			before = at
			for _, r := range c.records {
				require.Equal(t, at, x.state(t, r), "one transaction, two states in %v", name)
				tx := transactionOf(positionOf(r))
				if number, ok := in[tx]; ok && !divided[tx] {
					require.Equal(t, number, at, "a transaction of PostgreSQL is divided")
				}
				in[tx] = at
				sizes[tx]++
			}
		}
	}
	return sizes
}

// state is the number of the one that was the first to cover a record.
func (x *transactions) state(t *testing.T, r *kgo.Record) int {
	t.Helper()
	position := positionOf(r)
	at := slices.IndexFunc(x.states, func(w written) bool { return w.position >= position })
	require.GreaterOrEqual(t, at, 0, "no state covers %s", position)
	return at
}

// positionOf is that of the event, of which a record may be the dead letter.
func positionOf(r *kgo.Record) string {
	return cmp.Or(judge.Header(r, "walrelay-position"), judge.Header(r, "walrelay-source-position"))
}

// transactionOf is a position without its last part.
func transactionOf(position string) string { return position[:checkpoint.PositionLen-9] }

// marked waits until the brokers have written the markers of every transaction of the stream that is decided: they
// answer that it is committed before, and write to each partition on its own. An end that is read earlier misses them.
// What a killed process has left undecided stays so.
func (s *setup) marked() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		decided, err := s.cluster.Admin.ListTransactions(s.t.Context(), nil, []string{"PrepareCommit", "PrepareAbort"})
		for id := range decided {
			if id == "walrelay-"+s.slot || strings.HasPrefix(id, "walrelay-"+s.slot+":") { // a replay's
				return false
			}
		}
		return err == nil
	}, wait, tick)
}

// everything is what topics hold now, with markers and what was aborted, by partition and in order.
func (s *setup) everything(topics ...string) map[judge.Partition][]*kgo.Record {
	s.t.Helper()
	s.marked()
	ctx, cancel := context.WithTimeout(s.t.Context(), wait)
	defer cancel()
	left := s.ends(topics...)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(s.cluster.Addrs()...),
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.KeepControlRecords(),
		kgo.FetchMaxWait(100*time.Millisecond),
	)
	require.NoError(s.t, err)
	defer client.Close()
	records := map[judge.Partition][]*kgo.Record{}
	for name, end := range left {
		if end == 0 {
			delete(left, name)
		}
	}
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		require.NoError(s.t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			name := judge.Partition{Topic: r.Topic, ID: r.Partition}
			end, ok := left[name]
			if !ok {
				return
			}
			records[name] = append(records[name], r)
			if r.Offset >= end-1 {
				delete(left, name)
			}
		})
	}
	return records
}
