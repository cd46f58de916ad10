package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// memoryLimit is what walrelay may have resident at any time, in bytes.
const memoryLimit = 128 << 20

// A transaction of any size streams in the same memory. WALRELAY_E2E_ROWS says how many rows it has.
func TestMemory_OneTransaction(t *testing.T) {
	t.Parallel()
	rows := fromEnv(t, "WALRELAY_E2E_ROWS", 300_000)
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 3)
		relay := s.relay()
		s.bulk(rows, 1000, "")
		s.counts(rows)
		s.withinMemory(relay)
	})
}

// Payloads of 5 MB fill the window, with several of them on their way at once.
func TestMemory_LargePayloads(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, testenv.Majors()[0]), testenv.Kafka(t), 3)
	s.limit(s.topic, 10<<20)
	s.set("WALRELAY_BATCH_BYTES", "10MB")
	s.set("WALRELAY_IN_FLIGHT_BYTES", "16MiB")
	relay := s.relay()
	s.bulk(100, 100, strings.Repeat("x", 5_000_000))
	s.counts(100)
	s.withinMemory(relay)
}

// Without Kafka the window fills, and then the process neither grows nor works.
func TestMemory_KafkaStopped(t *testing.T) {
	t.Parallel()
	const observed, noise = 5 * time.Second, 2 << 20 // bytes; scrapes and samples of the history are some
	cluster := testenv.StartKafka(t, testenv.KafkaConfig{})
	s := newSetup(t, testenv.Postgres(t, testenv.Majors()[0]), cluster, 3)
	s.set("WALRELAY_LOG_LEVEL", "info")
	relay := s.relay()
	s.insert(1e6, "k", `{}`)
	s.cluster.Consume(t, s.topic).WaitFor(t, 1, wait)
	cluster.KillBroker(t, 0)
	s.bulk(50_000, 1000, strings.Repeat("x", 100))
	require.Eventually(t, func() bool { // until the window is full and the memory settled
		before := resident(t, relay, "VmRSS")
		s.during(observed, func() {})
		return resident(t, relay, "VmRSS") < before+noise/4 && s.metric("walrelay_in_flight_bytes", "") >= 2<<20
	}, wait, tick)

	settled, spent := resident(t, relay, "VmRSS"), processorTime(t, relay)
	s.during(observed, func() {})
	require.Less(t, resident(t, relay, "VmRSS"), settled+noise)
	share := (processorTime(t, relay) - spent).Seconds() / observed.Seconds()
	t.Logf("%d MB, %.1f %% of a processor", settled/1e6, 100*share)
	require.Less(t, share, 0.1)
	s.withinMemory(relay)

	cluster.StartBroker(t, 0)
	s.caughtUp()
	require.EqualValues(t, 50_001, s.ends(s.topic).Sum())
}

// In exactly-once delivery it is cut into many transactions of Kafka. A process that is killed between two
// of them, or within one, leaves what the next one goes on from.
func TestMemory_ExactlyOnce(t *testing.T) {
	t.Parallel()
	rows := fromEnv(t, "WALRELAY_E2E_ROWS", 200_000)
	cluster, kafka := gatedKafka(t)
	s := newExactly(t, testenv.Postgres(t, lastMajor()), cluster, 3)
	s.set("WALRELAY_KAFKA_BROKERS", cluster.ListenerAddrs()[0])
	part := rows * 60 // bytes of more than 150 a row: several transactions of Kafka
	kafka.closeAfter(part)
	relay := s.relay()
	s.bulk(rows, 1000, "")
	for n := range 2 {
		require.Eventually(t, func() bool { return kafka.holds() > 0 }, wait, tick)
		s.withinMemory(relay)
		relay.Kill(t)
		state := s.state()
		require.True(t, state.Partial, "killed in the middle")
		require.Less(t, int(state.Position.Index), rows-1)
		kafka.open()
		if n == 0 {
			kafka.closeAfter(part)
		}
		relay = s.relay()
	}
	s.counts(rows)
	s.withinMemory(relay)
}

// A replay of the whole table reads as it publishes, in either delivery mode.
func TestMemory_Replay(t *testing.T) {
	t.Parallel()
	rows := fromEnv(t, "WALRELAY_E2E_ROWS", 200_000)
	for name, start := range deliveries() {
		t.Run(name, func(t *testing.T) {
			s := start(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 3)
			s.bulk(rows, 1000, "")
			replay := testenv.StartProcess(t, testenv.Command{
				Path: testenv.Binary(t), Args: []string{"replay", "--all", "--name", "whole", "--rate", "50000"}, Env: s.env,
			})
			peak := 0
			require.Eventually(t, func() bool { // as long as it runs, for nothing tells it afterwards
				running := replay.Running()
				if now, err := memory(replay, "VmHWM"); err == nil {
					peak = now
				}
				return !running
			}, 5*wait, tick)
			s.withinLimit(peak)
			require.Equal(t, 0, replay.Wait(t, wait), replay.Log())
			require.Contains(t, replay.Stdout(), fmt.Sprintf("%d rows were published", rows))
		})
	}
}

// Spans are bounded too: with every row in a trace of its own, a collector that takes them and one that never answers.
func TestMemory_Tracing(t *testing.T) {
	t.Parallel()
	rows := fromEnv(t, "WALRELAY_E2E_ROWS", 300_000)
	for name, answers := range map[string]bool{"the collector takes them": true, "the collector hangs": false} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 3)
			s.db.Exec(t, `ALTER TABLE public.outbox ADD traceparent text
				DEFAULT '00-' || md5(random()::text) || '-' || left(md5(random()::text), 16) || '-01'`)
			c := newCollector(t, s)
			s.set("OTEL_BSP_SCHEDULE_DELAY", "") // the default
			if !answers {
				s.set("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+silence(t))
			}
			relay := s.relay()
			s.bulk(rows, 1000, "")
			s.counts(rows)
			lost := s.metric("walrelay_spans_lost_total", `reason="queue"`)
			s.withinMemory(relay)
			s.stop(relay)
			t.Logf("%d spans exported, %.0f found the queue full", len(c.received()), lost)
			if answers {
				require.Equal(t, rows, messages(c.received()))
			}
		})
	}
}

// bulk commits one transaction of n rows, whose payload says which number each has.
func (s *setup) bulk(n, keys int, filling string) {
	s.t.Helper()
	_, err := s.db.Conn.Exec(s.t.Context(), `INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT lpad(n::text, 32, '0')::uuid, 'orders', (n % $2)::text, 'created',
			jsonb_build_object('n', n, 'filling', $3::text)
		FROM generate_series(0, $1 - 1) AS n`, n, keys, filling)
	require.NoError(s.t, err)
}

// counts reads the topic until n records are there: each number once, in order within a partition, and the
// last position has the last index of the transaction.
func (s *setup) counts(n int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*wait+time.Duration(n)*time.Millisecond)
	defer cancel()
	consumer := s.consume(s.topic)
	next := map[int32]int{} // by partition, the least number that may come
	sum, last := 0, ""
	for i := range n {
		record, err := consumer.Next(ctx)
		require.NoError(s.t, err, "record %d of %d", i, n)
		number := numberOf(s.t, record)
		require.GreaterOrEqual(s.t, number, next[record.Partition], "out of order or repeated")
		next[record.Partition] = number + 1
		sum += number
		last = max(last, judge.Header(record, "walrelay-position"))
	}
	require.Equal(s.t, n*(n-1)/2, sum)
	require.Equal(s.t, fmt.Sprintf("%08X", n-1), last[len(last)-8:])
	require.Empty(s.t, consumer.Rest(s.t, 200*time.Millisecond))
}

func numberOf(t *testing.T, record *kgo.Record) int {
	t.Helper()
	var payload struct{ N int }
	require.NoError(t, json.Unmarshal(record.Value, &payload))
	return payload.N
}

// withinMemory compares the most that the relay ever had resident with the limit.
func (s *setup) withinMemory(relay *testenv.Process) {
	s.t.Helper()
	s.withinLimit(resident(s.t, relay, "VmHWM"))
}

func (s *setup) withinLimit(peak int) {
	s.t.Helper()
	require.NotZero(s.t, peak)
	s.t.Logf("peak memory %d MB", peak/1e6)
	if !testenv.Race {
		require.Less(s.t, peak, memoryLimit)
	}
}

// processorTime is what the process has used so far: utime and stime of proc(5), in ticks of 10 ms.
func processorTime(t *testing.T, p *testenv.Process) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(text), ") ")
	var ticks int
	for _, field := range strings.Fields(after)[11:13] {
		n, err := strconv.Atoi(field)
		require.NoError(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// resident is a field of /proc/PID/status, in bytes.
func resident(t *testing.T, p *testenv.Process, field string) int {
	t.Helper()
	bytes, err := memory(p, field)
	require.NoError(t, err)
	return bytes
}

// memory is resident, or an error once the process has ended.
func memory(p *testenv.Process, field string) (bytes int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, err
	}
	_, after, found := strings.Cut(string(text), field+":")
	if !found {
		return 0, fmt.Errorf("%s: the process has none", field)
	}
	kilobytes, err := strconv.Atoi(strings.Fields(after)[0])
	return kilobytes << 10, err
}
