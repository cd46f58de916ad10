package sink

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap/zaptest"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

const patience = 2 * time.Minute // for what is expected to come

// observer counts what the sink reports to it.
type observer struct {
	mu        sync.Mutex
	acked     map[string]int
	throttled map[string]time.Duration
	renamed   map[string]int
}

func (o *observer) Acked(topic string, _ int, commits []time.Time, _ time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.acked[topic] += len(commits)
}

// observed is how many events of a topic k has reported to its observer as acknowledged.
func observed(k *Kafka, topic string) int {
	o := k.cfg.Observer.(*observer)
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.acked[topic]
}

func (o *observer) Throttled(topic string, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.throttled[topic] += d
}

func (o *observer) Renamed(topic string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.renamed[topic]++
}

// fakeKafka starts an in-process cluster.
func fakeKafka(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func testConfig(t testing.TB, brokers []string, change func(*Config)) Config {
	t.Helper()
	template, err := ParseTemplate("{topic}")
	require.NoError(t, err)
	cfg := Config{
		Stream: "test", Brokers: brokers, Topic: template, OnPoison: Stop,
		BatchBytes: 64 << 10, Timeout: 30 * time.Second,
		BackoffMin: 10 * time.Millisecond, BackoffMax: 100 * time.Millisecond,
		MissingAfter: 300 * time.Millisecond, MetadataEvery: time.Second,
		Logger:   zaptest.NewLogger(t),
		Observer: &observer{acked: map[string]int{}, throttled: map[string]time.Duration{}, renamed: map[string]int{}},
		Now:      time.Now,
	}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

// start runs a sink until the end of the test.
func start(t testing.TB, brokers []string, change func(*Config)) *Kafka {
	t.Helper()
	k, err := New(testConfig(t, brokers, change))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(patience):
			t.Error("the sink does not stop")
		}
	})
	return k
}

// session is the sink's user in a run: it publishes events and collects the mail.
type session struct {
	t    testing.TB
	k    *Kafka
	run  checkpoint.Run
	seq  uint64
	lsn  uint64
	mail checkpoint.Mail

	settled    map[uint64]int // how often each sequence was settled
	poison     []checkpoint.Poison
	partitions map[string]int32
}

var (
	table = &decoder.Mapping{Schema: "public", Table: "outbox"}
	// committed is when the first event was committed. Brokers remove records that are older than a week.
	committed = time.Now().Truncate(time.Second)
)

func begin(t testing.TB, k *Kafka, run checkpoint.Run) *session {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		s, err := tryBegin(t, k, run)
		if err == nil {
			return s
		}
		// A broker that has just started hands no producer ids out yet; the caller tries again.
		require.True(t, time.Now().Before(deadline), "%v", err)
		require.Never(t, func() bool { return false }, 100*time.Millisecond, 50*time.Millisecond)
	}
}

func tryBegin(t testing.TB, k *Kafka, run checkpoint.Run) (*session, error) {
	t.Helper()
	run.Mailbox = checkpoint.NewMailbox()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s := &session{t: t, k: k, run: run, settled: map[uint64]int{}, partitions: map[string]int32{}}
	return s, k.Begin(ctx, run)
}

// event is one event of its own transaction; its value is its position's text unless change says otherwise.
func (s *session) event(topic, key string, change ...func(*decoder.Event)) *decoder.Event {
	s.lsn++
	ev := &decoder.Event{
		Position:   position(s.lsn),
		CommitTime: committed.Add(time.Duration(s.lsn) * time.Microsecond), Mapping: table,
		ID: fmt.Appendf(nil, "id-%d", s.lsn), Payload: fmt.Appendf(nil, "%08d", s.lsn),
		Route: [][]byte{[]byte(topic)},
	}
	if key != "" {
		ev.Key = []byte(key)
	}
	for _, c := range change {
		c(ev)
	}
	return ev
}

func position(lsn uint64) checkpoint.Position {
	return checkpoint.Position{Epoch: 1, Timeline: 1, LSN: pglogrepl.LSN(lsn)}
}

func value(v []byte) func(*decoder.Event) { return func(ev *decoder.Event) { ev.Payload = v } }

// publish hands events over and returns the last one's sequence.
func (s *session) publish(events ...*decoder.Event) uint64 {
	for _, ev := range events {
		s.seq++
		s.k.Publish(s.seq, ev)
	}
	return s.seq
}

// some publishes n events with keys of their own to a topic, then flushes.
func (s *session) some(topic string, n int) {
	for range n {
		s.publish(s.event(topic, fmt.Sprintf("key-%d", s.lsn%97)))
	}
	s.k.Flush()
}

// take collects what has come by now.
func (s *session) take() {
	s.run.Mailbox.Take(&s.mail)
	for _, seq := range s.mail.Settled {
		s.settled[seq]++
	}
	s.poison = append(s.poison, s.mail.Poison...)
	for _, p := range s.mail.Partitions {
		s.partitions[p.Topic] = p.Count
	}
}

// until collects mail until done says so.
func (s *session) until(what string, done func() bool) {
	s.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for s.take(); !done(); s.take() {
		select {
		case <-s.run.Mailbox.Wake():
		case <-deadline.C:
			require.FailNow(s.t, "nothing came of "+what, "settled %d of %d, poison %v, error %v, troubles %v",
				len(s.settled), s.seq, s.poison, s.mail.Err, s.k.Troubles())
		}
	}
}

// never collects mail for a while, in which wrong must not hold. require.Never may leave its condition running.
func (s *session) never(d time.Duration, wrong func() bool) {
	s.t.Helper()
	end := time.NewTimer(d)
	defer end.Stop()
	for {
		s.take()
		require.False(s.t, wrong(), "settled %d of %d, poison %v, error %v", len(s.settled), s.seq, s.poison, s.mail.Err)
		select {
		case <-s.run.Mailbox.Wake():
		case <-end.C:
			return
		}
	}
}

// settle waits until everything published is settled, once each, and nothing else came.
func (s *session) settle() {
	s.t.Helper()
	s.until("settling", func() bool { return len(s.settled)+len(s.poison) >= int(s.seq) || s.mail.Err != nil })
	require.NoError(s.t, s.mail.Err)
	require.Empty(s.t, s.poison)
	for seq, n := range s.settled {
		require.Equal(s.t, 1, n, "sequence %d", seq)
	}
}

// fails waits for the end of the run.
func (s *session) fails() error {
	s.t.Helper()
	s.until("failing", func() bool { return s.mail.Err != nil })
	return s.mail.Err
}

// consume reads n records of topics from their beginning.
func consume(t testing.TB, brokers []string, n int, topics ...string) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(50*time.Millisecond))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var records []*kgo.Record
	for len(records) < n {
		fetches := client.PollFetches(ctx)
		records = append(records, fetches.Records()...)
		require.NoError(t, ctx.Err(), "%d of %d records, %v", len(records), n, fetches.Errors())
	}
	// What is beyond n would be a duplicate.
	short, cancel2 := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel2()
	return append(records, client.PollFetches(short).Records()...)
}

// header returns a header's value; ok is false without one.
func header(r *kgo.Record, name string) (string, bool) {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value), true
		}
	}
	return "", false
}

// inOrder requires that positions grow in every partition, and returns the values by partition.
func inOrder(t testing.TB, records []*kgo.Record) map[string][]string {
	t.Helper()
	last := map[string]string{}
	values := map[string][]string{}
	for _, r := range records {
		where := fmt.Sprintf("%s-%d", r.Topic, r.Partition)
		pos, ok := header(r, headerPosition)
		require.True(t, ok)
		require.Greater(t, pos, last[where], "%s", where)
		last[where] = pos
		values[where] = append(values[where], string(r.Value))
	}
	return values
}

// produced notes every produce request that reaches a fake cluster.
type produced struct {
	mu      sync.Mutex
	batches []producedBatch
}

type producedBatch struct {
	topic      string
	partition  int32
	producer   int64
	epoch      int16
	sequence   int32
	records    int32
	attributes int16
}

func watch(c *kfake.Cluster) *produced {
	p := &produced{}
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.batches = append(p.batches, batchesOf(req)...)
		return nil, nil, false
	})
	return p
}

func batchesOf(req kmsg.Request) (batches []producedBatch) {
	for _, t := range req.(*kmsg.ProduceRequest).Topics {
		for _, part := range t.Partitions {
			var b kmsg.RecordBatch
			if b.ReadFrom(part.Records) != nil {
				continue
			}
			batches = append(batches, producedBatch{
				t.Topic, part.Partition, b.ProducerID, b.ProducerEpoch,
				b.FirstSequence, b.NumRecords, b.Attributes,
			})
		}
	}
	return batches
}

func (p *produced) of(partition int32) (batches []producedBatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.batches {
		if b.partition == partition {
			batches = append(batches, b)
		}
	}
	return batches
}
