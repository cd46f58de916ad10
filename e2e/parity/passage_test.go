package parity

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// passage is a slot that changes hands while an application writes, and what a consumer sees of it.
type passage struct {
	db       *testenv.Database
	kafka    *testenv.Cluster
	slot     string
	topic    string
	consumer *testenv.Consumer
	written  int // rows

	seen map[string]int    // how often, by id
	last map[string]string // the id last seen first, by key
	// The ids of what one relay after the other has written, in order, by partition.
	turns map[int32][]turn
}

type turn struct {
	ours bool
	ids  []string
}

func newPassage(t *testing.T) *passage {
	t.Helper()
	db, kafka := testenv.Postgres(t, 18).Database(t), testenv.Kafka(t)
	p := &passage{
		db: db, kafka: kafka, slot: db.Slot(t), seen: map[string]int{}, last: map[string]string{},
		turns: map[int32][]turn{},
	}
	p.topic = p.slot + ".orders"
	kafka.CreateTopic(t, p.topic, 3, nil)
	db.Exec(t, `CREATE TABLE outbox (id bigint PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL,
		type text NOT NULL, payload jsonb)`)
	p.consumer = kafka.Consume(t, p.topic)
	return p
}

// source are the connector's properties.
func (p *passage) source() map[string]string {
	debezium := p.db.DebeziumSource(p.slot, "dbz_publication")
	maps.Copy(debezium, rawText)
	debezium["topic.prefix"], debezium["table.include.list"] = p.slot, "public.outbox"
	debezium["publication.autocreate.mode"] = "filtered"
	debezium["transforms.outbox.route.topic.replacement"] = p.slot + ".${routedByValue}"
	return debezium
}

// environment is walrelay's.
func (p *passage) environment(t *testing.T) map[string]string {
	t.Helper()
	env := environment(t, p.db, p.kafka, p.slot, "dbz_publication")
	env["WALRELAY_TOPIC"] = p.slot + ".{aggregatetype}"
	return env
}

// write adds rows until there are n.
func (p *passage) write(t *testing.T, n int) {
	t.Helper()
	for ; p.written < n; p.written++ {
		p.db.Exec(t, `INSERT INTO outbox VALUES ($1, 'orders', $2, 'made', '{}')`, p.written, fmt.Sprint(p.written%7))
	}
}

// writeOn is write beside the test. What it returns is closed when all is written.
func (p *passage) writeOn(t *testing.T, n int) (done <-chan struct{}) {
	t.Helper()
	written := make(chan struct{})
	go func() {
		defer close(written)
		p.write(t, n)
	}()
	return written
}

// take reads a record.
func (p *passage) take(t *testing.T) {
	t.Helper()
	p.note(t, p.consumer.WaitFor(t, 1, wait)[0])
}

// await reads until n rows have been seen.
func (p *passage) await(t *testing.T, n int) {
	t.Helper()
	for len(p.seen) < n {
		p.take(t)
	}
}

func (p *passage) note(t *testing.T, r *kgo.Record) {
	t.Helper()
	id, key := judge.Header(r, "id"), string(r.Key)
	if p.seen[id]++; p.seen[id] == 1 {
		require.Less(t, number(p.last[key]), number(id), "order within a key")
		p.last[key] = id
	}
	turns, ours := p.turns[r.Partition], judge.Header(r, "walrelay-stream") != ""
	if len(turns) == 0 || turns[len(turns)-1].ours != ours {
		turns = append(turns, turn{ours: ours})
	}
	now := &turns[len(turns)-1]
	now.ids = append(now.ids, id)
	p.turns[r.Partition] = turns
}

// repeated returns how many records repeat another, and checks that they repeat the tail of the turn before.
func (p *passage) repeated(t *testing.T) int {
	t.Helper()
	for _, r := range p.consumer.Rest(t, time.Second) {
		p.note(t, r)
	}
	n := 0
	for id, times := range p.seen {
		require.LessOrEqual(t, times, 2, id)
		n += times - 1
	}
	for partition, turns := range p.turns {
		for i := range turns[1:] {
			tail := false
			for _, id := range turns[i].ids {
				again := slices.Contains(turns[i+1].ids, id)
				require.True(t, again || !tail, "partition %d: %s came once behind one that came twice", partition, id)
				tail = again
			}
		}
	}
	return n
}

// number is an id's; -1 for none.
func number(id string) int {
	n := -1
	_, _ = fmt.Sscan(id, &n)
	return n
}
