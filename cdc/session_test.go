package cdc

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
)

// A stream whose slot waits for an open transaction is alive.
func TestStream_TicksWhileTheSlotIsCreated(t *testing.T) {
	t.Parallel()
	db, cfg := newStream(t, 18)
	tx, err := db.Conn.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "INSERT INTO events VALUES (1, 'a')")
	require.NoError(t, err)
	r := start(t, db, cfg, &scripted{})
	r.rounds()
	require.Equal(t, StateConnecting, r.stream.Status().State)
	require.NoError(t, tx.Rollback(t.Context()))
	r.state(StateStreaming)
	r.stopped()
}

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
	require.ErrorContains(t, sess.checkSilence(), "the server has been silent for 2m")
	require.NoError(t, sess.wait(t.Context(), func() bool { return true }))
	require.NoError(t, sess.checkSilence())
}
