package sink

import (
	"bytes"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/testenv"
)

// replaying makes a sink one of a replay.
func replaying(c *Config) { c.Replay, c.OnPoison = "again", Skip }

// row is an event that was read from the table.
func (s *session) row(topic, key string, change ...func(*decoder.Event)) *decoder.Event {
	return s.event(topic, key, append(change, func(ev *decoder.Event) { ev.CommitTime = time.Time{} })...)
}

// A replayed row is its event's record, but for the position and the commit time.
func TestReplay_HasAMarkInPlaceOfAPosition(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), replaying)
	s := begin(t, k, checkpoint.Run{})
	before := time.Now().Truncate(time.Millisecond)
	s.publish(s.row("orders", "a", func(ev *decoder.Event) {
		ev.Type, ev.Headers = []byte("paid"), []byte(`{"tenant": "7"}`)
	}), s.event("orders", "a"))
	k.Flush()
	s.settle()

	records := consume(t, c.ListenAddrs(), 2, "orders")
	names := func(i int) (names []string) {
		for _, h := range records[i].Headers {
			names = append(names, h.Key)
		}
		return names
	}
	require.Equal(t, []string{"id", "walrelay-stream", "walrelay-replay", "eventType", "tenant"}, names(0))
	require.Equal(t, []string{"id", "walrelay-stream", "walrelay-replay", "walrelay-commit-time"}, names(1),
		"its commit time is known")
	name, _ := header(records[0], headerReplay)
	require.Equal(t, "again", name)
	require.False(t, records[0].Timestamp.Before(before), "the time of the replay, for want of another")
}

// The size by which a replayed row is judged oversize is the one on the wire.
func TestReplay_SizeIsTheWiresSize(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t)
	require.NoError(t, c.CreateTopic("orders", 1, map[string]string{"max.message.bytes": "1000"}))
	k := start(t, c.ListenAddrs(), replaying)
	s := begin(t, k, checkpoint.Run{})
	largest := s.row("orders", "a", value(bytes.Repeat([]byte("x"), 1000)))
	for ; ; largest.Payload = largest.Payload[1:] {
		k.mu.Lock()
		e, _, _ := k.record(0, largest)
		k.mu.Unlock()
		if int(e.size)+batchOverhead == 1000 {
			break
		}
	}
	larger := *largest
	larger.Payload = append(larger.Payload, 'x')
	s.publish(&larger, largest)
	k.Flush()
	s.until("both", func() bool { return len(s.settled) == 1 && len(s.poison) == 1 })
	require.Equal(t, checkpoint.Skipped, s.poison[0].Action)
	require.Contains(t, s.poison[0].Reason, "the record takes 1001 bytes")
	require.Len(t, consume(t, c.ListenAddrs(), 1, "orders")[0].Value, len(largest.Payload))
}

// Beside a stream that delivers exactly once, a replay has transactions of its own, and the stream goes on.
func TestReplay_ExactlyOnceBesideItsStream(t *testing.T) {
	t.Parallel()
	cluster := testenv.Kafka(t)
	topic, states := cluster.Topic(t, 3, nil), cluster.Topic(t, 1, map[string]string{"cleanup.policy": "compact"})
	name := "beside-" + topic
	as := func(change func(*Config)) func(*Config) {
		return func(c *Config) {
			exactly(c)
			c.Stream, c.StateTopic = name, states
			if change != nil {
				change(c)
			}
		}
	}
	stream := begin(t, start(t, cluster.Addrs(), as(nil)), checkpoint.Run{Line: line()})
	stream.transaction(topic, 10)
	stream.reaches()

	replay := begin(t, start(t, cluster.Addrs(), as(replaying)), checkpoint.Run{})
	for i := range 250 {
		replay.publish(replay.row(topic, "", func(ev *decoder.Event) {
			if i == 249 {
				ev.Headers = []byte("refused") // the last transaction has nothing but poison
			}
		}))
		replay.k.Reached(pglogrepl.LSN(replay.lsn))
	}
	replay.k.Full()
	replay.until("the rows", func() bool {
		for _, p := range replay.poison {
			replay.k.Recorded([]uint64{p.Seq})
		}
		return len(replay.settled) == 249 && len(replay.poison) == 1
	})

	stream.transaction(topic, 10)
	stream.reaches()
	require.Len(t, committedOf(t, cluster.Addrs(), topic, 10+249+10), 10+249+10)
	require.Len(t, committedOf(t, cluster.Addrs(), states, 3), 3, "the stream's states alone")
}
