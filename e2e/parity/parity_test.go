package parity

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// wait is how long a step may take: a JVM with many connectors on a busy machine.
const wait = 5 * time.Minute

// Each case is one stream of Debezium and one of walrelay, over the same rows.
func TestParity(t *testing.T) {
	asked(t)
	db, kafka := testenv.Postgres(t, 18).Database(t), testenv.Kafka(t)
	db.Exec(t, tables)
	connectors := map[string]map[string]string{}
	for i := range cases {
		c := &cases[i]
		if c.topics == nil {
			c.topics = []string{"orders", "invoices"}
		}
		for _, tool := range []string{"debezium", "walrelay"} {
			for _, topic := range c.topics {
				kafka.CreateTopic(t, c.prefix(tool)+topic, 3, nil)
			}
		}
		connectors[c.name] = c.source(t, db)
	}
	walrelay(t, environment(t, db, kafka, "unused", "dbz_publication"), "migrate", "up")
	connect := testenv.StartConnect(t, kafka, t.TempDir(), connectors)
	for _, c := range cases {
		stream(t, c.environment(t, db, kafka))
	}
	for name, properties := range connectors {
		db.AwaitSlot(t, properties["slot.name"], wait)
		t.Logf("%s streams", name)
	}
	rows := insert(t, db)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := rows[c.table]
			theirs := read(t, kafka, c, "debezium", n)
			ours := read(t, kafka, c, "walrelay", n)
			compare(t, c, theirs, ours)
			t.Logf("%d records are equal", n)
		})
	}
	if t.Failed() {
		t.Logf("Kafka Connect wrote:\n%s", connect.Stdout())
	}
}

// prefix is that of a tool's topics. That of "routed" is put in front by the expression, or is none.
func (c *parity) prefix(tool string) string { return c.name + "." + tool + "." }

func (c *parity) source(t *testing.T, db *testenv.Database) map[string]string {
	properties := db.DebeziumSource(db.Slot(t), "dbz_publication")
	maps.Copy(properties, c.converters)
	properties["topic.prefix"] = c.name
	properties["table.include.list"] = "public." + c.table
	properties["extended.headers.enabled"] = "false"
	properties["transforms.outbox.route.topic.replacement"] = c.prefix("debezium") + "${routedByValue}"
	for name, value := range c.router {
		properties["transforms.outbox."+name] = strings.ReplaceAll(value, "PREFIX", c.prefix("debezium"))
	}
	return properties
}

func (c *parity) environment(t *testing.T, db *testenv.Database, kafka *testenv.Cluster) map[string]string {
	env := environment(t, db, kafka, db.Slot(t), "dbz_publication")
	env["WALRELAY_TABLES"] = c.table
	env["WALRELAY_TOPIC"] = c.prefix("walrelay") + "{aggregatetype}"
	for name, value := range c.walrelay {
		env[name] = strings.ReplaceAll(value, "PREFIX", c.prefix("walrelay"))
	}
	return env
}

// insert writes the rows of all tables, and returns how many each has.
func insert(t *testing.T, db *testenv.Database) map[string]int {
	t.Helper()
	kind := func(i int) string { return []string{"orders", "orders", "invoices"}[i%3] }
	for i, payload := range texts {
		at := time.Date(2020, 1, 2, 3+i, 4, 5, 678901000, time.UTC)
		db.Exec(t, `INSERT INTO outbox_text VALUES (gen_random_uuid(), $1, $2, $3, $4, $5, $6)`,
			kind(i), fmt.Sprint("key é ", i%4), []any{"made", nil}[i%2], payload, i%3, at)
	}
	for i, payload := range expandable {
		db.Exec(t, `INSERT INTO outbox_expand VALUES (gen_random_uuid(), 'orders', $1, $2, $3)`, fmt.Sprint(i%5),
			[]any{"made", nil}[i%2], payload)
	}
	for i, payload := range documents {
		db.Exec(t, `INSERT INTO outbox_json VALUES (gen_random_uuid(), 'orders', $1, 'made', $2::text::jsonb, $3,
			'2020-01-02 03:04:05.678901', '2020-01-02 05:04:05.5+02', 1234567890123, -7, true, 1e21, 1.25,
			'1969-12-31', '\x00ff', '{"z" :  1}', gen_random_uuid())`, fmt.Sprint(i), payload, i)
	}
	db.Exec(t, `INSERT INTO outbox_json VALUES (gen_random_uuid(), 'orders', '9', 'made', '{}', 9,
		'1969-12-31 23:59:59.999999', '0044-01-01 00:00:00+00', -1, 32767, false, 0.1, 3.4028235e38,
		'2020-02-29', '\x', 'null', NULL)`)
	db.Exec(t, `INSERT INTO outbox_json (id, aggregatetype, type, n) VALUES (gen_random_uuid(), 'orders', '', 1)`)
	db.Exec(t, `INSERT INTO outbox_bytea VALUES (1, 'orders', 1, 'x', '\x00ff41', '2020-01-02 03:04:05.9999'),
		(2, 'orders', -2, 'x', '\x', '2020-01-02 03:04:05'), (3, 'invoices', NULL, 'x', '\x7b7d', '2020-01-02 03:04:05')`)
	db.Exec(t, `INSERT INTO outbox_domain VALUES
		(gen_random_uuid(), 'orders', '\x00ff41', 'made', '{"bb": 1, "a": 1.10}', 7,
			'2020-01-02 05:04:05.5+02', 1e21, gen_random_uuid(), '\x00ff', true, '2020-01-02 03:04:05.678901', '1969-12-31'),
		(gen_random_uuid(), 'orders', '\x', NULL, '[1]', -1, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
		(gen_random_uuid(), 'orders', NULL, '', NULL, 0, NULL, 0.1, NULL, '\x', false, NULL, NULL)`)
	rows := map[string]int{}
	for _, table := range []string{"outbox_json", "outbox_text", "outbox_bytea", "outbox_expand", "outbox_domain"} {
		var n int
		require.NoError(t, db.QueryRow(t, "SELECT count(*) FROM "+table).Scan(&n))
		rows[table] = n
	}
	return rows
}

// read returns a tool's records by their ids, and checks that there are no others.
func read(t *testing.T, kafka *testenv.Cluster, c parity, tool string, n int) map[string]*kgo.Record {
	t.Helper()
	var topics []string
	for _, topic := range c.topics {
		topics = append(topics, c.prefix(tool)+topic)
	}
	consumer := kafka.Consume(t, topics...)
	records := map[string]*kgo.Record{}
	for _, r := range consumer.WaitFor(t, n, time.Minute) {
		records[judge.Header(r, "id")] = r
	}
	require.Empty(t, consumer.Rest(t, 200*time.Millisecond), "%s has more", tool)
	require.Len(t, records, n, "%s has ids twice", tool)
	return records
}

// compare takes records apart. What walrelay adds are its own headers.
func compare(t *testing.T, c parity, theirs, ours map[string]*kgo.Record) {
	t.Helper()
	for id, d := range theirs {
		w := ours[id]
		require.NotNil(t, w, "walrelay lacks %s", id)
		about := fmt.Sprintf("%s: %s: Debezium has the value %.500q", c.name, id, d.Value)
		require.Equal(t, strings.TrimPrefix(d.Topic, c.prefix("debezium")),
			strings.TrimPrefix(w.Topic, c.prefix("walrelay")), about)
		require.Equal(t, d.Key == nil, w.Key == nil, about)
		require.Equal(t, string(d.Key), string(w.Key), about)
		require.Equal(t, d.Value == nil, w.Value == nil, about)
		require.Equal(t, string(d.Value), string(w.Value), about)
		if d.Key != nil || !c.spread {
			require.Equal(t, d.Partition, w.Partition, about)
		}
		if c.stamped {
			require.Equal(t, d.Timestamp, w.Timestamp, about)
		}
		var headers []kgo.RecordHeader
		for _, h := range w.Headers {
			if !strings.HasPrefix(h.Key, "walrelay-") {
				headers = append(headers, h)
			}
		}
		require.Equal(t, shown(d.Headers), shown(headers), about)
	}
}

func shown(headers []kgo.RecordHeader) []string {
	var lines []string
	for _, h := range headers {
		lines = append(lines, fmt.Sprintf("%s=%q null:%t", h.Key, h.Value, h.Value == nil))
	}
	return lines
}
