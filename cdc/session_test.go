package cdc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
)

// The server is not silent while nobody reads: the first read after an outage of the brokers may be interrupted by an
// acknowledgement, and has not heard anything then.
func TestSession_SilenceBeginsAfterAWait(t *testing.T) {
	t.Parallel()
	_, cfg := newStream(t, 18)
	g := newIdleGuard(t, cfg)
	sess := &session{
		cfg: cfg, guard: g, server: g.server, board: newBoard(cfg), mailbox: g.mailbox, sink: &scripted{},
		tracker: checkpoint.NewTracker(g.frontier, cfg.Window), interval: time.Hour, lastStatus: time.Now(),
	}
	g.server.burst.last = time.Now().Add(-2 * cfg.ReceiveTimeout)
	require.ErrorContains(t, sess.checkSilence(), "the server has been silent for 2m0s")
	require.NoError(t, sess.wait(t.Context(), func() bool { return true }))
	require.NoError(t, sess.checkSilence())
}
