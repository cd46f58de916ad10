package sink

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/testenv"
)

func lettersOf(t testing.TB, k *Kafka) *Letters {
	t.Helper()
	cfg := k.cfg
	cfg.Logger, cfg.Observer, cfg.Now = nil, nil, nil
	l, err := OpenLetters(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	require.NoError(t, l.Find(t.Context()))
	return l
}

// shape is everything of a record that a consumer sees but for its place.
func shape(r *kgo.Record) string {
	text := fmt.Sprintf("%d %q %t %q %t", r.Timestamp.UnixMilli(), r.Key, r.Key == nil, r.Value, r.Value == nil)
	for _, h := range r.Headers {
		if h.Key != headerPosition && h.Key != headerReplay {
			text += fmt.Sprintf(" %s=%q,%t", h.Key, h.Value, h.Value == nil)
		}
	}
	return text
}

// A letter becomes the event's record again, byte for byte but for the mark in place of the position.
func TestLetters_BecomeTheirEvents(t *testing.T) {
	t.Parallel()
	kafka := testenv.Kafka(t)
	for name, mode := range map[string]func(*Config){"at least once": nil, "exactly once": exactly} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The broker takes no more of the small topic than fits, and everything of the large one.
			small := kafka.Topic(t, 1, map[string]string{"max.message.bytes": "1000"})
			large, dead := kafka.Topic(t, 1, nil), kafka.Topic(t, 3, nil)
			config := func(c *Config) {
				if mode != nil {
					mode(c)
					c.StateTopic = kafka.Topic(t, 1, map[string]string{"cleanup.policy": "compact"})
				}
				c.Stream, c.DeadTopic, c.OnPoison = dead, dead, DeadLetter
			}
			k := start(t, kafka.Addrs(), config)
			s := begin(t, k, checkpoint.Run{Line: line()})
			big := make([]byte, 2000)
			changes := []func(*decoder.Event){
				func(*decoder.Event) {},
				func(ev *decoder.Event) { ev.Key = nil },
				func(ev *decoder.Event) { ev.Type, ev.TraceParent = []byte("paid"), []byte("00-1-2-01") },
				func(ev *decoder.Event) { ev.Type = []byte{} },
				func(ev *decoder.Event) {
					ev.Headers = []byte(`{"a": "\" \\ \n \u0001 ü", "b": null, "c": 1.0, "a": "", "d": {"e": [1]}, ` +
						`"traceparent": "x"}`)
				},
				func(ev *decoder.Event) { ev.Headers = []byte("{\"x\": \"\xff\\t\"}") },
				func(ev *decoder.Event) { ev.Timestamp = []byte("2026-01-02 12:04:05.123456+01") },
			}
			var positions []checkpoint.Position
			for _, change := range changes {
				for _, topic := range []string{large, small} {
					ev := s.event(topic, "key", value(big), change)
					ev.ID = fmt.Appendf(nil, "id-%d", (s.lsn-1)/2)
					ev.CommitTime = committed.Add(time.Duration((s.lsn-1)/2) * time.Microsecond)
					s.publish(ev)
					k.Reached(ev.Position.LSN)
					if topic == small {
						positions = append(positions, ev.Position)
					}
				}
			}
			k.Flush()
			k.Full()
			s.until("all", func() bool {
				for _, p := range s.poison {
					k.Recorded([]uint64{p.Seq})
				}
				return len(s.settled) == len(changes) && len(s.poison) == len(changes)
			})
			if mode != nil {
				s.reaches()
			}
			before := consume(t, kafka.Addrs(), len(changes), large)

			var letters *Letters
			require.Eventually(t, func() bool { // the marker of a transaction comes a little later
				letters = lettersOf(t, k)
				_, found := letters.Place(positions[len(positions)-1])
				return found
			}, patience, tick)
			replay := begin(t, start(t, kafka.Addrs(), func(c *Config) {
				config(c)
				c.Replay, c.OnPoison = "dead-letters", Skip
			}), checkpoint.Run{})
			for i, p := range positions {
				ev, err := letters.Read(t.Context(), p)
				require.NoError(t, err)
				require.NoError(t, ev.Fault)
				ev.Route, ev.Position = [][]byte{[]byte(large)}, position(uint64(i+1))
				replay.publish(ev)
				replay.k.Reached(ev.Position.LSN)
			}
			replay.k.Flush()
			replay.k.Full()
			replay.settle()
			all := consume(t, kafka.Addrs(), 2*len(changes), large)
			for i, after := range all[len(changes):] {
				require.Equal(t, shape(before[i]), shape(after))
				_, positioned := header(after, headerPosition)
				require.False(t, positioned)
				mark, _ := header(after, headerReplay)
				require.Equal(t, "dead-letters", mark)
			}

			_, err := letters.Read(t.Context(), position(999))
			require.ErrorIs(t, err, ErrNoLetter)
		})
	}
}

// What a letter cannot become an event of keeps its fault: headers that are none, and no id.
func TestLetters_KeepTheirFault(t *testing.T) {
	t.Parallel()
	kafka := testenv.Kafka(t)
	topic, dead := kafka.Topic(t, 1, nil), kafka.Topic(t, 1, nil)
	k := start(t, kafka.Addrs(), func(c *Config) { c.Stream, c.DeadTopic, c.OnPoison = dead, dead, DeadLetter })
	s := begin(t, k, checkpoint.Run{})
	s.publish(s.event(topic, "a", func(ev *decoder.Event) { ev.Headers = []byte("[1]") }),
		s.event(topic, "a", func(ev *decoder.Event) { ev.ID, ev.Fault = nil, errors.New("column id is NULL") }))
	k.Flush()
	s.until("both", func() bool { return len(s.poison) == 2 })
	letters := lettersOf(t, k)
	ev, err := letters.Read(t.Context(), s.poison[0].Position)
	require.NoError(t, err)
	require.Equal(t, "[1]", string(ev.Headers))
	ev, err = letters.Read(t.Context(), s.poison[1].Position)
	require.NoError(t, err)
	require.EqualError(t, ev.Fault, "the event has no id")
}

// Headers that were refused are completed by the others of the record, for when they are allowed.
func TestLetterHeaders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ object, refused, want string }{
		{"", "", ""},
		{`{"a":"b"`, "", `{"a":"b"}`},
		{`{"a":"b"`, `{"ce_x": 1.0, "a": null}`, `{"a":"b","ce_x":"1.0","a":null}`},
		{"", `{"ce_x": "y"}`, `{"ce_x":"y"}`},
		{`{"a":"b"`, `[1]`, `[1]`},
	} {
		text := func(s string) []byte {
			if s == "" {
				return nil
			}
			return []byte(s)
		}
		require.Equal(t, text(c.want), letterHeaders(text(c.object), text(c.refused)))
	}
}

// Letters that have gone, of another stream, or in a transaction that was aborted are not there.
func TestLetters_Gone(t *testing.T) {
	t.Parallel()
	kafka := testenv.Kafka(t)
	dead := kafka.Topic(t, 1, nil)
	letter := func(stream string, lsn uint64) *kgo.Record {
		return &kgo.Record{Topic: dead, Value: []byte("x"), Headers: []kgo.RecordHeader{
			{Key: headerID, Value: []byte("1")},
			{Key: headerStream, Value: []byte(stream)},
			{Key: headerSourcePosition, Value: []byte(position(lsn).String())},
		}}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Addrs()...), kgo.TransactionalID(dead))
	require.NoError(t, err)
	defer client.Close()
	write := func(how kgo.TransactionEndTry, records ...*kgo.Record) {
		require.NoError(t, client.BeginTransaction())
		require.NoError(t, client.ProduceSync(ctx, records...).FirstErr())
		require.NoError(t, client.EndTransaction(ctx, how))
	}
	write(kgo.TryCommit, letter("ours", 1))
	write(kgo.TryCommit, letter("ours", 2), letter("theirs", 3))
	write(kgo.TryAbort, letter("ours", 4))
	write(kgo.TryCommit, letter("ours", 5))
	marked(t, kafka, dead)
	cfg := testConfig(t, kafka.Addrs(), func(c *Config) { c.Stream, c.DeadTopic = "ours", dead })
	letters, err := OpenLetters(t.Context(), cfg)
	require.NoError(t, err)
	defer letters.Close()
	require.NoError(t, letters.Find(ctx))
	for lsn, there := range map[uint64]bool{1: true, 2: true, 3: false, 4: false, 5: true} {
		_, found := letters.Place(position(lsn))
		require.Equal(t, there, found, "%d", lsn)
	}

	first, _ := letters.Place(position(2))
	answers, err := kafka.Admin.DeleteRecords(ctx, deleteBefore(dead, first.Offset))
	require.NoError(t, err)
	require.NoError(t, answers.Error())
	_, err = letters.Read(ctx, position(1))
	require.ErrorIs(t, err, ErrNoLetter)
	_, err = letters.Read(ctx, position(2))
	require.NoError(t, err)

	missing := cfg
	missing.DeadTopic = dead + "-missing"
	none, err := OpenLetters(t.Context(), missing)
	require.NoError(t, err)
	defer none.Close()
	require.NoError(t, none.Find(ctx))
	_, err = none.Read(ctx, position(1))
	require.ErrorIs(t, err, ErrNoLetter)
}

// marked waits until the markers of all transactions of a topic are written: their ends are answered before.
func marked(t *testing.T, kafka *testenv.Cluster, topic string) {
	t.Helper()
	require.Eventually(t, func() bool {
		stable, err := kafka.Admin.ListCommittedOffsets(t.Context(), topic)
		if err != nil || stable.Error() != nil {
			return false
		}
		ends, err := kafka.Admin.ListEndOffsets(t.Context(), topic)
		open := err != nil || ends.Error() != nil
		ends.Each(func(end kadm.ListedOffset) {
			last, _ := stable.Lookup(end.Topic, end.Partition)
			open = open || last.Offset < end.Offset
		})
		return !open
	}, patience, tick)
}

func deleteBefore(topic string, offset int64) kadm.Offsets {
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, offset, -1)
	return offsets
}
