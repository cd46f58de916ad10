package parity

import (
	"fmt"
	"maps"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// The application writes on while Debezium is stopped, in order or at once, and walrelay goes on at Debezium's slot,
// with its publication: nothing is missing, and what comes twice is a tail of what Debezium had published.
func TestCutOver(t *testing.T) {
	asked(t)
	for name, signal := range map[string]os.Signal{"stopped": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) { cutOver(t, signal) })
	}
}

func cutOver(t *testing.T, signal os.Signal) {
	db, kafka := testenv.Postgres(t, 18).Database(t), testenv.Kafka(t)
	slot := db.Slot(t)
	topic := slot + ".orders"
	kafka.CreateTopic(t, topic, 3, nil)
	db.Exec(t, `CREATE TABLE outbox (id bigint PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL,
		type text NOT NULL, payload jsonb)`)
	debezium := db.DebeziumSource(slot, "dbz_publication")
	maps.Copy(debezium, rawText)
	debezium["topic.prefix"], debezium["table.include.list"] = slot, "public.outbox"
	debezium["publication.autocreate.mode"] = "filtered"
	debezium["transforms.outbox.route.topic.replacement"] = slot + ".${routedByValue}"
	connect := testenv.StartConnect(t, kafka, t.TempDir(), map[string]map[string]string{"outbox": debezium})
	db.AwaitSlot(t, slot, wait)

	write := func(from, to int) {
		for n := from; n < to; n++ {
			db.Exec(t, `INSERT INTO outbox VALUES ($1, 'orders', $2, 'made', '{}')`, n, fmt.Sprint(n%7))
		}
	}
	consumer := kafka.Consume(t, topic)
	const before, meanwhile, after = 500, 1000, 1500
	write(0, before)
	seen, ours := map[string]int{}, map[string]bool{}
	theirs := map[int32][]string{} // Debezium's ids, by partition
	last := map[string]string{}
	note := func(r *kgo.Record) {
		id := judge.Header(r, "id")
		if seen[id]++; seen[id] == 1 {
			require.Less(t, number(last[string(r.Key)]), number(id), "order within a key")
			last[string(r.Key)] = id
		}
		if judge.Header(r, "walrelay-stream") != "" {
			ours[id] = true
		} else {
			theirs[r.Partition] = append(theirs[r.Partition], id)
		}
	}
	take := func() { note(consumer.WaitFor(t, 1, wait)[0]) }
	for len(seen) < before/2 { // Debezium delivers
		take()
	}
	var written atomic.Bool
	go func() {
		write(before, meanwhile)
		written.Store(true)
	}()
	connect.Signal(t, signal)
	connect.Wait(t, wait)

	env := environment(t, db, kafka, slot, "dbz_publication")
	env["WALRELAY_TOPIC"] = slot + ".{aggregatetype}"
	walrelay(t, env, "migrate", "up")
	relay := stream(t, env)
	require.Contains(t, relay.Log(), "was there before the stream: it goes on at")
	require.Eventually(t, written.Load, wait, 10*time.Millisecond)
	write(meanwhile, after)
	for len(seen) < after {
		take()
	}
	for _, r := range consumer.Rest(t, time.Second) {
		note(r)
	}
	twice := 0
	for id, n := range seen {
		require.LessOrEqual(t, n, 2, id)
		twice += n - 1
	}
	for partition, ids := range theirs {
		tail := false
		for _, id := range ids {
			require.True(t, ours[id] || !tail, "partition %d: %s came once behind one that came twice", partition, id)
			tail = ours[id]
		}
	}
	t.Logf("%d events, none missing, %d twice", len(seen), twice)
}

// number is an id's; -1 for none.
func number(id string) int {
	n := -1
	_, _ = fmt.Sscan(id, &n)
	return n
}
