package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// An update of an outbox table is never an event. What it is beside that, the operator says.
func TestUpdate_Policy(t *testing.T) {
	t.Parallel()
	s := newOwn(t, testenv.Postgres(t, 18), testenv.Kafka(t), 1, ownOutbox,
		`CREATE PUBLICATION outbox_pub FOR TABLE outbox`)
	s.insertOwn(1, "k", `{}`)
	const update, line = `UPDATE outbox SET event_type = 'changed'`, "an update of an outbox table is not published"
	s.set("WALRELAY_ON_UPDATE", "warn")
	relay := s.relay()
	s.insertOwn(2, "k", `{}`)
	s.db.Exec(t, update)
	relay.WaitForLog(t, line, wait)
	s.insertOwn(3, "k", `{}`)
	require.Equal(t, []string{"2", "3"}, delivered(s.cluster.Consume(t, s.topic).WaitFor(t, 2, wait)))
	relay.Signal(t, terminate)
	require.Zero(t, relay.Wait(t, wait))

	s.set("WALRELAY_ON_UPDATE", "fatal")
	relay = s.relay()
	s.db.Exec(t, update)
	require.NotZero(t, relay.Wait(t, wait))
	require.Contains(t, relay.Log(), "table public.outbox: has an update in the log")
	require.Contains(t, relay.Log(), "WALRELAY_ON_UPDATE=warn")
	s.set("WALRELAY_ON_UPDATE", "ignore")
	s.relay()
	s.insertOwn(4, "k", `{}`)
	require.Equal(t, []string{"2", "3", "4"}, delivered(s.cluster.Consume(t, s.topic).WaitFor(t, 3, wait)))
}
