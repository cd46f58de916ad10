// Package consumer_test proves the programs of docs/wire-format.md: each prints every event once, from a topic that
// has repetitions of a killed relay, late writes, and replays.
package consumer_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	wait = 2 * time.Minute
	tick = 20 * time.Millisecond

	keys       = 7
	partitions = 3
)

func TestEachEventOnce(t *testing.T) {
	cluster := testenv.Kafka(t)
	topic, want := spoilt(t, cluster)

	programs := map[string]func(t *testing.T) testenv.Command{
		"go": func(t *testing.T) testenv.Command {
			path := filepath.Join(t.TempDir(), "consumer")
			out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./go").CombinedOutput()
			require.NoError(t, err, string(out))
			return testenv.Command{Path: path}
		},
		"java": func(*testing.T) testenv.Command {
			args := []string{"-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", cluster.Classpath(), "java/Consumer.java"}
			return testenv.Command{Path: "java", Args: args}
		},
		"python": func(t *testing.T) testenv.Command {
			environment := testenv.Python(t, "python/requirements.txt")
			return testenv.Command{Path: "python3", Args: []string{"python/consumer.py"}, Env: environment}
		},
	}
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := os.ReadDir(name) // go test does not see what other programs read, and would answer from its cache
			require.NoError(t, err)
			command := program(t)
			command.Args = append(command.Args, cluster.Addrs()[0], topic)
			process := testenv.StartProcess(t, command)
			require.Eventually(t, func() bool {
				out := process.Stdout()
				return strings.Count(out, "\tlast\t") >= partitions && strings.Count(out, "\n") >= len(want) || !process.Running()
			}, wait, tick)
			require.True(t, process.Running(), process.Log())
			process.Signal(t, syscall.SIGTERM)
			process.Wait(t, wait)
			got := strings.Split(strings.TrimSuffix(process.Stdout(), "\n"), "\n")
			for key := range keys {
				require.Equal(t, of(want, key), of(got, key), "in order, within a key")
			}
			require.ElementsMatch(t, want, got)
		})
	}
}

// of are the lines of one key.
func of(lines []string, key int) (found []string) {
	for _, line := range lines {
		if strings.Contains(line, fmt.Sprintf("\tk%d\t", key)) {
			found = append(found, line)
		}
	}
	return found
}

// spoilt fills a topic, and says what a consumer is to print of it. In the end each partition has one last event.
func spoilt(t *testing.T, cluster *testenv.Cluster) (topic string, want []string) {
	t.Helper()
	r := newRelay(t, cluster)
	seen := cluster.Consume(t, r.topic)
	var records []*kgo.Record
	// A relay that was killed repeats what it had not confirmed; once in a while, on a busy machine, that is nothing.
	for range 10 {
		process := r.start()
		first := len(want)
		for n := range 50 {
			want = append(want, r.insert(fmt.Sprintf("k%d", n%keys), fmt.Sprintf(`{"n": %d, "text": "čaj 茶"}`, first+n)))
		}
		want = append(want, r.insert("k1", ""))
		for len(ids(records)) < len(want) {
			records = append(records, seen.WaitFor(t, 1, wait)...)
		}
		process.Kill(t)
		if len(records) > len(want) {
			break
		}
	}
	require.Greater(t, len(records), len(want), "the relay repeated nothing")

	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Addrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer client.Close()
	// The late write of a process that was thought dead, and the replay of an event.
	late, again := bare(records[3]), bare(records[5])
	swap(again, "walrelay-position", "walrelay-replay")
	// The replay of an event that the topic lost; and of one more that comes twice.
	lost := bare(records[7])
	swap(lost, "walrelay-position", "walrelay-replay")
	lost.Headers = append([]kgo.RecordHeader{{Key: "id", Value: []byte("lost")}}, lost.Headers[1:]...)
	require.Equal(t, "id", records[7].Headers[0].Key)
	want = append(want, fmt.Sprintf("lost\t%s\t%s", lost.Key, lost.Value))
	require.NoError(t, client.ProduceSync(t.Context(), late, again, lost, bare(lost)).FirstErr())

	r.start()
	last := make(map[int32]bool)
	for n := 0; len(last) < partitions; n++ {
		line := r.insert(fmt.Sprintf("end%d", n), `"a way to a partition"`)
		want = append(want, line)
		id, _, _ := strings.Cut(line, "\t")
		for {
			record := seen.WaitFor(t, 1, wait)[0]
			if header(record, "id") != id {
				continue
			}
			if !last[record.Partition] {
				last[record.Partition] = true
				record = bare(record)
				swap(record, "walrelay-position", "walrelay-replay")
				record.Headers[0].Value, record.Key, record.Value = []byte("last-"+id), []byte("last"), []byte("1")
				want = append(want, fmt.Sprintf("last-%s\tlast\t1", id))
				require.NoError(t, client.ProduceSync(t.Context(), record).FirstErr())
			}
			break
		}
	}
	return r.topic, want
}

// bare is a record to produce again, to its own partition.
func bare(r *kgo.Record) *kgo.Record {
	return &kgo.Record{
		Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: slices.Clone(r.Headers),
	}
}

func swap(r *kgo.Record, header, other string) {
	for i := range r.Headers {
		if r.Headers[i].Key == header {
			r.Headers[i] = kgo.RecordHeader{Key: other, Value: []byte("by hand")}
		}
	}
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

func ids(records []*kgo.Record) map[string]bool {
	all := make(map[string]bool)
	for _, r := range records {
		all[header(r, "id")] = true
	}
	return all
}

// relay is a stream into a topic of its own.
type relay struct {
	t     *testing.T
	db    *testenv.Database
	topic string
	env   map[string]string
	n     int
}

func newRelay(t *testing.T, cluster *testenv.Cluster) *relay {
	t.Helper()
	r := &relay{t: t, db: testenv.Postgres(t, 18).Database(t), topic: cluster.Topic(t, partitions, nil)}
	r.env = map[string]string{
		"WALRELAY_DATABASE_URL":    r.db.DSN,
		"WALRELAY_KAFKA_BROKERS":   cluster.Seeds(),
		"WALRELAY_SLOT":            r.db.Slot(t),
		"WALRELAY_TOPIC":           r.topic,
		"WALRELAY_ADMIN_ADDR":      "127.0.0.1:0",
		"WALRELAY_STATUS_INTERVAL": "20s", // nothing is confirmed before the kill
	}
	up := testenv.StartProcess(t, testenv.Command{
		Path: testenv.Binary(t), Args: []string{"migrate", "up"}, Env: r.env,
	})
	require.Equal(t, 0, up.Wait(t, wait), up.Log())
	return r
}

func (r *relay) start() *testenv.Process {
	r.t.Helper()
	p := testenv.StartProcess(r.t, testenv.Command{Path: testenv.Binary(r.t), Args: []string{"run"}, Env: r.env})
	p.WaitForLog(r.t, `"message":"streaming"`, wait)
	return p
}

// insert writes an event, a tombstone without payload, and returns the line that a consumer prints of it.
func (r *relay) insert(key, payload string) string {
	r.t.Helper()
	r.n++
	id := fmt.Sprintf("00000000-0000-0000-0000-%012d", r.n)
	r.db.Exec(r.t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		VALUES ($1, 'order', $2, 'created', nullif($3, '')::jsonb)`, id, key, payload)
	if payload == "" {
		payload = "null"
	}
	return strings.Join([]string{id, key, payload}, "\t")
}
