package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// Limits within which a half-open connection must be noticed. They differ, so that it shows whose struck.
const (
	receiveTimeout  = 5 * time.Second // for which a process may stand still on a busy machine
	produceTimeout  = time.Second
	progressTimeout = 3 * time.Second
)

// slack is what a busy machine may take beyond a limit.
const slack = 15 * time.Second

// wire is a proxy on the way to a server.
type wire struct{ *toxiproxy.Proxy }

func newWire(t *testing.T, upstream string) *wire {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, t.Name(), testenv.Addr(t), upstream)
	require.NoError(t, proxy.Start())
	t.Cleanup(proxy.Stop)
	return &wire{proxy}
}

// directions in which bytes may vanish: towards the server, from it, or both.
func directions() map[string][]string {
	return map[string][]string{
		"upstream": {"upstream"}, "downstream": {"downstream"}, "both": {"upstream", "downstream"},
	}
}

// swallow makes bytes vanish while connections stay open, new ones too.
func (w *wire) swallow(t *testing.T, streams []string) {
	t.Helper()
	t.Cleanup(w.heal)
	for _, stream := range streams {
		_, err := w.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"type": "timeout", "stream": %q}`, stream)))
		require.NoError(t, err)
	}
}

// heal lets bytes through again. Connections that have lost some are ended.
func (w *wire) heal() { w.Toxics.ResetToxics(context.Background()) }

// halfOpen returns a relay's setup with the limits above.
func halfOpen(t *testing.T, server *testenv.Server, cluster *testenv.Cluster) *setup {
	t.Helper()
	s := newSetup(t, server, cluster, 1)
	s.set("WALRELAY_RECEIVE_TIMEOUT", receiveTimeout.String())
	s.set("WALRELAY_PRODUCE_TIMEOUT", produceTimeout.String())
	s.set("WALRELAY_PROGRESS_TIMEOUT", progressTimeout.String())
	return s
}

// A connection to PostgreSQL on which nothing arrives any more, but no end either, is given up within the
// limit, be it that events still come and only our answers vanish. The process stays alive meanwhile.
func TestHalfOpen_Postgres(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		for name, streams := range directions() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := halfOpen(t, testenv.Postgres(t, major), testenv.Kafka(t))
				wire := s.wireToPostgres()
				relay, f := s.relay(), follow(s)
				f.delivers()
				s.ready(http.StatusOK)

				wire.swallow(t, streams)
				var last int
				require.Eventually(t, func() bool {
					last = f.number()
					s.insert(last, "k", `{}`)
					s.alive()
					return strings.Contains(relay.Log(), "stream interrupted")
				}, receiveTimeout+slack, tick)
				s.ready(http.StatusServiceUnavailable, "connecting")
				s.alive()

				wire.heal()
				f.sees(last)
				f.delivers()
				s.caughtUp()
				s.ready(http.StatusOK)
			})
		}
	})
}

// wireToPostgres makes the relay reach its database through a wire.
func (s *setup) wireToPostgres() *wire {
	s.t.Helper()
	dsn, err := url.Parse(s.db.DSN)
	require.NoError(s.t, err)
	wire := newWire(s.t, dsn.Host)
	dsn.Host = wire.Listen
	s.set("WALRELAY_DATABASE_URL", dsn.String())
	return wire
}

// The creation of a slot may wait for a transaction as long as that takes, but not on a half-open connection.
func TestHalfOpen_SlotCreation(t *testing.T) {
	t.Parallel()
	// A server of its own, on which nobody else waits for the transaction, and it for nobody else's.
	s := halfOpen(t, testenv.StartPostgres(t, testenv.Majors()[0], testenv.Config{}), testenv.Kafka(t))
	wire := s.wireToPostgres()
	open := s.begin()
	in(t, open, `CREATE TABLE z (a int)`)
	relay, f := s.start(), follow(s)
	relay.WaitForLog(t, "creation of the slot waits for open transactions", wait)
	s.during(2*receiveTimeout, func() {})
	require.NotContains(t, relay.Log(), "stream interrupted")

	wire.swallow(t, []string{"upstream", "downstream"})
	relay.WaitForLog(t, "the connection was lost meanwhile", receiveTimeout+slack)
	wire.heal()
	require.NoError(t, open.Commit(context.Background()))
	relay.WaitForLog(t, `"message":"streaming"`, wait)
	f.delivers()
}

// A query that is never answered holds up what is confirmed, though events still stream: the connection is
// given up within the limit. The server's process is frozen, which is what a half-open connection looks like.
func TestHalfOpen_SQL(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := halfOpen(t, testenv.StartPostgres(t, major, testenv.Config{}), testenv.Kafka(t))
		relay, f := s.relay(), follow(s)
		f.delivers()
		s.caughtUp()

		s.freezeQueries()
		f.delivers()
		end := s.lsn("pg_current_wal_lsn()")
		relay.WaitForLog(t, "stream interrupted", receiveTimeout+slack)
		s.alive()
		require.Eventually(t, func() bool { return s.confirmed() >= end }, wait, tick)
		f.delivers()
		s.ready(http.StatusOK)
		require.InDelta(t, 1, s.metric("walrelay_reconnects_total", ""), 0)
	})
}

// freezeQueries stops the server's processes for the relay's connections, but the stream's.
func (s *setup) freezeQueries() {
	s.t.Helper()
	rows, err := s.db.Conn.Query(s.t.Context(), `SELECT pid FROM pg_stat_activity
		WHERE application_name = 'walrelay' AND datname = current_database() AND backend_type = 'client backend'`)
	require.NoError(s.t, err)
	frozen := 0
	for rows.Next() {
		var pid int
		require.NoError(s.t, rows.Scan(&pid))
		require.NoError(s.t, syscall.Kill(pid, syscall.SIGSTOP))
		s.t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
		frozen++
	}
	require.NoError(s.t, rows.Err())
	require.NotZero(s.t, frozen)
}

// A connection to Kafka on which nothing arrives any more is given up within the limit; not ready comes with
// the broker's name, and neither the process nor the connection to PostgreSQL suffers.
func TestHalfOpen_Kafka(t *testing.T) {
	t.Parallel()
	cluster, way := wiredKafka(t)
	testenv.ForMajors(t, func(t *testing.T, major int) {
		for name, streams := range directions() {
			t.Run(name, func(t *testing.T) { // one after the other, since they share the way
				s := halfOpen(t, testenv.Postgres(t, major), cluster)
				s.set("WALRELAY_KAFKA_BROKERS", cluster.ListenerAddrs()[0])
				s.set("WALRELAY_RECEIVE_TIMEOUT", wait.String()) // the connection to PostgreSQL is to stay
				relay, f := s.relay(), follow(s)
				f.delivers()
				s.ready(http.StatusOK)
				walsender := s.walsender()

				way.swallow(t, streams)
				last := f.number()
				s.insert(last, "k", `{}`)
				broker := "broker " + way.Listen
				require.Eventually(t, func() bool {
					all := s.troubles()
					return len(all) > 0 && all[0].Object == broker
				}, produceTimeout+slack, tick)
				heldUp(t, relay, broker)
				s.ready(http.StatusServiceUnavailable, "1 events wait", "limit "+progressTimeout.String(), broker+": ")
				s.alive()
				require.Greater(t, s.metric("walrelay_trouble_seconds", strconv.Quote(broker)), 0.0)

				way.heal()
				f.sees(last)
				f.delivers()
				s.ready(http.StatusOK)
				s.caughtUp()
				require.Eventually(t, func() bool { // metadata come by another connection than acknowledgements
					return len(s.troubles()) == 0 && s.metric("walrelay_troubles", "") == 0
				}, wait, tick)
				require.Equal(t, walsender, s.walsender(), "the connection to PostgreSQL must stay")
				require.EqualValues(t, f.events, s.ends(s.topic).Sum(), "what was sent again came twice")
			})
		}
	})
}

// wiredKafka is a broker, and the only way to it for those who take its listener's address.
func wiredKafka(t *testing.T) (cluster *testenv.Cluster, way *wire) {
	t.Helper()
	cluster = testenv.StartKafka(t, testenv.KafkaConfig{Listener: &testenv.Listener{
		Protocol: "PLAINTEXT", Advertise: func(_ int, addr string) string {
			way = newWire(t, addr)
			return way.Listen
		},
	}})
	return cluster, way
}

// alive requires that nobody would restart the process.
func (s *setup) alive() {
	s.t.Helper()
	code, body := s.get("/livez")
	require.Equal(s.t, http.StatusOK, code, body)
}

// trouble is one entry of what /status says of topics and brokers.
type trouble struct {
	Object, Kind, Reason string
	Since                time.Time
}

// heldUp waits until the relay's log says that a topic or a broker holds it up; others may, for a moment.
func heldUp(t *testing.T, relay *testenv.Process, object string) {
	t.Helper()
	relay.WaitForLog(t, `"object":"`+object+`","error":`, wait)
}

func (s *setup) troubles() []trouble {
	s.t.Helper()
	_, body := s.get("/status")
	var doc struct{ Status struct{ Troubles []trouble } }
	require.NoError(s.t, json.Unmarshal([]byte(body), &doc), body)
	return doc.Status.Troubles
}

// A topic that is not there is named while its events wait, and those of others go on until the window is
// full. Once it is there, its name is gone.
func TestTrouble_MissingTopic(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		s.set("WALRELAY_PROGRESS_TIMEOUT", "2s")
		s.relay()
		f := follow(s)
		missing := s.prefix + "parcels"
		s.insertInto("parcels", 1e6, "k", `{}`)
		f.delivers()
		var named trouble
		require.Eventually(t, func() bool {
			all := s.troubles()
			if len(all) > 0 {
				named = all[0]
			}
			return named.Object == "topic "+missing
		}, wait, tick)
		require.Equal(t, "missing", named.Kind)
		require.Contains(t, named.Reason, "WALRELAY_CREATE_TOPICS")
		require.NotZero(t, named.Since)
		sample := fmt.Sprintf(`error="missing",object="topic %s"`, missing)
		require.Greater(t, s.metric("walrelay_trouble_seconds", sample), 0.0)
		// The other topic's acknowledgements are no progress: the oldest event waits all the same.
		s.ready(http.StatusServiceUnavailable, "the oldest has not been acknowledged", "topic "+missing+": ")
		f.delivers()
		s.ready(http.StatusServiceUnavailable, "topic "+missing+": ")

		s.cluster.CreateTopic(t, missing, 1, nil)
		s.cluster.Consume(t, missing).WaitFor(t, 1, wait)
		s.ready(http.StatusOK)
		require.Eventually(t, func() bool {
			_, body := s.get("/metrics")
			return len(s.troubles()) == 0 && !strings.Contains(body, "walrelay_trouble_seconds")
		}, wait, tick)
	})
}
