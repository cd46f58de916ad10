package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// The plain path: what is committed arrives, whole and in order, and is confirmed.
func TestDelivery_Plain(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 3)
		relay := s.relay()
		consumer := s.cluster.Consume(t, s.topic)
		for n := range 100 {
			s.insert(n, fmt.Sprint(n%7), fmt.Sprintf(`{"n": %d}`, n))
		}
		records := consumer.WaitFor(t, 100, wait)
		require.Len(t, records, 100)
		end := s.lsn("pg_current_wal_lsn()")
		s.insert(100, "0", `{}`)
		require.Eventually(t, func() bool { return s.confirmed() >= end }, wait, tick)
		relay.Signal(t, terminate)
		require.Equal(t, 0, relay.Wait(t, wait), relay.Log())
		t.Log(relay.Log())
	})
}
