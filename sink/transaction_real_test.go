package sink

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/testenv"
)

// Brokers refuse records of a transaction for their content: the culprits become dead letters, under a
// timestamp that passes, and everything else is delivered once.
func TestTransactionReal_RefusedRecords(t *testing.T) {
	t.Parallel()
	kafka := testenv.Kafka(t)
	for name, test := range unwelcomes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic, dead := kafka.Topic(t, 1, test.config), kafka.Topic(t, 1, nil)
			k := start(t, kafka.Addrs(), func(c *Config) {
				exactly(c)
				c.Stream, c.StateTopic = topic, "states-of-"+topic
				c.OnPoison, c.DeadTopic = DeadLetter, dead
				smallBatches(c)
			})
			s := begin(t, k, checkpoint.Run{Line: line()})
			publish := func(s *session) {
				s.lsn = 0
				for range 20 {
					s.lsn++
					for i := range 10 {
						ev := s.part(topic, i)
						if i == 5 && s.lsn%10 == 3 {
							test.spoil(ev)
						}
						s.publish(ev)
					}
					s.k.Reached(position(s.lsn).LSN)
				}
			}
			publish(s)
			require.ErrorContains(t, s.fails(), "its transaction is given up")
			s, _ = s.again(2, publish)
			for _, p := range s.poison {
				require.Equal(t, checkpoint.DeadLettered, p.Action, p.Reason)
			}
			var want []string
			for lsn := 1; lsn <= 20; lsn++ {
				for i := range 10 {
					if i != 5 || lsn%10 != 3 {
						want = append(want, fmt.Sprintf("id-%d-%d", lsn, i))
					}
				}
			}
			sees(t, kafka.Addrs(), topic, want)
			sees(t, kafka.Addrs(), dead, []string{"id-3-5", "id-13-5"})
		})
	}
}

// A transaction that is larger than a Kafka transaction, taken up in its middle by one sink after another.
func TestTransactionReal_Large(t *testing.T) {
	t.Parallel()
	kafka := testenv.Kafka(t)
	topic := kafka.Topic(t, 3, nil)
	config := func(c *Config) {
		exactly(c)
		c.Stream, c.StateTopic = topic, "states-of-"+topic
	}
	run := checkpoint.Run{Line: line()}
	for i := range 4 {
		s := begin(t, start(t, kafka.Addrs(), config), run)
		run = goesOn()
		s.transaction(topic, 20)
		s.transaction(topic, 300*(i+1), true)
		s.until("its parts", func() bool { return len(s.settled) > 20+300*(i+1)-100 }) // the rest may wait
		require.NoError(t, s.mail.Err)
	}
	s := begin(t, start(t, kafka.Addrs(), config), run)
	s.transaction(topic, 20)
	s.transaction(topic, 1500)
	s.settle()
	s.reaches()
	var records []*kgo.Record
	require.Eventually(t, func() bool { // the commit is answered before its markers are written
		records = visible(t, kafka.Addrs(), topic)
		return len(records) >= 1520
	}, patience, 50*time.Millisecond)
	require.Len(t, records, 1520)
	inOrder(t, records)
}

// The broker is frozen in the middle: the next Begin of the same sink waits for it, and ends with its
// context; everything is exact afterwards.
func TestTransactionReal_BrokerFrozen(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a broker of its own")
	}
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{})
	topic := kafka.Topic(t, 3, nil)
	k := start(t, kafka.Addrs(), exactly)
	s := begin(t, k, checkpoint.Run{Line: line()})
	s.transaction(topic, 20)
	s.settle()
	s.reaches()
	kafka.PauseBroker(t, 0)
	s.transaction(topic, 20)
	require.Eventually(t, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.tx.idle != nil
	}, patience, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	run := goesOn()
	run.Mailbox = checkpoint.NewMailbox()
	require.ErrorIs(t, k.Begin(ctx, run), context.DeadlineExceeded)
	kafka.ResumeBroker(t, 0)
	s = begin(t, k, goesOn())
	for range 5 {
		s.transaction(topic, 20)
	}
	s.settle()
	s.reaches()
	exact(t, kafka.Addrs(), topic, 5, 20)
}
