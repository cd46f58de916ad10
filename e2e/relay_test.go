package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// wait is how long a test waits for what should take a moment: long, since the machine may be busy.
const wait = 60 * time.Second

// tick is how often a condition on a server is looked at.
const tick = 20 * time.Millisecond

var terminate os.Signal = syscall.SIGTERM

// setup is one test's own database, slot and topics on the shared servers.
type setup struct {
	t       *testing.T
	db      *testenv.Database
	cluster *testenv.Cluster
	slot    string
	topic   string // of aggregate type "orders"
	prefix  string // of all topics
	env     map[string]string

	committed bool // consumers and judge read what transactions have committed, and nothing else
}

// newSetup migrates a fresh database and creates the topic for the aggregate type "orders".
func newSetup(t *testing.T, server *testenv.Server, cluster *testenv.Cluster, partitions int) *setup {
	t.Helper()
	s := newBare(t, server, cluster, partitions)
	s.run("migrate", "up")
	return s
}

// newBare is newSetup for tests that bring an outbox of their own.
func newBare(t *testing.T, server *testenv.Server, cluster *testenv.Cluster, partitions int) *setup {
	t.Helper()
	return newIn(t, server.Database(t), cluster, partitions)
}

// newIn is newBare in a database that the test has made.
func newIn(t *testing.T, db *testenv.Database, cluster *testenv.Cluster, partitions int) *setup {
	t.Helper()
	s := &setup{t: t, db: db, cluster: cluster}
	s.slot = s.db.Slot(t)
	s.prefix = "e2e." + s.slot + "."
	s.topic = s.prefix + "orders"
	cluster.CreateTopic(t, s.topic, partitions, nil)
	s.env = map[string]string{
		"WALRELAY_DATABASE_URL":    s.db.DSN,
		"WALRELAY_KAFKA_BROKERS":   cluster.Seeds(),
		"WALRELAY_SLOT":            s.slot,
		"WALRELAY_TOPIC":           s.prefix + "{aggregatetype}",
		"WALRELAY_STATUS_INTERVAL": "200ms",
		"WALRELAY_BACKOFF_MAX":     "1s",
		"WALRELAY_ADMIN_ADDR":      freeAddr(t),
		"WALRELAY_LOG_LEVEL":       "debug",
	}
	return s
}

// set adds or replaces a variable.
func (s *setup) set(name, value string) { s.env[name] = value }

// freeAddr is an address at which nobody listens until the test lets somebody.
func freeAddr(t *testing.T) string {
	t.Helper()
	return testenv.Addr(t)
}

// run runs a command of the binary to its end and returns what it printed.
func (s *setup) run(args ...string) string {
	s.t.Helper()
	p := testenv.StartProcess(s.t, testenv.Command{Path: testenv.Binary(s.t), Args: args, Env: s.env})
	require.Equal(s.t, 0, p.Wait(s.t, wait), "%s: %s%s", strings.Join(args, " "), p.Stdout(), p.Log())
	return p.Stdout()
}

// relay starts `walrelay run` and waits until it streams.
func (s *setup) relay() *testenv.Process {
	s.t.Helper()
	p := s.start()
	p.WaitForLog(s.t, `"message":"streaming"`, wait)
	return p
}

// start starts `walrelay run`.
func (s *setup) start() *testenv.Process {
	s.t.Helper()
	p := testenv.StartProcess(s.t, testenv.Command{Path: testenv.Binary(s.t), Args: []string{"run"}, Env: s.env})
	s.t.Cleanup(func() {
		for _, sign := range []string{"DATA RACE", "panic: "} { // the first is printed without ending the process
			if strings.Contains(p.Log(), sign) {
				s.t.Errorf("%s in the log", sign)
			}
		}
	})
	return p
}

// insert writes one event in a transaction of its own. The id is made of n.
func (s *setup) insert(n int, key, payload string) {
	s.t.Helper()
	s.db.Exec(s.t, insertSQL, eventID(n), key, payload)
}

const insertSQL = `INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload)
	VALUES ($1, 'orders', $2, 'created', $3)`

func eventID(n int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", n) }

// lsn asks the server for a position, by a SQL expression.
func (s *setup) lsn(expression string, args ...any) pglogrepl.LSN {
	s.t.Helper()
	var lsn pglogrepl.LSN
	require.NoError(s.t, s.db.QueryRow(s.t, "SELECT ("+expression+")::text", args...).Scan(&lsn))
	return lsn
}

// confirmed is the slot's confirmed_flush_lsn.
func (s *setup) confirmed() pglogrepl.LSN {
	s.t.Helper()
	return s.lsn("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = $1", s.slot)
}
