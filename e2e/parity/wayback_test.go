package parity

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// walrelay has gone on at Debezium's slot while the application writes, and Debezium takes it back with old offsets,
// told to trust the slot: nothing is missing then, nor when walrelay takes over once more.
func TestWayBack(t *testing.T) {
	asked(t)
	p, dir := newPassage(t), t.TempDir()
	connectors := map[string]map[string]string{"outbox": p.source()}
	connect := testenv.StartConnect(t, p.kafka, dir, connectors)
	p.db.AwaitSlot(t, p.slot, wait)
	p.write(t, 100)
	p.await(t, 100)
	connect.Signal(t, syscall.SIGTERM)
	connect.Wait(t, wait)

	env := p.environment(t)
	walrelay(t, env, "migrate", "up")
	relay := stream(t, env)
	p.write(t, 200)
	p.await(t, 200)
	done := p.writeOn(t, 400)
	p.await(t, 250)
	relay.Signal(t, syscall.SIGTERM)
	require.Zero(t, relay.Wait(t, wait), relay.Log())
	<-done

	connectors["outbox"]["offset.mismatch.strategy"] = "trust_slot"
	connect = testenv.StartConnect(t, p.kafka, dir, connectors)
	p.await(t, 400)
	p.write(t, 500)
	p.await(t, 500)
	connect.Signal(t, syscall.SIGTERM)
	connect.Wait(t, wait)

	p.write(t, 600)
	relay = start(t, env)
	require.NotZero(t, relay.Wait(t, wait))
	require.Contains(t, relay.Log(), "advanced by somebody else")
	walrelay(t, env, "stream", "new-epoch")
	stream(t, env)
	p.await(t, 600)
	t.Logf("%d events, none missing, %d twice", len(p.seen), p.repeated(t))
}
