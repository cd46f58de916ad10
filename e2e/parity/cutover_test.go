package parity

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// The application writes on while Debezium is stopped, in order or at once, and walrelay goes on at Debezium's slot,
// with its publication: nothing is missing, and what comes twice is a tail of what Debezium had published.
func TestCutOver(t *testing.T) {
	asked(t)
	for name, signal := range map[string]os.Signal{"stopped": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) { cutOver(t, signal) })
	}
}

func cutOver(t *testing.T, signal os.Signal) {
	p := newPassage(t)
	connect := testenv.StartConnect(t, p.kafka, t.TempDir(), map[string]map[string]string{"outbox": p.source()})
	p.db.AwaitSlot(t, p.slot, wait)

	const before, meanwhile, after = 500, 1000, 1500
	p.write(t, before)
	p.await(t, before/2) // Debezium delivers
	done := p.writeOn(t, meanwhile)
	connect.Signal(t, signal)
	connect.Wait(t, wait)

	env := p.environment(t)
	walrelay(t, env, "migrate", "up")
	relay := stream(t, env)
	require.Contains(t, relay.Log(), "was there before the stream: it goes on at")
	<-done
	p.write(t, after)
	p.await(t, after)
	t.Logf("%d events, none missing, %d twice", len(p.seen), p.repeated(t))
}
