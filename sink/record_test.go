package sink

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	logs "go.uber.org/zap/zaptest/observer"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// maybe returns null, an empty value or up to n random bytes.
func maybe(r *rand.Rand, n int) []byte {
	if r.IntN(4) == 0 {
		return nil
	}
	b := make([]byte, r.IntN(n))
	for i := range b {
		b[i] = 'a' + byte(r.IntN(26))
	}
	return b
}

// The size by which records are judged oversize is the one on the wire, for any record, with all that is added late.
func TestRecordSize_IsTheWiresSize(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"stream":    func(*Config) {},
		"formatted": func(c *Config) { c.Shape = &Shape{Value: JSON} },
		"replay":    func(c *Config) { c.Replay, c.OnPoison = "again", Skip },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sizesOnTheWire(t, change)
		})
	}
}

func sizesOnTheWire(t *testing.T, change func(*Config)) {
	t.Helper()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders", "dead"))
	var mu sync.Mutex
	wire := map[string][]int{}
	c.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		mu.Lock()
		defer mu.Unlock()
		for _, topic := range kreq.(*kmsg.ProduceRequest).Topics {
			wire[topic.Topic] = append(wire[topic.Topic], len(topic.Partitions[0].Records))
		}
		return nil, nil, false
	})
	k := start(t, c.ListenAddrs(), func(c *Config) { // every record is a batch
		c.BatchBytes, c.OnPoison, c.DeadTopic = 1, DeadLetter, "dead"
		change(c)
	})
	sizes := &sizeObserver{sizes: map[string][]int{}}
	k.cfg.Observer = sizes
	s := begin(t, k, checkpoint.Run{})
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 600 {
		ev := s.event("orders", "", func(ev *decoder.Event) {
			ev.ID, ev.Key, ev.Payload = maybe(r, 50), maybe(r, 200), maybe(r, 20000)
			ev.Type, ev.TraceParent, ev.TraceState = maybe(r, 80), maybe(r, 80), maybe(r, 80)
			ev.SpanContext, ev.Marked, ev.Count = maybe(r, 80), r.IntN(2) == 0, r.Uint32()
			if n := r.IntN(150); r.IntN(2) == 0 {
				ev.Headers = []byte("{")
				for h := range n {
					ev.Headers = fmt.Appendf(ev.Headers, `"%d-%s":"%s",`, h, maybe(r, 90), maybe(r, 90))
				}
				ev.Headers = append(ev.Headers, `"last":null}`...)
			}
		})
		if i%5 == 0 {
			ev.Headers = []byte("malformed")
		}
		if k.cfg.Replay != "" && i%2 == 0 {
			ev.CommitTime = time.Time{} // a row's, not a letter's
		}
		s.publish(ev)
	}
	k.Flush()
	s.until("all", func() bool { return len(s.settled)+len(s.poison) == 600 })
	want := map[string]int{"orders": 480, "dead": 120}
	if k.cfg.OnPoison == Skip {
		delete(want, "dead")
	}
	sizes.await(t, want["orders"]+want["dead"])
	mu.Lock()
	defer mu.Unlock()
	sizes.mu.Lock()
	defer sizes.mu.Unlock()
	for topic, n := range want {
		require.Len(t, wire[topic], n)
	}
	require.Equal(t, wire, sizes.sizes)
}

// sizeObserver notes what every batch of one record is expected to take.
type sizeObserver struct {
	mu    sync.Mutex
	sizes map[string][]int
}

func (o *sizeObserver) Acked(topic string, bytes int, _ []time.Time, _ time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sizes[topic] = append(o.sizes[topic], bytes-deltaReserve+batchOverhead)
}

func (o *sizeObserver) await(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.sizes["orders"])+len(o.sizes["dead"]) == n
	}, patience, time.Millisecond)
}

func (o *sizeObserver) Throttled(string, time.Duration) {}

func (o *sizeObserver) Renamed(string) {}

func TestEncoder_CompressesUnlessThatCouldExceedTheLimit(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 100_000)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(noise)
	for _, codec := range []sarama.CompressionCodec{
		sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
	} {
		t.Run(codec.String(), func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t)
			require.NoError(t, c.CreateTopic("orders", 1, map[string]string{"max.message.bytes": "100000"}))
			log := watch(c)
			k := start(t, c.ListenAddrs(), func(c *Config) { c.Compression, c.BatchBytes = codec, 1<<20 })
			s := begin(t, k, checkpoint.Run{})
			s.publish(s.event("orders", "a", value(bytes.Repeat([]byte("x"), 90_000))))
			k.Flush()
			s.settle()
			// The largest record that the topic takes, of bytes that do not compress.
			largest := s.event("orders", "a", value(noise))
			for ; ; largest.Payload = largest.Payload[1:] {
				k.mu.Lock()
				e, _, _ := k.record(0, largest)
				k.mu.Unlock()
				if int(e.size)+batchOverhead == 100_000 {
					break
				}
			}
			s.publish(largest)
			for range 10 {
				s.publish(s.event("orders", "a", value(noise[:30_000])))
			}
			k.Flush()
			s.delivered(c.ListenAddrs(), "orders")
			batches := log.of(0)
			require.EqualValues(t, codec, batches[0].attributes)
			require.Zero(t, batches[1].attributes)
			for _, b := range batches[2:] {
				require.EqualValues(t, codec, b.attributes)
			}
		})
	}
}

func TestClampMillis(t *testing.T) {
	t.Parallel()
	for at, want := range map[time.Time]int64{
		time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC):                  0,
		time.Date(1970, 1, 1, 0, 0, 0, 1_999_999, time.UTC):          1,
		time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC):                  1767225600000,
		time.Date(294276, 12, 31, 23, 59, 59, 999_999_999, time.UTC): 9223372036854,
	} {
		require.Equal(t, want, clampMillis(at))
	}
}

func TestClassify_EveryCodeHasOneClassAndAReason(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[class]int{acked: 2, retry: 23, refuse: 5, order: 1, rewind: 8},
		classes(t, classify, "not an answer that a produce request is known to get"))
	require.Equal(t, map[class]int{acked: 1, retry: 20, rewind: 5},
		classes(t, classifyTransaction, "not an answer that these requests are known to get"))
}

// classes counts the codes that are known, and checks every one's verdict.
func classes(t *testing.T, classify func(sarama.KError) verdict, unknown string) map[class]int {
	t.Helper()
	known := map[class]int{}
	for code := sarama.KError(-1); code < 200; code++ {
		v := classify(code)
		require.Contains(t, []class{acked, retry, refuse, order, rewind}, v.class)
		require.NotEmpty(t, v.reason)
		if v.reason != unknown {
			known[v.class]++
		} else {
			require.Equal(t, rewind, v.class)
		}
		require.False(t, v.ambiguous && v.class != retry)
	}
	return known
}

func TestTrouble_AnOutageIsAFewLines(t *testing.T) {
	t.Parallel()
	core, lines := logs.New(zap.InfoLevel)
	trouble := newTrouble(zap.New(core))
	at, noLeader := time.Now(), fmt.Errorf("partition 1: %w", sarama.ErrLeaderNotAvailable)
	trouble.report("topic a", noLeader, at)
	for i := range 600 { // two reasons that alternate for five minutes
		at = at.Add(500 * time.Millisecond)
		trouble.report("topic a", []error{noLeader, sarama.ErrNotEnoughReplicas}[i%2], at)
	}
	require.LessOrEqual(t, lines.Len(), 61)
	require.Len(t, trouble.list(), 1)
	require.Equal(t, "replicas", trouble.list()[0].Kind)
	trouble.clear("topic a", at)
	trouble.clear("topic a", at)
	require.Equal(t, 1, lines.FilterMessage("delivery goes on").Len())
	require.Empty(t, trouble.list())
}

func TestParseTemplate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"outbox.event.{a}": "outbox.event.1", "{a}": "1", "{a}-{b}.x": "1-2.x", "plain": "plain",
	} {
		template, err := ParseTemplate(text)
		require.NoError(t, err)
		require.Equal(t, want, string(template.Append(nil, [][]byte{[]byte("1"), []byte("2")})))
		require.Equal(t, text, template.String())
	}
	for _, text := range []string{"", "a b", "{", "{}", "{a", "a}b", "{a{b}}", "é"} {
		_, err := ParseTemplate(text)
		require.Error(t, err, text)
	}
}

func TestCheckTopic(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "A.b_c-9", "...", string(bytes.Repeat([]byte("x"), 249))} {
		require.Empty(t, checkTopic([]byte(name)))
	}
	for _, name := range []string{
		"", ".", "..", "a b", "a/b", "ü", "__transaction_state", string(bytes.Repeat([]byte("x"), 250)),
	} {
		require.NotEmpty(t, checkTopic([]byte(name)))
	}
}
