package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

const (
	partitionedOutbox = ownOutbox + ` PARTITION BY RANGE (id)`
	firstPartition    = `CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES FROM (0) TO (100)`
	secondPartition   = `CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES FROM (100) TO (200)`
	splitPartition    = `CREATE TABLE outbox_3 PARTITION OF outbox FOR VALUES FROM (200) TO (300) PARTITION BY RANGE (id);
		CREATE TABLE outbox_3_rest PARTITION OF outbox_3 DEFAULT`
)

// Rows of a partitioned outbox arrive whatever name the publication gives them, those of partitions
// made later too, without a restart.
func TestShape_Partitions(t *testing.T) {
	t.Parallel()
	everyMajor(t, func(t *testing.T, server *testenv.Server) {
		for _, viaRoot := range []bool{true, false} {
			t.Run(fmt.Sprintf("via_root=%t", viaRoot), func(t *testing.T) {
				publication := fmt.Sprintf(`CREATE PUBLICATION outbox_pub FOR TABLE outbox
					WITH (publish = 'insert', publish_via_partition_root = %t)`, viaRoot)
				s := newOwn(t, server, testenv.Kafka(t), 1, partitionedOutbox, firstPartition, publication)
				relay := s.relay()
				require.Equal(t, !viaRoot, strings.Contains(relay.Log(), "by its partitions"), "warning")
				consumer := s.cluster.Consume(t, s.topic)
				s.insertOwn(1, "k", `{}`)
				consumer.WaitFor(t, 1, wait)
				s.db.Exec(t, secondPartition)
				s.insertOwn(101, "k", `{}`)
				tx := s.begin() // made and filled in one transaction
				in(t, tx, splitPartition,
					`INSERT INTO outbox VALUES (201, 'orders', 'k', 'e', '{}'), (2, 'orders', 'k', 'e', '{}')`)
				commit(t, tx)
				s.db.Exec(t, `INSERT INTO outbox_2 VALUES (102, 'orders', 'k', 'e', '{}')`)
				s.db.Exec(t, `CREATE TABLE other (id bigint PRIMARY KEY); INSERT INTO other VALUES (1)`)

				records := consumer.WaitFor(t, 4, wait)
				require.Equal(t, []string{"101", "201", "2", "102"}, delivered(records))
				s.caughtUp()
				require.EqualValues(t, 5, s.ends(s.topic).Sum())
				require.InDelta(t, 5, s.metric("walrelay_events_total", ""), 0)
			})
		}
	})
}

// payloads are columns of all kinds, as SQL and as the bytes that the record must have.
var payloads = []struct {
	kind, literal, value string
}{
	{
		"json", `{"b": 1, "a":9007199254740993,  "a":2.50, "e":1e400}`,
		`{"b": 1, "a":9007199254740993,  "a":2.50, "e":1e400}`,
	},
	{"json", ` [ ] `, ` [ ] `},
	{"json", `"\u0000 \ud83d\ude00 é"`, `"\u0000 \ud83d\ude00 é"`},
	{"json", `null`, `null`},
	{"jsonb", `{"bb": 1, "a":9007199254740993, "a": 1.10}`, `{"a": 1.10, "bb": 1}`},
	{"jsonb", `12345678901234567890123456789.5`, `12345678901234567890123456789.5`},
	{"text", "\t line\n'quoted' \\x41 é 😀 ", "\t line\n'quoted' \\x41 é 😀 "},
	{"text", strings.Repeat("long ", 50_000), strings.Repeat("long ", 50_000)}, // TOASTed
	{"text", ``, ``},
	{"bytea", `\x00ff41`, "\x00\xffA"},
	{"bytea", `\x5c7830`, `\x0`},
	{"bytea", `\x`, ``},
	{"varchar(9)", `<xml a=1>`, `<xml a=1>`},
	{"char(5)", `ab`, `ab   `},
	// What the settings of role and database below would print otherwise.
	{"timestamptz", `2026-01-02 03:04:05.123456+00`, `2026-01-02 03:04:05.123456+00`},
	{"interval", `1 day 02:00`, `1 day 02:00:00`},
	{"double precision", `0.30000000000000004`, `0.30000000000000004`},
	{"double precision", `NaN`, `NaN`},
	{"timestamp", `infinity`, `infinity`},
	{"date", `0044-03-15 BC`, `0044-03-15 BC`},
	{"text[]", `{a,NULL,"b c"}`, `{a,NULL,"b c"}`},
	{"bigint", `-7`, `-7`},
	{"numeric", `0100.10`, `100.10`},
	{"uuid", `1BB5F9A1-26cc-4646-9088-4917aca05cdd`, `1bb5f9a1-26cc-4646-9088-4917aca05cdd`},
	// Domains, those over others too, are what they are over.
	{"digest", `\x00ff41`, "\x00\xffA"},
	{"digest_of_digest", `\x`, ``},
	{"document", `{"bb": 1, "a": 1.10}`, `{"a": 1.10, "bb": 1}`},
}

// Payload and key travel byte for byte, whatever their type and whatever the role's settings. Each type has
// a table of its own, all in one stream.
func TestShape_PayloadsOfManyTables(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newBare(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		kinds, tables := map[string]string{}, []string{}
		s.db.Exec(t, `CREATE SCHEMA "many kinds"; CREATE DOMAIN digest AS bytea CHECK (length(VALUE) < 9);
			CREATE DOMAIN digest_of_digest AS digest; CREATE DOMAIN document AS jsonb`)
		for _, p := range payloads {
			if kinds[p.kind] == "" {
				kinds[p.kind] = fmt.Sprintf(`"many kinds"."O""%s"`, p.kind)
				tables = append(tables, kinds[p.kind])
				s.db.Exec(t, `CREATE TABLE `+kinds[p.kind]+` (payload `+p.kind+`, aggregateid `+p.kind+`, id serial PRIMARY KEY)`)
			}
		}
		s.db.Exec(t, `CREATE PUBLICATION many FOR TABLE `+strings.Join(tables, ", ")+` WITH (publish = 'insert')`)
		for _, setting := range []string{
			"bytea_output = escape", "DateStyle = 'SQL, DMY'", "IntervalStyle = iso_8601",
			"extra_float_digits = -5", "TimeZone = 'Asia/Tokyo'",
		} {
			s.db.Exec(t, `ALTER DATABASE `+s.db.Name+` SET `+setting)
		}
		s.run("migrate", "up")
		s.set("WALRELAY_PUBLICATION", "many")
		s.set("WALRELAY_TABLES", strings.Join(tables, ", "))
		s.set("WALRELAY_TOPIC", s.topic)
		s.relay()
		consumer := s.cluster.Consume(t, s.topic)

		tx := s.begin()
		in(t, tx, "SET LOCAL DateStyle = ISO") // how the literals are meant
		for _, p := range payloads {
			_, err := tx.Exec(t.Context(),
				`INSERT INTO `+kinds[p.kind]+` VALUES ($1::text::`+p.kind+`, $1::text::`+p.kind+`)`, p.literal)
			require.NoError(t, err)
		}
		for _, table := range tables {
			in(t, tx, `INSERT INTO `+table+` (payload) VALUES (NULL)`)
		}
		commit(t, tx)

		records := consumer.WaitFor(t, len(payloads)+len(tables), wait)
		for i, p := range payloads {
			require.NotNil(t, records[i].Key, p.kind)
			require.Equal(t, p.value, string(records[i].Key), p.kind)
			require.NotNil(t, records[i].Value, p.kind)
			require.Equal(t, p.value, string(records[i].Value), p.kind)
		}
		for i, r := range records {
			if i >= len(payloads) {
				require.Nil(t, r.Key)
				require.Nil(t, r.Value)
			}
			// One transaction over many tables is still one order.
			require.Equal(t, fmt.Sprintf("%08X", i), judge.Header(r, "walrelay-position")[35:])
			require.Equal(t, judge.Header(records[0], "walrelay-position")[:34], judge.Header(r, "walrelay-position")[:34])
		}

		// A row that is read from its table is the same record.
		s.run("replay", "--all", "--time-column", "")
		again := consumer.WaitFor(t, len(records), wait)
		require.ElementsMatch(t, contents(records), contents(again))
	})
}

// A record carries what the row says of itself, and what the stream knows of it.
func TestShape_HeadersAndTimestamp(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		s.db.Exec(t, `ALTER TABLE outbox ALTER headers TYPE json, ADD traceparent text, ADD occurred_at timestamptz`)
		s.set("WALRELAY_COLUMN_TIMESTAMP", "occurred_at")
		s.set("WALRELAY_STREAM", "A-stream_of.mine")
		s.relay()
		consumer := s.cluster.Consume(t, s.topic)
		const (
			insert = `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers, traceparent, occurred_at)
				VALUES ($1, 'orders', 'k', $2, '{}', $3::text::json, $4, $5::text::timestamptz)`
			trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		)
		before := s.clock()
		s.db.Exec(t, insert, eventID(1), "created",
			`{"z": "1", "a": "q\"\u00e9", "z": 12345678901234567890.10, "o": {"b" : [1, null]}, "t": true, "n": null}`,
			trace, "2001-02-03 04:05:06.789999+00")
		s.db.Exec(t, insert, eventID(2), "", nil, nil, nil)
		after := s.clock()

		records := consumer.WaitFor(t, 2, wait)
		full, plain := records[0], records[1]
		position := func(r *kgo.Record) string { return judge.Header(r, "walrelay-position") }
		committed := func(r *kgo.Record) string { return judge.Header(r, "walrelay-commit-time") }
		require.Equal(t, []kgo.RecordHeader{
			{Key: "id", Value: []byte(eventID(1))},
			{Key: "walrelay-stream", Value: []byte("A-stream_of.mine")},
			{Key: "walrelay-position", Value: []byte(position(full))},
			{Key: "walrelay-commit-time", Value: []byte(committed(full))},
			{Key: "eventType", Value: []byte("created")},
			{Key: "traceparent", Value: []byte(trace)},
			{Key: "z", Value: []byte("1")},
			{Key: "a", Value: []byte(`q"é`)},
			{Key: "z", Value: []byte("12345678901234567890.10")},
			{Key: "o", Value: []byte(`{"b" : [1, null]}`)},
			{Key: "t", Value: []byte("true")},
			{Key: "n", Value: nil},
		}, full.Headers)
		require.Equal(t, []kgo.RecordHeader{
			{Key: "id", Value: []byte(eventID(2))},
			{Key: "walrelay-stream", Value: []byte("A-stream_of.mine")},
			{Key: "walrelay-position", Value: []byte(position(plain))},
			{Key: "walrelay-commit-time", Value: []byte(committed(plain))},
			{Key: "eventType", Value: []byte{}},
		}, plain.Headers)

		require.Equal(t, time.Date(2001, 2, 3, 4, 5, 6, 789e6, time.UTC), full.Timestamp.UTC())
		for _, r := range records {
			at, err := time.Parse("2006-01-02T15:04:05.000000Z", committed(r))
			require.NoError(t, err)
			require.WithinRange(t, at, before, after)
		}
		at, _ := time.Parse(time.RFC3339, committed(plain))
		require.Equal(t, at.Truncate(time.Millisecond), plain.Timestamp.UTC(), "without one, the time of commit")
	})
}

// A trace context travels as it was written: by columns of its own, which have precedence, by the column of
// Debezium's libraries, and by the headers column.
func TestShape_TraceContext(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		s.db.Exec(t, `ALTER TABLE outbox ADD traceparent text, ADD tracestate text, ADD tracingspancontext varchar(256)`)
		s.relay()
		consumer := s.consume(s.topic)
		const (
			insert = `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, traceparent, tracestate,
				tracingspancontext, headers) VALUES ($1, 'orders', 'k', 'created', '{}', $2, $3, $4, $5)`
			trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			text  = "#Mon Jan 05 10:11:12 UTC 2026\ntraceparent=00-1\nuber-trace-id=de4c\\:1f2\\:0\\:1\ntracestate=x\\=1\n"
		)
		s.db.Exec(t, insert, eventID(1), trace, "a=1,b=2", text, nil)
		s.db.Exec(t, insert, eventID(2), nil, nil, text, nil)
		s.db.Exec(t, insert, eventID(3), nil, nil, nil, `{"traceparent": "00-2", "tracestate": "c=3"}`)
		own := func(r *kgo.Record) (headers [][2]string) {
			for _, h := range r.Headers {
				if h.Key != "id" && h.Key != "eventType" && !strings.HasPrefix(h.Key, "walrelay-") {
					headers = append(headers, [2]string{h.Key, string(h.Value)})
				}
			}
			return headers
		}
		records := consumer.WaitFor(t, 3, wait)
		require.Equal(t, [][2]string{{"traceparent", trace}, {"tracestate", "a=1,b=2"}, {"uber-trace-id", "de4c:1f2:0:1"}},
			own(records[0]))
		require.Equal(t, [][2]string{{"traceparent", "00-1"}, {"uber-trace-id", "de4c:1f2:0:1"}, {"tracestate", "x=1"}},
			own(records[1]))
		require.Equal(t, [][2]string{{"tracestate", "c=3"}, {"traceparent", "00-2"}}, own(records[2]))

		s.db.Exec(t, insert, eventID(4), nil, nil, `traceparent=\u00`, nil)
		s.stuck(4, "span context: the text is no java.util.Properties")
	})
}

// clock is the server's.
func (s *setup) clock() (now time.Time) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRow(s.t, "SELECT clock_timestamp()").Scan(&now))
	return now
}

// Positions grow in each partition, as bytes, and partitions are those that Java's clients choose.
// The stream is registered with what its positions are made of.
func TestShape_PositionsAndRegistry(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		const partitions = 5
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), partitions)
		relay := s.relay()
		ledger := judge.NewLedger()
		tx := s.begin()
		for n := range 300 {
			if n%50 == 49 {
				commit(t, tx)
				tx = s.begin()
			}
			id, key, payload := eventID(n), fmt.Sprintf("key-%d-é", n*n), fmt.Sprintf(`{"n": %d}`, n)
			_, err := tx.Exec(t.Context(), insertSQL, id, key, payload)
			require.NoError(t, err)
			require.NoError(t, ledger.Commit(s.event(id, key, payload)))
		}
		commit(t, tx)
		s.caughtUp()
		require.Equal(t, 300, s.judge(ledger).Records)

		java := kgo.StickyKeyPartitioner(nil).ForTopic(s.topic)
		highest, seen := map[int32]string{}, map[int32]bool{}
		for _, r := range s.cluster.Consume(t, s.topic).WaitFor(t, 300, wait) {
			require.EqualValues(t, java.Partition(r, partitions), r.Partition)
			position := judge.Header(r, "walrelay-position")
			require.Regexp(t, `^[0-9A-F]{8}-[0-9A-F]{8}-[0-9A-F]{16}-[0-9A-F]{8}$`, position)
			require.Equal(t, "00000001-00000001", position[:17], "epoch and timeline of a new stream on a new server")
			require.Greater(t, position, highest[r.Partition])
			highest[r.Partition], seen[r.Partition] = position, true
		}
		require.Len(t, seen, partitions)

		s.stop(relay) // registry and slot move one after the other, and are not read at one moment
		var epoch, timeline, count int
		var ordered, system bool
		var slot, publication, delivery string
		require.NoError(t, s.db.QueryRow(t, `
			SELECT epoch, timeline, slot, publication, delivery, (partitions->$2)::int,
				created_lsn < confirmed_lsn AND confirmed_lsn >= (SELECT confirmed_flush_lsn FROM pg_replication_slots r
					WHERE r.slot_name = $1),
				system_identifier = (SELECT c.system_identifier::text FROM pg_control_system() c)
			FROM walrelay.streams WHERE name = $1`, s.slot, s.topic).
			Scan(&epoch, &timeline, &slot, &publication, &delivery, &count, &ordered, &system))
		require.Equal(t, []any{1, 1, s.slot, "walrelay", "at-least-once", partitions, true, true},
			[]any{epoch, timeline, slot, publication, delivery, count, ordered, system})
	})
}

// The topic is made of columns of the row, several of them if wanted; a null key is spread by id.
func TestShape_TopicOfColumns(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newOwn(t, testenv.Postgres(t, major), testenv.Kafka(t), 4, ownOutbox, ownPublication)
		s.set("WALRELAY_TOPIC", s.prefix+"{aggregate_type}_{event_type}.v1")
		paid, sent := s.prefix+"orders_paid.v1", s.prefix+"orders_sent.v1"
		s.cluster.CreateTopic(t, paid, 4, nil)
		s.cluster.CreateTopic(t, sent, 1, nil)
		s.relay()
		s.db.Exec(t, `INSERT INTO outbox SELECT n, 'orders', CASE WHEN n % 3 > 0 THEN 'k' END,
			CASE n % 2 WHEN 0 THEN 'paid' ELSE 'sent' END, '{}' FROM generate_series(0, 239) n`)

		partitions := map[int32]int{}
		for _, r := range s.cluster.Consume(t, paid).WaitFor(t, 120, wait) {
			require.Equal(t, "paid", judge.Header(r, "eventType"))
			if r.Key == nil {
				partitions[r.Partition]++
			}
		}
		require.Len(t, partitions, 4, "null keys go everywhere")
		for _, r := range s.cluster.Consume(t, sent).WaitFor(t, 120, wait) {
			require.Equal(t, "sent", judge.Header(r, "eventType"))
		}
		s.caughtUp()
		require.EqualValues(t, 120, s.ends(paid).Sum())
		require.EqualValues(t, 120, s.ends(sent).Sum())
		require.Zero(t, s.ends(s.topic).Sum())
	})
}

// A partition that was made in the transaction of its first row is in the log before others can see it: by a
// moment, or for as long as the commit waits for a synchronous standby. The stream waits too, and keeps its
// connection.
func TestShape_PartitionNotVisibleYet(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, lastMajor(), testenv.Config{})
	s := newOwn(t, server, testenv.Kafka(t), 1, partitionedOutbox, firstPartition, `CREATE PUBLICATION outbox_pub
		FOR ALL TABLES WITH (publish = 'insert')`) // where a table that is unknown is none of ours
	relay := s.relay()
	consumer := s.cluster.Consume(t, s.topic)
	s.insertOwn(1, "k", `{}`)
	consumer.WaitFor(t, 1, wait)
	s.db.Exec(t, "CREATE TABLE attached (LIKE outbox INCLUDING ALL)")

	standby := func(name string) {
		server.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = '"+name+"'")
		server.Exec(t, "SELECT pg_reload_conf()")
	}
	standby("nobody")
	probing, stop := context.WithCancel(context.Background())
	probed := make(chan struct{})
	go func() { // commits, until one has to wait: the server takes the setting in its time
		defer close(probed)
		for probing.Err() == nil {
			_, _ = s.db.Conn.Exec(probing, "SELECT pg_logical_emit_message(true, 'probe', '')")
		}
	}()
	t.Cleanup(func() {
		stop()
		<-probed
	})
	require.Eventually(t, func() bool {
		var waits bool
		require.NoError(t, s.db.QueryRow(t, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')").
			Scan(&waits))
		return waits
	}, wait, tick)
	committed := make(chan error, 1)
	go func() {
		_, err := s.db.Conn.Exec(context.Background(), `BEGIN;
			ALTER TABLE outbox ATTACH PARTITION attached FOR VALUES FROM (100) TO (200);
			INSERT INTO outbox VALUES (101, 'orders', 'k', 'e', '{}'); COMMIT`)
		committed <- err
	}()
	relay.WaitForLog(t, "is committed and not visible yet", wait)
	s.ready(200)
	stop()
	standby("")
	require.NoError(t, <-committed)
	require.Equal(t, []string{"101"}, delivered(consumer.WaitFor(t, 1, wait)))
	s.caughtUp()
	s.stop(relay)
}
