package testenv_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/walrelay/walrelay/testenv"
)

func TestPostgres_StopKillPause(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		t.Parallel()
		pg := testenv.StartPostgres(t, major, testenv.Config{Settings: map[string]string{"wal_sender_timeout": "3s"}})
		var timeout string
		pg.QueryRow(t, "SHOW wal_sender_timeout", nil, &timeout)
		require.Equal(t, "3s", timeout)
		db := pg.Database(t)
		db.Exec(t, "CREATE TABLE kept (id int); INSERT INTO kept VALUES (1)")

		// A row must outlive every way to go down.
		count := func() (n int) {
			require.NoError(t, db.QueryRow(t, "SELECT count(*) FROM kept").Scan(&n))
			return n
		}
		port := pg.Port
		for _, down := range []func(){
			func() { pg.Stop(t, testenv.Fast) },
			func() { pg.Stop(t, testenv.Immediate) },
			func() { pg.Kill(t) },
		} {
			down()
			require.False(t, pg.Running())
			_, err := pgx.Connect(t.Context(), db.DSN)
			require.Error(t, err)
			pg.Start(t)
			db.Conn.Reset()
			require.Equal(t, 1, count())
			require.Equal(t, port, pg.Port)
		}

		conn, err := pgx.Connect(t.Context(), db.DSN)
		require.NoError(t, err)
		pg.Pause(t)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err = conn.Exec(ctx, "SELECT 1") // the postmaster's children are frozen, too
		require.ErrorIs(t, err, context.DeadlineExceeded)
		pg.Resume(t)
		require.Equal(t, 1, count())
	})
}

func TestPostgres_Standby(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		t.Parallel()
		primary := testenv.Postgres(t, major)
		db := primary.Database(t)
		standby := primary.Standby(t, testenv.Config{})
		db.Exec(t, "CREATE TABLE copied (id int)")

		on, err := pgx.Connect(t.Context(), standby.DSN(db.Name))
		require.NoError(t, err)
		defer on.Close(context.Background())
		require.Eventually(t, func() bool {
			_, err := on.Exec(t.Context(), "SELECT FROM copied")
			return err == nil
		}, 30*time.Second, 20*time.Millisecond)
		_, err = on.Exec(t.Context(), "INSERT INTO copied VALUES (1)")
		require.ErrorContains(t, err, "read-only")

		standby.Promote(t)
		_, err = on.Exec(t.Context(), "INSERT INTO copied VALUES (1)")
		require.NoError(t, err)
	})
}

func TestKafka_KillAndRestart(t *testing.T) {
	t.Parallel()
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{Brokers: 3, Settings: map[string]string{
		"min.insync.replicas": "2", "broker.session.timeout.ms": "3000",
	}})
	topic := kafka.Topic(t, 3, nil)
	produce(t, kafka, topic, 10)

	victim := kafka.Leader(t, topic, 0)
	kafka.KillBroker(t, victim)
	produce(t, kafka, topic, 10)        // two of three are enough
	require.Eventually(t, func() bool { // another partition may have got its leader before
		leader := kafka.Leader(t, topic, 0)
		return leader >= 0 && leader != victim
	}, time.Minute, 20*time.Millisecond)
	kafka.StartBroker(t, victim)

	kafka.StopBroker(t, (victim+1)%3)
	kafka.StartBroker(t, (victim+1)%3)
	kafka.PauseBroker(t, victim)
	produce(t, kafka, topic, 10)
	kafka.ResumeBroker(t, victim)
	kafka.ConsumeCommitted(t, topic).WaitFor(t, 30, time.Minute)
}

func TestKafka_Listener(t *testing.T) {
	t.Parallel()
	var asked string
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{
		Settings: map[string]string{
			"sasl.enabled.mechanisms": "PLAIN",
			"listener.name.client.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule " +
				`required user_walrelay="secret";`,
		},
		Listener: &testenv.Listener{Protocol: "SASL_PLAINTEXT", Advertise: func(_ int, addr string) string {
			asked = addr
			return addr
		}},
	})
	require.Equal(t, []string{asked}, kafka.ListenerAddrs())
	topic := kafka.Topic(t, 1, nil)

	client := func(password string) *kgo.Client {
		c, err := kgo.NewClient(kgo.SeedBrokers(asked), kgo.DefaultProduceTopic(topic),
			kgo.SASL(plain.Auth{User: "walrelay", Pass: password}.AsMechanism()))
		require.NoError(t, err)
		t.Cleanup(c.Close)
		return c
	}
	require.NoError(t, client("secret").ProduceSync(t.Context(), kgo.StringRecord("in")).FirstErr())
	require.Error(t, client("wrong").Ping(t.Context()))
	require.Len(t, kafka.Consume(t, topic).WaitFor(t, 1, 30*time.Second), 1)
}
