package sink

import (
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/testenv"
)

type silent struct{}

func (silent) Acked(string, int, []time.Time, time.Time) {}
func (silent) Throttled(string, time.Duration)           {}
func (silent) Renamed(string)                            {}

func quietly(c *Config) { c.Logger, c.Observer, c.BatchBytes = zap.NewNop(), silent{}, 1_000_000 }

// publisher is a sink whose batches go nowhere: recycle takes them back.
func publisher(t testing.TB, change func(*Config)) (k *Kafka, recycle func()) {
	t.Helper()
	k, err := New(testConfig(t, []string{"127.0.0.1:1"}, func(c *Config) { change(c); quietly(c) }))
	require.NoError(t, err)
	k.run = &run{Run: checkpoint.Run{Mailbox: checkpoint.NewMailbox(), Partitions: map[string]int32{}}}
	if k.tx != nil {
		l := line()
		k.run.gather = newGather(l, l.Begin())
	}
	topic := k.topic([]byte("orders"))
	k.adopt(topic, &topicInfo{leaders: []int32{-1, -1, -1}, limit: defaultMaxMessageBytes})
	return k, func() {
		for _, p := range topic.partitions {
			p.close()
			for _, batches := range [][]*batch{p.queue, p.gathered} {
				for _, b := range batches {
					k.release(b)
				}
			}
			p.queue, p.gathered = p.queue[:0], p.gathered[:0]
		}
	}
}

func TestPublish_AllocatesNothing(t *testing.T) {
	for name, change := range map[string]func(*Config){"at least once": func(*Config) {}, "exactly once": exactly} {
		t.Run(name, func(t *testing.T) {
			k, recycle := publisher(t, change)
			s := &session{t: t, k: k}
			ev := s.event("orders", "key")
			round := func() {
				for i := range 1000 {
					k.Publish(1, ev)
					if i%100 == 0 {
						k.Reached(pglogrepl.LSN(i))
					}
				}
				recycle()
			}
			for range 3 {
				round()
			}
			require.Zero(t, testing.AllocsPerRun(10, round))
		})
	}
}

func BenchmarkPublish(b *testing.B) {
	k, recycle := publisher(b, func(*Config) {})
	s := &session{t: b, k: k}
	ev := s.event("orders", "key", value(make([]byte, 200)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		k.Publish(1, ev)
		if n++; n%1000 == 0 {
			recycle()
		}
	}
}

// BenchmarkDeliver publishes to a real broker and waits for the acknowledgements, an event a round.
func BenchmarkDeliver(b *testing.B) {
	for _, codec := range []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionLZ4, sarama.CompressionZSTD,
	} {
		b.Run(codec.String(), func(b *testing.B) {
			kafka := testenv.Kafka(b)
			topic := kafka.Topic(b, 6, nil)
			k := start(b, kafka.Addrs(), func(c *Config) { quietly(c); c.Compression = codec })
			s := begin(b, k, checkpoint.Run{})
			ev := s.event(topic, "key", value([]byte(fmt.Sprintf("{%0200d}", 1))))
			settled := 0
			take := func() {
				s.run.Mailbox.Take(&s.mail)
				settled += len(s.mail.Settled)
			}
			b.ReportAllocs()
			for b.Loop() {
				s.seq++
				ev.Position.LSN++
				ev.Key = fmt.Appendf(ev.Key[:0], "key-%d", s.seq%1000)
				k.Publish(s.seq, ev)
				if s.seq%100 == 0 {
					for take(); int(s.seq)-settled > 50_000; take() {
						<-s.run.Mailbox.Wake()
					}
				}
			}
			k.Flush()
			for take(); settled < int(s.seq); take() {
				<-s.run.Mailbox.Wake()
			}
		})
	}
}
