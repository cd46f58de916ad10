package cdc

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/testenv"
)

// scripted is a sink that acknowledges everything and writes a state at once, unless the test says
// otherwise. Its hooks are called on the session's goroutine.
type scripted struct {
	begin   func(run checkpoint.Run) error
	publish func(run checkpoint.Run, seq uint64, ev *decoder.Event) // instead of the acknowledgement
	silent  bool                                                    // writes no state

	mu        sync.Mutex
	runs      []checkpoint.Run
	published []string      // ids
	end       pglogrepl.LSN // of the transaction of the id that was published last; 0: it has not ended
	recorded  []uint64
	ends      int
}

var _ Sink = (*scripted)(nil)

func (s *scripted) Begin(_ context.Context, run checkpoint.Run) error {
	s.mu.Lock()
	s.runs = append(s.runs, run)
	s.mu.Unlock()
	if s.begin != nil {
		return s.begin(run)
	}
	return nil
}

func (s *scripted) End(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends++
	return nil
}

func (s *scripted) Publish(seq uint64, ev *decoder.Event) {
	s.mu.Lock()
	s.published, s.end = append(s.published, string(ev.ID)), 0
	s.mu.Unlock()
	if s.publish != nil {
		s.publish(s.run(), seq, ev)
		return
	}
	s.run().Mailbox.Settle([]uint64{seq})
}

func (s *scripted) Reached(lsn pglogrepl.LSN) {
	s.mu.Lock()
	if s.end == 0 {
		s.end = lsn
	}
	s.mu.Unlock()
	if !s.silent {
		s.run().Mailbox.Reach(lsn)
	}
}

func (s *scripted) Recorded(seqs []uint64) {
	s.mu.Lock()
	s.recorded = append(s.recorded, seqs...)
	s.mu.Unlock()
}

func (s *scripted) Full()  {}
func (s *scripted) Flush() {}

// run is the present one.
func (s *scripted) run() checkpoint.Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[len(s.runs)-1]
}

// snapshot returns what the session has told so far.
func (s *scripted) snapshot() (runs int, published []string, end pglogrepl.LSN, recorded []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs), slices.Clone(s.published), s.end, slices.Clone(s.recorded)
}

// running is a stream that a test has started.
type running struct {
	t      *testing.T
	db     *testenv.Database
	cfg    *Config
	sink   *scripted
	stream *Stream
	stop   context.CancelFunc
	done   chan error
}

// start runs a stream, which ends with the test at the latest.
func start(t *testing.T, db *testenv.Database, cfg *Config, sink *scripted) *running {
	t.Helper()
	cfg.StatusInterval = 50 * time.Millisecond
	stream, err := New(*cfg, sink)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	r := &running{t: t, db: db, cfg: cfg, sink: sink, stream: stream, stop: stop, done: make(chan error, 1)}
	go func() {
		r.done <- stream.Run(ctx)
		close(r.done)
	}()
	t.Cleanup(func() {
		stop()
		<-r.done
	})
	return r
}

// ended waits for the end of the stream.
func (r *running) ended() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(time.Minute):
		require.FailNow(r.t, "the stream goes on", "%+v", r.stream.Status())
		return nil
	}
}

// stopped stops the stream and waits for its end.
func (r *running) stopped() {
	r.t.Helper()
	r.stop()
	require.NoError(r.t, r.ended())
}

// until waits for a condition.
func (r *running) until(holds func() bool) {
	r.t.Helper()
	require.Eventually(r.t, holds, time.Minute, 5*time.Millisecond)
}

// state waits until the stream is in a state.
func (r *running) state(want State) {
	r.t.Helper()
	r.until(func() bool { return r.stream.Status().State == want })
}

// published waits until exactly these ids were published.
func (r *running) published(want ...string) {
	r.t.Helper()
	r.until(func() bool {
		_, published, _, _ := r.sink.snapshot()
		return len(published) >= len(want)
	})
	_, published, _, _ := r.sink.snapshot()
	require.Equal(r.t, want, published)
}

// rounds waits until the session has reported to the server several times.
func (r *running) rounds() {
	r.t.Helper()
	for range 5 {
		last := r.stream.Status().LastTick
		r.until(func() bool { return r.stream.Status().LastTick.After(last) })
	}
}

// confirmed is what the slot and the registry hold.
func (r *running) confirmed() (slot, registry pglogrepl.LSN) {
	r.t.Helper()
	require.NoError(r.t, r.db.QueryRow(r.t, `
		SELECT s.confirmed_flush_lsn::text, r.confirmed_lsn::text
		FROM pg_replication_slots s, walrelay.streams r WHERE s.slot_name = $1`, r.cfg.Slot).Scan(&slot, &registry))
	return slot, registry
}

// end waits for the end of the transaction of which these ids were published last, settled or not. It is not what was
// reached last: keepalives go on behind it, and are confirmed in large steps.
func (r *running) end(published ...string) (end pglogrepl.LSN) {
	r.t.Helper()
	r.published(published...)
	r.until(func() bool {
		_, _, end, _ = r.sink.snapshot()
		return end > 0
	})
	return end
}

// origin is the recorded epoch under which the line of states began; 0 for NULL.
func origin(t *testing.T, db *testenv.Database) (epoch uint32) {
	t.Helper()
	require.NoError(t, db.QueryRow(t, "SELECT coalesce(state_epoch, 0) FROM walrelay.streams").Scan(&epoch))
	return epoch
}
