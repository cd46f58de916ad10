package main

import (
	"context"
	_ "embed" // for the schemas
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/walrelay/walrelay/testenv"
)

const (
	postgresMajor = 18
	brokers       = 3
	partitions    = 6
	instances     = 3 // of the API and of the consumer
	slot          = "payments"
	opening       = 1_000_000_000 // cents on an account
	openingPoor   = 20_000        // on one that runs out
)

var (
	//go:embed payments.sql
	paymentsSQL string
	//go:embed ledger.sql
	ledgerSQL string
)

// world is everything that the proof runs.
type world struct {
	t         testing.TB
	random    *rand.Rand
	payments  *testenv.Database // each on a server of its own
	ledger    *testenv.Database
	kafka     *testenv.Cluster
	relay     *service
	apis      []*service
	consumers []*service
	addrs     []string // of the APIs
	accounts  []string
	opened    int64 // cents on all accounts at the start
	self      string
}

// newWorld starts the servers and all processes, and waits until walrelay streams: before its slot is there, events
// would pass it by.
func newWorld(t testing.TB, seed uint64) *world {
	t.Helper()
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 0))}
	var err error
	if w.self, err = os.Executable(); err != nil {
		t.Fatalf("find program: %v", err)
	}
	w.payments = testenv.StartPostgres(t, postgresMajor, testenv.Config{}).Database(t)
	w.ledger = testenv.StartPostgres(t, postgresMajor, testenv.Config{}).Database(t)
	w.kafka = testenv.StartKafka(t, testenv.KafkaConfig{
		Brokers: brokers, Settings: map[string]string{"min.insync.replicas": "2"},
	})
	w.kafka.CreateTopic(t, topic, partitions, nil)

	w.walrelay("migrate", "up", "--database-url", w.payments.DSN)
	w.walrelay("migrate", "up", "--kit", "--database-url", w.payments.DSN)
	w.walrelay("migrate", "up", "--kit", "--database-url", w.ledger.DSN)
	w.payments.Exec(t, paymentsSQL)
	w.ledger.Exec(t, ledgerSQL)
	w.openAccounts()

	w.relay = startService(t, "relay", testenv.Command{
		Path: testenv.Binary(t), Args: []string{"run"}, Env: w.relayEnv(),
	})
	if !await(t.Context(), time.Minute, func(ctx context.Context) bool {
		var active bool
		err := w.payments.Conn.QueryRow(ctx, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", slot).
			Scan(&active)
		return err == nil && active
	}) {
		t.Errorf("walrelay does not stream: %s", w.relay.log())
	}
	for i := range instances {
		addr := testenv.Addr(t)
		w.addrs = append(w.addrs, addr)
		w.apis = append(w.apis, startService(t, fmt.Sprintf("api-%d", i), testenv.Command{
			Path: w.self, Args: []string{"api", "--listen", addr}, Env: map[string]string{"DATABASE_URL": w.payments.DSN},
		}))
	}
	w.startConsumers()
	return w
}

// walrelay runs one of its commands.
func (w *world) walrelay(args ...string) {
	p := testenv.StartProcess(w.t, testenv.Command{Path: testenv.Binary(w.t), Args: args})
	if code := p.Wait(w.t, time.Minute); code != 0 {
		w.t.Fatalf("walrelay %s: exit code %d: %s%s", strings.Join(args[:2], " "), code, p.Stdout(), p.Log())
	}
}

func (w *world) relayEnv() map[string]string {
	return map[string]string{
		"WALRELAY_DATABASE_URL":    w.payments.DSN,
		"WALRELAY_KAFKA_BROKERS":   w.kafka.Seeds(),
		"WALRELAY_SLOT":            slot,
		"WALRELAY_ADMIN_ADDR":      "127.0.0.1:0",
		"WALRELAY_RECEIVE_TIMEOUT": "8s",
		"WALRELAY_PRODUCE_TIMEOUT": "5s",
		"WALRELAY_BACKOFF_MAX":     "1s",
	}
}

// openAccounts opens a few, so that payments meet on them, two of them with little money.
func (w *world) openAccounts() {
	for i := range 10 {
		balance := int64(opening)
		if i < 2 {
			balance = openingPoor
		}
		w.accounts = append(w.accounts, fmt.Sprintf("account-%d", i))
		w.opened += balance
		w.payments.Exec(w.t, "INSERT INTO accounts (id, balance) VALUES ($1, $2)", w.accounts[i], balance)
	}
}

func (w *world) startConsumers() {
	for i := range instances {
		w.consumers = append(w.consumers, startService(w.t, fmt.Sprintf("consumer-%d", i), testenv.Command{
			Path: w.self, Args: []string{"consume", "--brokers", w.kafka.Seeds()},
			Env: map[string]string{"DATABASE_URL": w.ledger.DSN},
		}))
	}
}

func end(services ...*service) error {
	ends := make([]error, len(services))
	var all sync.WaitGroup
	for i, s := range services {
		all.Go(func() { ends[i] = s.end() })
	}
	all.Wait()
	return errors.Join(ends...)
}

// endAll also tells of services that have not ended as they should.
func (w *world) endAll() {
	all := slices.Concat([]*service{w.relay}, w.apis, w.consumers)
	if err := end(all...); err != nil {
		w.t.Errorf("%v", err)
	}
	for _, s := range all {
		for _, crash := range s.crashes() {
			w.t.Errorf("%s", crash)
		}
	}
}

// settle waits until all events are in Kafka and all records are applied, and ends walrelay in between. After that
// nothing moves any more.
func (w *world) settle(ctx context.Context, limit time.Duration) error {
	if !await(ctx, limit, func(ctx context.Context) bool { // each event was delivered once at least
		var charged, booked int
		return w.payments.Conn.QueryRow(ctx, "SELECT count(*) FROM payments").Scan(&charged) == nil &&
			w.ledger.Conn.QueryRow(ctx, "SELECT count(DISTINCT payment) FROM entries").Scan(&booked) == nil &&
			booked >= charged
	}) {
		return fmt.Errorf("not every payment is booked within %v", limit)
	}
	if err := end(w.relay); err != nil {
		return err
	}
	return w.caughtUp(ctx, limit)
}

// caughtUp waits until the consumers have committed the end of every partition.
func (w *world) caughtUp(ctx context.Context, limit time.Duration) error {
	var err error
	if !await(ctx, limit, func(ctx context.Context) bool {
		var lags kadm.DescribedGroupLags
		lags, err = w.kafka.Admin.Lag(ctx, group)
		if err == nil {
			err = lags.Error()
		}
		if err != nil {
			return false
		}
		behind := 0
		for _, partition := range lags[group].Lag[topic] {
			if partition.Lag != 0 { // -1: unknown
				behind++
			}
		}
		return behind == 0 && len(lags[group].Lag[topic]) == partitions
	}) {
		return fmt.Errorf("the consumers do not catch up within %v: %w", limit, err)
	}
	return nil
}

// repeatAll sets the consumers back to the beginning of the topic and lets them see every record once more.
func (w *world) repeatAll(ctx context.Context, limit time.Duration) error {
	if err := end(w.consumers...); err != nil {
		return err
	}
	starts, err := w.kafka.Admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return fmt.Errorf("list offsets: %w", err)
	}
	if !await(ctx, limit, func(ctx context.Context) bool { // the group has to be empty
		var answer kadm.OffsetResponses
		answer, err = w.kafka.Admin.CommitOffsets(ctx, group, starts.Offsets())
		if err == nil {
			err = answer.Error()
		}
		return err == nil
	}) {
		return fmt.Errorf("set offsets back: %w", err)
	}
	w.startConsumers()
	return w.caughtUp(ctx, limit)
}

// records is how many records there are in the topic.
func (w *world) records(ctx context.Context) (n int64, err error) {
	ends, err := w.kafka.Admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n, err
}
