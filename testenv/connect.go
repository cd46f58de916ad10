package testenv

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// StartConnect starts Kafka Connect in standalone mode with Debezium's connector for PostgreSQL, in a JVM of its own,
// and returns when all the connectors run. Each has a name and its properties; what they do not say is
// the worker's: JSON converters, and offsets in a file in dir, so that another worker there goes on.
func StartConnect(t testing.TB, c *Cluster, dir string, connectors map[string]map[string]string) *Process {
	t.Helper()
	jars, err := fetch("connect")
	if err != nil {
		t.Fatalf("start Kafka Connect: %v", err)
	}
	plugin, err := fetch("debezium")
	if err != nil {
		t.Fatalf("start Kafka Connect: %v", err)
	}
	args := []string{
		"-Xms64m", "-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dlog4j2.configurationFile=log4j2.properties", "-cp", filepath.Join(jars, "*"),
		"org.apache.kafka.connect.cli.ConnectStandalone", "worker.properties",
	}
	files := map[string]map[string]string{"worker.properties": {
		"bootstrap.servers": c.Seeds(), "listeners": "http://" + Addr(t), "plugin.path": filepath.Join(dir, "plugins"),
		"plugin.discovery": "service_load",
		"key.converter":    "org.apache.kafka.connect.json.JsonConverter",
		"value.converter":  "org.apache.kafka.connect.json.JsonConverter",

		"offset.storage.file.filename": filepath.Join(dir, "offsets"), "offset.flush.interval.ms": "1000",
	}}
	for _, name := range slices.Sorted(maps.Keys(connectors)) {
		properties := maps.Clone(connectors[name])
		properties["name"] = name
		files[name+".properties"] = properties
		args = append(args, name+".properties")
	}
	for name, properties := range files {
		writeProperties(t, filepath.Join(dir, name), properties)
	}
	if err := os.WriteFile(filepath.Join(dir, "log4j2.properties"), log4j, 0o600); err != nil {
		t.Fatalf("write log configuration: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "plugins"), 0o755); err != nil {
		t.Fatalf("make plugin path: %v", err)
	}
	link := filepath.Join(dir, "plugins", "debezium")
	if err := os.Symlink(plugin, link); err != nil && !os.IsExist(err) {
		t.Fatalf("link plugin: %v", err)
	}
	return StartProcess(t, Command{Path: "java", Args: args, Dir: dir})
}

func writeProperties(t testing.TB, path string, properties map[string]string) {
	t.Helper()
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&text, "%s=%s\n", key, strings.ReplaceAll(properties[key], `\`, `\\`))
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatalf("write properties: %v", err)
	}
}

// DebeziumSource are the properties of a connector that reads an existing publication through a slot, which it creates:
// no snapshot, and events routed by the outbox event router, whose options may be added as transforms.outbox.*.
func (db *Database) DebeziumSource(slot, publication string) map[string]string {
	return map[string]string{
		"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1",
		"database.hostname": "127.0.0.1", "database.port": fmt.Sprint(db.server.Port), "database.dbname": db.Name,
		"database.user": "postgres", "database.password": "postgres",
		"topic.prefix": "dbz", "plugin.name": "pgoutput", "slot.name": slot, "slot.drop.on.stop": "false",
		"publication.name": publication, "publication.autocreate.mode": "disabled",
		"snapshot.mode": "no_data", "poll.interval.ms": "50", "status.update.interval.ms": "1000",
		"tombstones.on.delete": "false",
		"transforms":           "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
	}
}

// AwaitSlot waits until somebody streams from a slot. That it is active is not enough: whoever creates it holds it, and
// Debezium takes its first position later, behind which it looks at nothing.
func (db *Database) AwaitSlot(t testing.TB, slot string, timeout time.Duration) {
	t.Helper()
	if !poll(timeout, func() bool {
		var active bool
		err := db.QueryRow(t, `SELECT EXISTS (SELECT FROM pg_replication_slots s JOIN pg_stat_replication r
			ON r.pid = s.active_pid AND r.state = 'streaming' WHERE s.slot_name = $1)`, slot).Scan(&active)
		return err == nil && active
	}) {
		t.Fatalf("nobody streams from slot %s", slot)
	}
}
