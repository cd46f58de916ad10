package cdc

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
)

// newIdleGuard returns a guard of a stream that is registered and not running.
func newIdleGuard(t *testing.T, cfg *Config) *guard {
	t.Helper()
	reg, s := register(t, cfg), dial(t, cfg)
	run := checkpoint.Run{Mailbox: checkpoint.NewMailbox()}
	return newGuard(s, reg.Publication, reg.Confirmed, reg.Confirmed, run, func(error) {})
}

// A stop in the middle of a query leaves the connection to the last round.
func TestGuard_StopDuringAQuery(t *testing.T) {
	t.Parallel()
	db, cfg := newStream(t, 18)
	g := newIdleGuard(t, cfg)
	unlock := lock(t, db, "walrelay.streams")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- g.use(ctx, func(ctx context.Context) error {
			_, err := g.registry.Paused(ctx)
			return err
		})
	}()
	awaitLock(t, db)
	stop()
	require.ErrorIs(t, g.use(ctx, nil), context.Canceled)
	unlock()
	require.NoError(t, <-done)
	require.NoError(t, g.round(t.Context(), true))
}

// What a guard that has ended was to record is recorded by nobody, so nothing more is confirmed.
func TestGuard_NoLastWordOfOneThatFailed(t *testing.T) {
	t.Parallel()
	db, cfg := newStream(t, 18)
	db.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE OF partitions ON walrelay.streams
		FOR EACH ROW WHEN (NEW.partitions ? 'b') EXECUTE FUNCTION refuse()`)
	g := newIdleGuard(t, cfg)
	g.record(nil, []checkpoint.Partitions{{Topic: "b", Count: 3}})
	g.run(t.Context())
	require.ErrorContains(t, g.failed(), "record partitions")
	sess := &session{cfg: cfg, guard: g, tracker: checkpoint.NewTracker(g.frontier, cfg.Window)}
	require.ErrorIs(t, sess.farewell(t.Context()), g.failed())
}

// A transaction that is published in part is read to its end, whatever has to be looked up in it.
func TestStream_StopsBehindATransactionWithAnUnknownTable(t *testing.T) {
	t.Parallel()
	db, cfg := newStream(t, 18)
	db.Exec(t, "CREATE TABLE other (id int); CREATE PUBLICATION events_pub FOR ALL TABLES WITH (publish = 'insert')")
	r := start(t, db, cfg, &scripted{})
	r.state(StateStreaming)
	unlock := lock(t, db, "walrelay.streams")
	awaitLock(t, db) // a round, which has the connection now
	db.Exec(t, `BEGIN; INSERT INTO events VALUES (1, 'a'); INSERT INTO other VALUES (1);
		INSERT INTO events VALUES (2, 'a'); COMMIT`)
	r.published("1")
	r.stop()
	unlock()
	require.NoError(t, r.ended())

	insert(t, db, 3)
	again := start(t, db, cfg, &scripted{})
	again.published("3")
	again.stopped()
	r.published("1", "2")
}
