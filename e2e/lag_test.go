package e2e

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// segment is the size of a file of the write-ahead log, in bytes.
const segment = 16 << 20

// While the brokers are away nothing is confirmed, whatever else is written, and the connection to
// the server stays.
func TestLag_BrokersAway(t *testing.T) {
	t.Parallel()
	const senderTimeout = 6 * time.Second // for which the relay may not stand still, on a busy machine
	cluster := testenv.StartKafka(t, testenv.KafkaConfig{})
	testenv.ForMajors(t, func(t *testing.T, major int) {
		server := testenv.StartPostgres(t, major, testenv.Config{Settings: map[string]string{
			"wal_sender_timeout": senderTimeout.String(),
		}})
		s := newSetup(t, server, cluster, 1)
		s.set("WALRELAY_PROGRESS_TIMEOUT", "1s")
		relay := s.relay()
		consumer := s.cluster.Consume(t, s.topic)
		s.insert(0, "k", `{}`)
		consumer.WaitFor(t, 1, wait)
		s.ready(http.StatusOK)
		walsender := s.walsender()

		cluster.KillBroker(t, 0)
		s.insert(1, "k", `{}`)
		s.db.Exec(t, `CREATE TABLE noise (x text);
			INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 50000)`)
		var confirmed pglogrepl.LSN
		s.during(2*senderTimeout, func() {
			require.Equal(t, walsender, s.walsender(), "the connection must stay")
			confirmed = s.confirmed()
		})
		s.ready(http.StatusServiceUnavailable, "1 events wait, and the oldest has not been acknowledged",
			"broker "+cluster.Addrs()[0]+": ")
		code, _ := s.get("/livez")
		require.Equal(t, http.StatusOK, code)
		require.Eventually(t, func() bool { // what is looked at once in a status interval
			return s.metric("walrelay_lag_seconds", "") >= 2*senderTimeout.Seconds() &&
				s.metric("walrelay_lag_confirmed_bytes", "") > 50e6
		}, wait, tick)
		require.InDelta(t, 1, s.metric("walrelay_in_flight_events", ""), 0)
		heldUp(t, relay, "broker "+cluster.Addrs()[0])

		cluster.StartBroker(t, 0)
		record := consumer.WaitFor(t, 1, wait)[0]
		require.Equal(t, eventID(1), judge.Header(record, "id"))
		require.LessOrEqual(t, confirmed, positionLSN(t, record), "confirmed before it was delivered")
		s.caughtUp()
		s.ready(http.StatusOK)
		relay.WaitForLog(t, "delivery goes on", wait)
		require.Equal(t, walsender, s.walsender())
		require.EqualValues(t, 2, s.ends(s.topic).Sum())
	})
}

// during looks at something again and again for a while.
func (s *setup) during(d time.Duration, look func()) {
	s.t.Helper()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-ticker.C {
		look()
	}
}

// walsender is the server's process that serves the slot.
func (s *setup) walsender() (pid int) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRow(s.t,
		"SELECT coalesce(active_pid, 0) FROM pg_replication_slots WHERE slot_name = $1", s.slot).Scan(&pid))
	return pid
}

// An outbox that nobody writes to holds up no write-ahead log of busy neighbours, in its database or
// in others. There is no heartbeat, and an idle stream writes no log itself.
func TestLag_QuietOutbox(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		server := testenv.StartPostgres(t, major, testenv.Config{Settings: map[string]string{"autovacuum": "off"}})
		s := newSetup(t, server, testenv.Kafka(t), 1)
		s.relay()
		const noise = `CREATE TABLE noise (x text);
			INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 100000)`
		for _, db := range []*testenv.Database{s.db, server.Database(t)} {
			begin := s.lsn("pg_current_wal_lsn()")
			db.Exec(t, noise)
			end, written := s.lsn("pg_current_wal_lsn()"), time.Now()
			require.Greater(t, end, begin+5*segment)
			require.Eventually(t, func() bool { return s.confirmed()+segment >= end }, wait, tick)
			t.Logf("confirmed %v after the last of %d MB", time.Since(written).Round(time.Millisecond), (end-begin)>>20)
			require.InDelta(t, 0, s.metric("walrelay_lag_seconds", ""), 0)
		}
		s.caughtUp()

		quiet := s.lsn("pg_current_wal_lsn()")
		s.during(3*time.Second, func() {}) // 15 status intervals
		t.Logf("%d bytes of log in 3 s of idleness", s.lsn("pg_current_wal_lsn()")-quiet)
		// One step may fall into it, see lazyInterval.
		require.Less(t, s.lsn("pg_current_wal_lsn()"), quiet+2000, "an idle stream writes log")

		s.db.Exec(t, "CHECKPOINT")
		s.caughtUp()
		require.Eventually(t, func() bool { return s.restart()+segment >= quiet }, wait, tick)
		require.Zero(t, s.ends(s.topic).Sum())
	})
}

// restart is the position from which the server keeps its log for the slot.
func (s *setup) restart() pglogrepl.LSN {
	s.t.Helper()
	return s.lsn("SELECT restart_lsn FROM pg_replication_slots WHERE slot_name = $1", s.slot)
}

// A transaction that is left open pins the server's log but neither delivery nor confirmation, and
// the metrics tell the two apart.
func TestLag_LongTransaction(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		server := testenv.StartPostgres(t, major, testenv.Config{})
		s := newSetup(t, server, testenv.Kafka(t), 1)
		s.relay()
		consumer := s.cluster.Consume(t, s.topic)
		open := s.begin()
		in(t, open, `CREATE TABLE z (a int)`, `INSERT INTO z VALUES (1)`)
		opened := s.lsn("pg_current_wal_insert_lsn()")
		for n := range 3 {
			s.insert(n, "k", `{}`)
			s.db.Exec(t, "CHECKPOINT")
		}
		require.Len(t, consumer.WaitFor(t, 3, wait), 3)
		s.caughtUp()
		require.Less(t, s.restart(), opened)
		require.Eventually(t, func() bool { // what is looked at once in a status interval
			retained := s.metric("walrelay_lag_retained_bytes", "")
			return retained > s.metric("walrelay_lag_confirmed_bytes", "") && retained > 300e3 && // as caughtUp writes
				s.metric("walrelay_lag_seconds", "") == 0
		}, wait, tick)

		require.NoError(t, open.Commit(context.Background()))
		s.insert(3, "k", `{}`)
		require.Eventually(t, func() bool {
			s.db.Exec(t, "CHECKPOINT")
			s.caughtUp()
			return s.restart() > opened
		}, wait, tick)
		require.Equal(t, []string{eventID(3)}, delivered(consumer.WaitFor(t, 1, wait)))
	})
}
