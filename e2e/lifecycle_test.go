package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// D19: the slot is the lock. Of three instances one streams; however it goes, one of the others takes over.
func TestLifecycle_Standby(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 2)
		f := follow(s)
		// Standbys look about every second; the rest is for a busy machine. The server's wal_sender_timeout is
		// a minute, but for the first instance.
		const takeover, timeout = 40 * time.Second, 3 * time.Second
		first := s.another()
		first.set("WALRELAY_DATABASE_URL", s.db.DSN+"&options=-cwal_sender_timeout%3D"+timeout.String())
		all := instances{{first, first.relay()}}
		for range 2 {
			all = all.add(s)
		}

		for _, c := range []struct {
			name  string
			end   func(instance)
			limit time.Duration
		}{
			{"frozen", func(i instance) { i.Signal(t, syscall.SIGSTOP) }, timeout + takeover},
			{"stopped", func(i instance) { i.stop(i.Process) }, takeover},
			{"killed", func(i instance) { i.Kill(t) }, takeover},
		} {
			t.Log(c.name)
			holder, others := all.holder(s)
			f.delivers()
			c.end(holder)
			at, n := time.Now(), f.number()
			s.insert(n, "k", `{}`)
			f.sees(n)
			require.Less(t, time.Since(at), c.limit)
			if c.name == "frozen" { // and thaws: it finds its connection gone, and stands by
				holder.Signal(t, syscall.SIGCONT)
				all.holder(s)
				holder.stop(holder.Process) // a standby stops as well
			}
			all = others.add(s)
		}
		all.holder(s)
		const holders = 4 // the first, and one after each end; a standby may see them all
		for _, i := range all {
			require.LessOrEqual(t, strings.Count(i.Log(), "standing by"), holders, "once for each")
		}
		s.caughtUp()
		s.judge(f.ledger)
	})
}

// instance is one of several relays of a stream.
type instance struct {
	*setup
	*testenv.Process
}

type instances []instance

// add starts one more, which has to wait.
func (all instances) add(s *setup) instances {
	s.t.Helper()
	i := instance{setup: s.another()}
	i.Process = i.start()
	return append(slices.Clone(all), i)
}

// holder waits until one instance streams and the others stand by, as /readyz and /status tell.
func (all instances) holder(s *setup) (holder instance, others instances) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		holder, others = instance{}, nil
		for _, i := range all {
			code, ready := i.get("/readyz")
			var report struct {
				Status struct{ State, Reason string }
			}
			_, body := i.get("/status")
			switch _ = json.Unmarshal([]byte(body), &report); {
			case code != 200:
			case report.Status.State == "streaming" && strings.Contains(ready, "streaming"):
				holder = i
			case report.Status.State == "standby" && strings.Contains(report.Status.Reason, "holds slot "+s.slot) &&
				strings.Contains(ready, "standby: another session holds the slot"):
				others = append(others, i)
			}
		}
		return holder.Process != nil && len(others) == len(all)-1
	}, wait, tick)
	return holder, others
}

// another is the setup of one more instance.
func (s *setup) another() *setup {
	other := *s
	other.env = maps.Clone(s.env)
	other.set("WALRELAY_ADMIN_ADDR", freeAddr(s.t))
	return &other
}

// Stopping under load leaves nothing in flight, so that the next start repeats nothing.
func TestLifecycle_Drain(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 3)
		relay := s.relay()
		group, ctx := errgroup.WithContext(t.Context())
		ledger := judge.NewLedger()
		const events = 15_000 // each
		for n := range 2 {
			w := newWriter(s, ledger, n+1, uint64(n+1))
			group.Go(func() error { return w.write(ctx, events) })
		}
		for n := range int64(5) {
			require.Eventually(t, func() bool {
				return s.ends(s.topic).Sum() >= (n+1)*events/4
			}, wait, tick)
			s.stop(relay)
			relay = s.relay()
		}
		require.NoError(t, group.Wait())
		s.caughtUp()
		require.Zero(t, s.judge(ledger).Duplicates)
	})
}

// The first signal waits for what is in flight; a second one does not.
func TestLifecycle_SecondSignal(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, testenv.Majors()[0]), testenv.Kafka(t), 1)
	s.set("WALRELAY_SHUTDOWN_TIMEOUT", "1h")
	relay := s.relay()
	s.insertInto("later", 1, "k", `{}`) // there is no such topic yet
	heldUp(t, relay, "topic "+s.prefix+"later")
	relay.Signal(t, terminate)
	s.ready(503, "draining")
	relay.Signal(t, terminate)
	require.Equal(t, 1, relay.Wait(t, wait))

	s.set("WALRELAY_SHUTDOWN_TIMEOUT", "1s")
	relay = s.relay()
	heldUp(t, relay, "topic "+s.prefix+"later")
	s.stop(relay)
	require.Contains(t, relay.Log(), "stopped before everything was acknowledged")
	s.cluster.CreateTopic(t, s.prefix+"later", 1, nil)
	s.relay()
	s.cluster.Consume(t, s.prefix+"later").WaitFor(t, 1, wait)
}

// PostgreSQL's own troubles end no stream, and none of its shutdowns waits for the relay.
func TestLifecycle_PostgresRestarts(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		server := testenv.StartPostgres(t, major, testenv.Config{})
		s := newSetup(t, server, testenv.Kafka(t), 1)
		f := follow(s)
		relay := s.relay()
		f.delivers()

		t.Log("walsender terminated")
		s.cut()
		f.delivers()
		t.Log("every session terminated")
		s.db.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'walrelay'")
		f.delivers()
		for _, mode := range []testenv.StopMode{testenv.Fast, testenv.Immediate} {
			t.Log("shutdown", mode)
			f.delivers()
			s.restarts(mode)
			f.delivers()
			s.ready(200)
		}
		require.True(t, relay.Running())
		require.NotContains(t, relay.Log(), `"level":"error"`)

		t.Log("several hosts, a standby first")
		s.stop(relay)
		standby := server.Standby(t, testenv.Config{})
		both := fmt.Sprintf("@127.0.0.1:%d,127.0.0.1:%d/", standby.Port, server.Port)
		s.set("WALRELAY_DATABASE_URL", strings.Replace(s.db.DSN, fmt.Sprintf("@127.0.0.1:%d/", server.Port), both, 1))
		relay = s.relay()
		f.delivers()
		require.Contains(t, s.run("stream", "show"), "active: true") // through the same URL

		t.Log("only a standby: it might be promoted")
		s.stop(relay)
		s.set("WALRELAY_DATABASE_URL", standby.DSN(s.db.Name))
		relay = s.start()
		s.ready(503, "connecting", "read only")
		require.True(t, relay.Running())
	})
}

// restarts shuts the server down and starts it again. The shutdown must not wait for the relay.
func (s *setup) restarts(mode testenv.StopMode) {
	s.t.Helper()
	at := time.Now()
	s.db.Server().Stop(s.t, mode)
	require.Less(s.t, time.Since(at), 40*time.Second, "less than wal_sender_timeout, when the server gives the relay up")
	s.db.Server().Start(s.t)
	s.db.Conn.Reset()
}

// Without Kafka the relay keeps the slot and waits, from the start or from any moment on; and it
// does not keep PostgreSQL from shutting down.
func TestLifecycle_KafkaDown(t *testing.T) {
	t.Parallel()
	cluster := testenv.StartKafka(t, testenv.KafkaConfig{})
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.StartPostgres(t, major, testenv.Config{}), cluster, 1)
		f := follow(s)
		s.relayWithoutKafka(f)

		cluster.PauseBroker(t, 0)
		n := f.number()
		s.insert(n, "k", `{}`)
		end := s.lsn("pg_current_wal_lsn()")
		s.restarts(testenv.Fast)
		require.Eventually(t, func() bool {
			var active bool
			const query = "SELECT active FROM pg_replication_slots WHERE slot_name = $1"
			require.NoError(t, s.db.QueryRow(t, query, s.slot).Scan(&active))
			return active
		}, wait, tick)
		require.Less(t, s.confirmed(), end)
		cluster.ResumeBroker(t, 0)
		f.sees(n)
		f.delivers()
		s.ready(200)
	})
}

// relayWithoutKafka starts a relay whose only seed comes later.
func (s *setup) relayWithoutKafka(f *follower) {
	t := s.t
	seed := freeAddr(t)
	s.set("WALRELAY_KAFKA_BROKERS", seed)
	relay := s.start()
	s.ready(503, "connecting", "producing", seed)
	n := f.number()
	s.insert(n, "k", `{}`)
	s.db.AwaitSlot(t, s.slot, wait)
	code, _ := s.get("/livez")
	require.Equal(t, 200, code)
	newGate(t, seed, s.cluster.Addrs()[0])
	f.sees(n)
	s.ready(200)
	require.NotContains(t, relay.Log(), `"level":"error"`)
}

// A topic that gains partitions begins a new epoch, with nothing lost, and positions still tell the
// order of a key whose partition is another one now.
func TestLifecycle_Partitions(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 2)
		relay := s.relay()
		consumer := s.cluster.Consume(t, s.topic)
		const events, keys = 600, 20
		group := errgroup.Group{}
		group.Go(func() error {
			for n := range events {
				if n == events/3 {
					known := func() bool { return s.registered("coalesce(partitions->>'"+s.topic+"', '')") == "2" }
					require.Eventually(t, known, wait, tick)
					s.cluster.AddPartitions(t, s.topic, 3)
					s.cluster.CreateTopic(t, s.prefix+"other", 1, nil)
					s.insertInto("other", 1e6, "k", `{}`) // a new topic makes the relay look at all
				}
				s.insert(n, fmt.Sprint(n%keys), `{}`)
			}
			return nil
		})
		require.NoError(t, group.Wait())
		relay.WaitForLog(t, "epoch raised: a topic has another number of partitions", wait)
		for n := range 100 {
			s.insert(events+n, fmt.Sprint(n%keys), `{}`)
		}
		positions := map[string]string{} // by event id
		fence := map[int32]string{}
		for len(positions) < events+100 {
			record := consumer.WaitFor(t, 1, wait)[0]
			id, position := judge.Header(record, "id"), judge.Header(record, "walrelay-position")
			if _, seen := positions[id]; seen {
				continue
			}
			require.Greater(t, position, fence[record.Partition])
			positions[id], fence[record.Partition] = position, position
		}
		for n := keys; n < events+100; n++ {
			require.Less(t, positions[eventID(n-keys)], positions[eventID(n)], "the event before of the same key")
		}
		require.Len(t, fence, 5, "every partition is used")
		require.Equal(t, "2", s.registered("epoch"))
		require.Equal(t, "5", s.registered("partitions->>'"+s.topic+"'"))
		require.Equal(t, "00000002", positions[eventID(events+99)][:8])
	})
}

func TestLifecycle_Config(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, testenv.Majors()[0]), testenv.Kafka(t), 1)
	require.Contains(t, s.run("config"), "WALRELAY_SLOT="+s.slot+"\n")
	wrong := map[string]string{
		"WALRELAY_DATABASE_URL":    "postgres://user:secret-password@host:port/db",
		"WALRELAY_KAFKA_BROKERS":   "nowhere",
		"WALRELAY_SLOT":            "Not-A-Slot",
		"WALRELAY_TOPIC":           "outbox.{",
		"WALRELAY_ON_POISON":       "ignore",
		"WALRELAY_STATUS_INTERVAL": "soon",
		"WALRELAY_IN_FLIGHT_BYTES": "1 parsec",
		"WALRELAY_TABELS":          "public.outbox",
	}
	for variable, value := range wrong {
		s.set(variable, value)
	}
	for _, command := range []string{"config", "run", "migrate"} {
		text := s.fails(2, command)
		for variable := range wrong {
			if command == "migrate" && variable == "WALRELAY_KAFKA_BROKERS" {
				continue
			}
			require.Regexp(t, "(?m)^  "+variable+"=.*: .", text, command)
		}
		require.NotContains(t, text, "secret-password")
	}
}

func TestLifecycle_Migrate(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newBare(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		fatal(t, s.start(), "walrelay.streams", "does not exist", "run `walrelay migrate`")
		var processes []*testenv.Process
		for range 10 {
			processes = append(processes,
				testenv.StartProcess(t, testenv.Command{Path: testenv.Binary(t), Args: []string{"migrate"}, Env: s.env}))
		}
		applied := 0
		for _, p := range processes {
			require.Equal(t, 0, p.Wait(t, wait), p.Log())
			applied += strings.Count(p.Stdout(), "applied")
		}
		require.Equal(t, strings.Count(s.run("migrate", "status"), "\n"), applied)
		require.NotContains(t, s.run("migrate", "status"), "pending")
		require.Equal(t, "nothing to apply\n", s.run("migrate"))
		s.relay()
		follow(s).delivers()
	})
}
