package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

const (
	brokers    = 3
	partitions = 4 // of a topic, at first
	slot       = "campaign"
	prefix     = "campaign." // of the topics
)

// kinds are the aggregate types. Most events of the last have no key. The topic of notices is the one
// that recreate-topic deletes: what it loses is excused, and in the others nothing is.
//
//nolint:gochecknoglobals // a constant
var kinds = []string{notices, "orders", "payments", "parcel_scans", "audits"}

const notices = "notices"

// world is all that a campaign happens in.
type world struct {
	t         testing.TB
	options   options
	random    *rand.Rand // of the faults
	server    *testenv.Server
	db        *testenv.Database
	database  string // its name
	cluster   *testenv.Cluster
	postgres  *wire
	kafka     []*wire
	relays    *relays
	pace      *pace                  // of the writers
	gate      gate                   // before the writers and the pulse
	dsn       atomic.Pointer[string] // of connect
	pulse     *pulse
	ledger    *judge.Ledger
	topics    []string
	buckets   atomic.Int32 // partitions of the table outbox_parts
	columns   int          // that a fault has added
	failovers int
}

// newWorld starts PostgreSQL and Kafka, but no walrelay.
func newWorld(t testing.TB, opts options) *world {
	t.Helper()
	w := &world{t: t, options: opts, random: rand.New(rand.NewPCG(opts.seed, 0)), ledger: judge.NewLedger()}
	w.pace = newPace(float64(opts.rate) / writers)
	net := newWires()
	w.server = testenv.StartPostgres(t, opts.postgres, serverConfig(nil))
	w.db = w.server.Database(t)
	dsn := w.server.SocketDSN(w.db.Name)
	w.database = w.db.Name
	w.dsn.Store(&dsn)
	w.postgres = net.to(t, "postgres", fmt.Sprintf("127.0.0.1:%d", w.server.Port))
	w.cluster = testenv.StartKafka(t, testenv.KafkaConfig{
		Brokers: brokers,
		Settings: map[string]string{
			"min.insync.replicas": "2", "controlled.shutdown.enable": "true",
			// Two disks, one of which may fail alone, and one more for what a broker cannot do without.
			"log.dirs": "data-0,data-1", "metadata.log.dir": "metadata",
			"listener.name.client.sasl.enabled.mechanisms": mechanism,
			"listener.name.client." + strings.ToLower(mechanism) + ".sasl.jaas.config": "org.apache.kafka.common.security." +
				"scram.ScramLoginModule required;",
		},
		Listener: &testenv.Listener{Protocol: "SASL_PLAINTEXT", Advertise: func(broker int, addr string) string {
			w.kafka = append(w.kafka, net.to(t, fmt.Sprintf("broker-%d", broker), addr))
			return w.kafka[broker].addr()
		}},
	})
	for _, kind := range kinds {
		w.topics = append(w.topics, prefix+kind)
		w.cluster.CreateTopic(t, prefix+kind, partitions, nil)
	}
	w.relays = newRelays(w)
	if err := w.createRelayUsers(t.Context()); err != nil {
		t.Fatalf("%v", err)
	}
	w.db.Exec(t, witnessSQL+opts.shape.tables)
	w.db.Exec(t, opts.shape.publicationSQL())
	if err := w.addBucket(t.Context()); err != nil {
		t.Fatalf("%v", err)
	}
	for _, args := range [][]string{{"migrate", "up"}, {"migrate", "up", "--kit"}} {
		w.relays.command(t, append(args, "--database-url", w.db.DSN)...) // by the owner
	}
	if err := w.grant(t.Context()); err != nil {
		t.Fatalf("%v", err)
	}
	return w
}

// witnessSQL creates a table that is not published: what an application writes beside its events.
const witnessSQL = "CREATE TABLE witnesses (id uuid PRIMARY KEY);"

// publicationSQL creates the publication as the shape has it.
func (s *shape) publicationSQL() string {
	return fmt.Sprintf("CREATE PUBLICATION walrelay FOR TABLE outbox, outbox_parts "+
		"WITH (publish = 'insert', publish_via_partition_root = %t)", !s.byPart)
}

// tables are those of every shape.
//
//nolint:gochecknoglobals // a constant
var tables = []string{"outbox", "outbox_parts"}

// addBucket adds a partition to outbox_parts, which the writers use from then on.
func (w *world) addBucket(ctx context.Context) error {
	n := w.buckets.Load()
	if w.options.shape.part == "" {
		w.relays.command(w.t, "partitions", "create", "--every=hour", fmt.Sprintf("--ahead=%dh", n+1), "--table=outbox_parts")
	} else if err := w.sql(ctx, fmt.Sprintf(w.options.shape.part, n)); err != nil {
		return err
	}
	w.buckets.Add(1)
	return nil
}

// relayEnv is the environment of an instance of walrelay; what may differ from one start to the next
// is chosen anew.
func (w *world) relayEnv(name string, random *rand.Rand) map[string]string {
	dsn := url.URL{
		Scheme: "postgres", User: url.UserPassword(relayUser, relayPassword), Host: w.postgres.addr(), Path: "/" + w.database,
		RawQuery: "sslmode=disable&application_name=" + name,
	}
	addrs := make([]string, len(w.kafka))
	for i, wire := range w.kafka {
		addrs[i] = wire.addr()
	}
	env := map[string]string{
		"WALRELAY_DATABASE_URL":         dsn.String(),
		"WALRELAY_KAFKA_BROKERS":        strings.Join(addrs, ","),
		"WALRELAY_KAFKA_SASL_MECHANISM": mechanism,
		"WALRELAY_KAFKA_SASL_USERNAME":  relayUser,
		"WALRELAY_KAFKA_SASL_PASSWORD":  relayPassword,
		"WALRELAY_SLOT":                 slot,
		"WALRELAY_SLOT_FAILOVER":        strconv.FormatBool(w.options.postgres >= failoverMajor),
		"WALRELAY_TABLES":               "public.outbox,public.outbox_parts",
		"WALRELAY_DELIVERY":             w.options.delivery,
		"WALRELAY_STATUS_INTERVAL":      "500ms",
		"WALRELAY_RECEIVE_TIMEOUT":      "8s",
		"WALRELAY_PRODUCE_TIMEOUT":      "5s",
		"WALRELAY_BACKOFF_MAX":          "2s",
		"WALRELAY_ADMIN_ADDR":           "127.0.0.1:0",
	}
	maps.Copy(env, w.options.shape.settings)
	maps.Copy(env, map[string]string{
		"WALRELAY_IN_FLIGHT_EVENTS": pick(random, "300", "5000", "65536"), // less than some transactions
		"WALRELAY_BATCH_BYTES":      pick(random, "10000", "200000", "1000000"),
		"WALRELAY_COMPRESSION":      pick(random, "none", "lz4", "zstd"),
	})
	return env
}

func pick[T any](random *rand.Rand, choices ...T) T { return choices[random.IntN(len(choices))] }

// between is a random duration.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)+1))
}

// pause waits, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// await looks at a condition until it holds. It reports whether it did in time.
func await(ctx context.Context, limit time.Duration, holds func(ctx context.Context) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for ctx.Err() == nil {
		if holds(ctx) {
			return true
		}
		pause(ctx, 50*time.Millisecond)
	}
	return false
}

// settled waits until everything committed so far is confirmed. Behind the last event walrelay takes
// small steps rarely, so it gets a large one to take.
func (w *world) settled(ctx context.Context, limit time.Duration) error {
	var end, confirmed pglogrepl.LSN
	err := w.db.Conn.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&end)
	if err == nil {
		_, err = w.db.Conn.Exec(ctx, "SELECT pg_logical_emit_message(true, 'campaign', repeat('x', 300000))")
	}
	if err != nil {
		return fmt.Errorf("mark the end: %w", err)
	}
	if !await(ctx, limit, func(ctx context.Context) bool {
		err = w.db.Conn.QueryRow(ctx,
			"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", slot).Scan(&confirmed)
		return err == nil && confirmed >= end
	}) {
		return fmt.Errorf("not everything is confirmed within %v: %s of %s (%w)", limit, confirmed, end, err)
	}
	return nil
}

// streaming is the name of the instance that streams and the process id of its walsender. The name
// is empty when there is none.
func (w *world) streaming(ctx context.Context) (name string, pid int) {
	err := w.db.Conn.QueryRow(ctx, `SELECT application_name, pid FROM pg_stat_replication
		WHERE pid = (SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1)`, slot).Scan(&name, &pid)
	if err != nil {
		return "", 0 // also while the server is away
	}
	return name, pid
}

// sql runs statements one after the other, each for itself, trying again for a while: locks that the
// writers hold for long may be in the way.
func (w *world) sql(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		var err error
		if !await(ctx, stepLimit, func(ctx context.Context) bool {
			_, err = w.db.Conn.Exec(ctx, "SET lock_timeout = '700ms'; "+statement, pgx.QueryExecModeSimpleProtocol)
			return err == nil
		}) {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}
