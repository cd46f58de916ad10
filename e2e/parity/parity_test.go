package parity

import (
	"fmt"
	"maps"
	"os"
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
	createTables(t, db)
	rows := rows{}
	rows.writeBefore(t, db)
	connectors := map[string]map[string]string{}
	for i := range cases {
		c := &cases[i]
		if c.topics == nil {
			c.topics = []string{"orders", "invoices", ""}
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
	relays := map[string]*testenv.Process{}
	for _, c := range cases {
		relays[c.name] = start(t, c.environment(t, db, kafka))
		if !c.refused {
			relays[c.name].WaitForLog(t, streaming, wait)
		}
	}
	for name, properties := range connectors {
		db.AwaitSlot(t, properties["slot.name"], wait)
		t.Logf("%s streams", name)
	}
	rows.update(t, db, kafka.Consume(t, "fatal.walrelay.orders"))
	rows.write(t, db)
	pairs, stated := 0, 0
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			names := map[string]string{}
			for table := range strings.SplitSeq(c.table, ",") {
				maps.Copy(names, rows[table])
			}
			theirs := read(t, kafka, c, "debezium", names)
			ours := read(t, kafka, c, "walrelay", names)
			n, differ := c.compare(t, names, theirs, ours)
			pairs, stated = pairs+n, stated+differ
			connect.WaitForLog(t, c.logged[0], wait)
			relays[c.name].WaitForLog(t, c.logged[1], wait)
		})
	}
	page, err := os.ReadFile("../../docs/migrating-from-debezium.md")
	require.NoError(t, err)
	require.Contains(t, string(page), fmt.Sprintf("%d configurations", len(cases)))
	require.Contains(t, string(page), fmt.Sprintf("%d pairs of records, %d of which differ", pairs, stated))
	if t.Failed() {
		t.Logf("Kafka Connect wrote:\n%s", connect.Stdout())
	}
}

// prefix is that of a tool's topics. That of "routed" is put in front by the expression, or is none.
func (c *parity) prefix(tool string) string { return c.name + "." + tool + "." }

func (c *parity) source(t *testing.T, db *testenv.Database) map[string]string {
	properties := db.DebeziumSource(db.Slot(t), "dbz_publication")
	properties["errors.tolerance"] = "all" // what ends a task otherwise is left out, so that the rest can be compared
	if c.connector["message.prefix.include.list"] == "" {
		properties["message.prefix.exclude.list"] = ".*"
	}
	maps.Copy(properties, c.connector)
	properties["topic.prefix"] = c.name
	properties["table.include.list"] = "public." + strings.ReplaceAll(c.table, ",", ",public.")
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

// read returns a tool's records by the names of their rows, and checks that there are no others.
func read(t *testing.T, kafka *testenv.Cluster, c parity, tool string, names map[string]string) map[string]*kgo.Record {
	t.Helper()
	var topics []string
	for _, topic := range c.topics {
		topics = append(topics, c.prefix(tool)+topic)
	}
	consumer := kafka.Consume(t, topics...)
	records := map[string]*kgo.Record{}
	take := func(some []*kgo.Record) {
		for _, r := range some {
			name, ok := names[judge.Header(r, "id")]
			require.True(t, ok, "%s has a record of no row", tool)
			require.Nil(t, records[name], "%s has %s twice", tool, name)
			records[name] = r
		}
	}
	take(consumer.WaitFor(t, len(names)-c.lacking(tool), wait))
	take(consumer.Rest(t, 200*time.Millisecond))
	return records
}
