package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// paused waits until the instance rests at the operator's word.
func (s *setup) paused(parts ...string) {
	s.t.Helper()
	s.ready(200, append(parts, "paused since ", " by ", "@")...)
	require.InDelta(s.t, 1, s.metric("walrelay_state", `state="paused"`), 0)
}

// A pause under load leaves nothing in flight: neither of two instances streams, one that is killed and
// started again does not either, and nothing is lost or repeated.
func TestPause_UnderLoad(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{"at-least-once", "exactly-once"} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			testenv.ForMajors(t, func(t *testing.T, major int) {
				s := newSetup(t, testenv.Postgres(t, major), testenv.Kafka(t), 3)
				s.set("WALRELAY_DELIVERY", delivery)
				s.set("WALRELAY_STATE_TOPIC", s.prefix+"state")
				s.set("WALRELAY_CREATE_TOPICS", "true")
				s.set("WALRELAY_TRANSACTION_INTERVAL", "20ms")
				s.committed = delivery == "exactly-once"
				all := instances{{s, s.relay()}}.add(s)
				all.holder(s)

				group, ctx := errgroup.WithContext(t.Context())
				ledger := judge.NewLedger()
				const events = 10_000
				w := newWriter(s, ledger, 1, 1)
				group.Go(func() error { return w.write(ctx, events) })
				for n := range int64(3) {
					require.Eventually(t, func() bool { return s.ends(s.topic).Sum() >= (n+1)*events/4 }, wait, tick)
					require.Contains(t, s.run("stream", "pause", "--reason", "the cluster moves"), ": the cluster moves\n")
					for _, i := range all {
						i.paused(": the cluster moves")
					}
					s.idle()
					s.marked()
					at, end := s.confirmed(), s.ends(s.topic).Sum()
					require.Contains(t, s.run("stream", "show"), "since ")

					// Killed and started again it does not stream; nor does the other one.
					all[n%2].Kill(t)
					all[n%2].Process = all[n%2].start()
					all[n%2].paused(": the cluster moves")
					s.idle()
					require.Equal(t, at, s.confirmed())
					require.Equal(t, end, s.ends(s.topic).Sum())

					require.Contains(t, s.run("stream", "resume"), "goes on; it was paused since ")
					all.holder(s)
				}
				require.NoError(t, group.Wait())
				s.caughtUp()
				v := s.judge(ledger)
				require.Zero(t, v.Duplicates)
				for _, i := range all {
					require.NotContains(t, i.Log(), "stream interrupted")
				}
			})
		})
	}
}

// A stuck stream can be paused, and what is decided meanwhile holds when it is resumed.
func TestPause_Stuck(t *testing.T) {
	t.Parallel()
	s := newPoisoned(t, testenv.Postgres(t, lastMajor()), "stop")
	f := follow(s)
	s.relay()
	f.delivers()
	n := f.number()
	s.insertRow(n, row{aggregate: "no topic"})
	at := s.stuck(n, "the topic name has a character")
	s.run("stream", "pause")
	s.paused()
	s.idle()
	s.run("stream", "resume")
	require.Equal(t, at, s.stuck(n, "the topic name has a character"))

	s.run("stream", "pause")
	s.paused()
	s.run("stream", "release", at.String(), "--verdict", "skip")
	s.run("stream", "resume")
	f.delivers()
	s.ready(200, "streaming")
}

// An outage of the brokers holds a pause up no longer than the shutdown time. What was not delivered by then
// waits for the end of the pause, even when the brokers are back before.
func TestPause_Outage(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
	s.set("WALRELAY_SHUTDOWN_TIMEOUT", "1s")
	relay := s.relay()
	s.insertInto("later", 1, "k", `{}`) // there is no such topic yet
	heldUp(t, relay, "topic "+s.prefix+"later")
	s.run("stream", "pause", "--reason", "an outage")
	s.paused(": an outage")
	relay.WaitForLog(t, "stopped before everything was acknowledged", wait)
	require.Eventually(t, func() bool { return s.metric("walrelay_troubles", "") == 0 }, wait, tick,
		"nothing is tried any more")

	s.cluster.CreateTopic(t, s.prefix+"later", 1, nil)
	s.stop(relay) // a paused instance stops like any other
	relay = s.start()
	s.paused(": an outage")
	require.Zero(t, s.ends(s.prefix+"later").Sum())
	s.run("stream", "resume")
	s.cluster.Consume(t, s.prefix+"later").WaitFor(t, 1, wait)
	require.Equal(t, 1, strings.Count(relay.Log(), "stream is resumed"))
	for line := range strings.Lines(relay.Log()) {
		require.LessOrEqual(t, strings.Count(line, `"stream":`), 1, line)
	}
}

func TestPause_Refusals(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
	require.Contains(t, s.fails(1, "stream", "pause"), "is not registered")
	require.Contains(t, s.fails(1, "stream", "resume", "another"), `stream "another": is not registered`)
	require.Contains(t, s.fails(2, "stream", "pause", "--reason", "two\nlines"), "must be one line")
	s.relay()
	require.Contains(t, s.run("stream", "resume"), "stream "+s.slot+" was not paused")
}
