package e2e

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// diagnosis is what `walrelay doctor --json` prints.
type diagnosis struct {
	Findings []struct{ Side, Check, Object, Level, Found, Why, Fix string }
	Summary  map[string]int
	code     int
	raw      string
}

// doctor runs it. It must be whole whatever it found.
func (s *setup) doctor() diagnosis {
	s.t.Helper()
	p := testenv.StartProcess(s.t, testenv.Command{
		Path: testenv.Binary(s.t), Args: []string{"doctor", "--json"}, Env: s.env,
	})
	d := diagnosis{code: p.Wait(s.t, wait), raw: p.Stdout()}
	require.NoError(s.t, json.Unmarshal([]byte(d.raw), &d), "%s%s", d.raw, p.Log())
	require.Len(s.t, d.Findings, d.Summary["ok"]+d.Summary["warning"]+d.Summary["fault"]+d.Summary["unknown"])
	code := 0
	if d.Summary["fault"] > 0 {
		code = 1
	}
	require.Equal(s.t, code, d.code, d.raw)
	return d
}

// level is the first that a check found on one side, if not all is ok; empty when it was not made. Of several
// objects one may be meant.
func (d diagnosis) level(side, check string, object ...string) (level, found string) {
	for _, f := range d.Findings {
		if f.Side == side && f.Check == check && (level == "" || level == "ok") &&
			(object == nil || f.Object == object[0]) {
			level, found = f.Level, f.Found
		}
	}
	return level, found
}

// A stream is looked at before it ever ran and while it runs, which it does not notice.
func TestDoctor_DisturbsNothing(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		t.Parallel()
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		d := s.doctor()
		require.Zero(t, d.Summary["fault"], d.raw)
		level, found := d.level("postgresql", "slot")
		require.Equal(t, "ok", level)
		require.Contains(t, found, "does not exist yet")

		relay := s.relay()
		consumer := s.cluster.Consume(t, s.topic)
		s.insert(1, "secret-key", `{"secret": "payload"}`)
		consumer.WaitFor(t, 1, wait)
		var before, after int
		const holder = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1"
		require.NoError(t, s.db.QueryRow(t, holder, s.slot).Scan(&before))
		for range 3 {
			d = s.doctor()
			require.Zero(t, d.Summary["fault"], d.raw)
			require.NotContains(t, d.raw, "secret")
		}
		_, found = d.level("postgresql", "slot")
		require.Contains(t, found, "in use by server process")
		level, found = d.level("kafka", "topic", s.topic)
		require.Equal(t, "ok", level, found)
		_, found = d.level("postgresql", "mapping")
		require.Contains(t, found, "topic "+s.topic+", a key, a payload, id \""+eventID(1)+"\", type \"created\"")
		require.NoError(t, s.db.QueryRow(t, holder, s.slot).Scan(&after))
		require.Equal(t, before, after)
		s.insert(2, "k", "{}")
		require.Len(t, consumer.WaitFor(t, 1, wait), 1)
		s.stop(relay)
		require.NotContains(t, relay.Log(), `"message":"standing by`)
	})
}

// A trap is found, and a side that is down does not keep the other from being looked at.
func TestDoctor_FindsFaults(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, 18), testenv.Kafka(t), 1)
	s.db.Exec(t, "DROP PUBLICATION walrelay; CREATE PUBLICATION walrelay FOR TABLE outbox WITH (publish = 'update')")
	s.db.Exec(t, "ALTER TABLE outbox DROP CONSTRAINT outbox_pkey")
	d := s.doctor()
	require.Equal(t, 1, d.code)
	for _, check := range []string{"publication", "replica-identity"} {
		level, _ := d.level("postgresql", check)
		require.Equal(t, "fault", level, check)
	}

	s.set("WALRELAY_KAFKA_BROKERS", freeAddr(t))
	d = s.doctor()
	level, _ := d.level("postgresql", "wal-level")
	require.Equal(t, "ok", level)
	level, _ = d.level("kafka", "bootstrap-broker")
	require.Equal(t, "fault", level)

	s.set("WALRELAY_KAFKA_BROKERS", s.cluster.Seeds())
	s.set("WALRELAY_DATABASE_URL", "postgres://relay:hunter2@"+freeAddr(t)+"/shop?sslmode=disable")
	d = s.doctor()
	level, _ = d.level("postgresql", "connection")
	require.Equal(t, "fault", level)
	level, _ = d.level("kafka", "bootstrap-broker")
	require.Equal(t, "ok", level)
	require.NotContains(t, d.raw, "hunter2")

	s.set("WALRELAY_DATABASE_URL", s.db.DSN)
	s.db.Exec(t, "ALTER PUBLICATION walrelay SET (publish = 'insert')")
	s.insert(1, "k", "{}")
	s.set("WALRELAY_TOPIC", s.prefix+"missing.{aggregatetype}")
	level, found := s.doctor().level("kafka", "topic", s.prefix+"missing.orders")
	require.Equal(t, "fault", level, found)
	s.set("WALRELAY_TOPIC", s.prefix+"{aggregatetype}")
	require.Zero(t, s.doctor().code)

	s.set("WALRELAY_RETENTION", "1h")
	s.set("WALRELAY_RETENTION_COLUMN", "absent")
	level, found = s.doctor().level("postgresql", "start-check")
	require.Equal(t, "fault", level)
	require.Contains(t, found, "absent")
	level, _ = s.doctor().level("postgresql", "retention")
	require.Empty(t, level, "it is said once")
	s.set("WALRELAY_TABLE_COLUMNS", "outbox: retention=created_at")
	require.Zero(t, s.doctor().code)
	level, found = s.doctor().level("postgresql", "retention", `table "public"."outbox"`)
	require.Equal(t, "ok", level)
	require.Contains(t, found, `no index begins with "created_at"`)
	s.db.Exec(t, `CREATE TABLE parts (LIKE outbox) PARTITION BY RANGE (created_at);
		CREATE TABLE parts_0 PARTITION OF parts FOR VALUES FROM (MINVALUE) TO ('2026-01-01')`)
	s.set("WALRELAY_TABLES", "outbox,parts")
	level, found = s.doctor().level("postgresql", "partitions", `table "public"."parts"`)
	require.Equal(t, "fault", level)
	require.Contains(t, found, "no partition for the present")
}
