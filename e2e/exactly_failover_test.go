package e2e

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/e2e/judge"
)

// With synchronized_standby_slots nothing is in Kafka that the standby lacks, so the state says the truth
// about it, too: what the new primary repeats is left out.
func TestExactlyOnce_Failover(t *testing.T) {
	t.Parallel()
	if lastMajor() < 17 {
		t.Skip("failover slots are new in PostgreSQL 17")
	}
	f := newFailover(t, lastMajor())
	f.exactly()
	f.guarded()
	relay := f.relay()
	f.copied(f.standby)
	committed := f.load()
	f.grows(500)
	f.cutOff()
	more := committed() + 500 // which the standby does not have
	require.Eventually(t, func() bool { return committed() >= more }, wait, tick)
	f.primary.Kill(t)
	f.promote(f.standby)
	for n := range 100 {
		f.insert(1_000_000+n, "new", `{"load": false}`)
	}
	v := f.delivery()
	require.Zero(t, v.Duplicates)
	f.stop(relay)
	sizes := f.kafkaTransactions(f.topic).whole(t)
	require.Len(t, sizes, v.Committed, "every event has a transaction of its own")
	require.Equal(t, "2", f.registered("timeline"))
	require.Equal(t, "1", f.registered("epoch"))
}

// Without it the state may cover events that the new primary never had. A process that begins there refuses.
func TestExactlyOnce_Diverged(t *testing.T) {
	t.Parallel()
	if lastMajor() < 17 {
		t.Skip("failover slots are new in PostgreSQL 17")
	}
	f := newFailover(t, lastMajor())
	f.exactly()
	consumer := follow(f.setup)
	relay := f.relay()
	f.copied(f.standby)
	consumer.delivers()
	f.replayed(f.standby)
	f.cutOff()
	lost := consumer.delivers()
	relay.Signal(t, syscall.SIGSTOP) // until the promotion is over: it does not try in between
	f.primary.Kill(t)
	f.promote(f.standby)
	relay.Signal(t, syscall.SIGCONT)
	const problem = "of timeline 1, which this server never had: it is an older copy, or was promoted without the last"
	fatal(t, relay, `stream "`+f.slot+`"`, problem, "run `walrelay stream new-epoch`")
	fatal(t, f.start(), `stream "`+f.slot+`"`, problem, "run `walrelay stream new-epoch`")
	consumer.goesOn()
	f.caughtUp()
	v := f.verdict(consumer.ledger, f.topic)
	require.NoError(t, v.Err())
	require.Contains(t, consumer.seen, judge.Header(lost, "id"))
}
