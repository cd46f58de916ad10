package cdc

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// Every event tells its transaction, and the last one how many there were, however little may be in flight.
func TestMarkTransactions(t *testing.T) {
	t.Parallel()
	db, cfg := newStream(t, 18)
	cfg.MarkTransactions = true
	cfg.Window = checkpoint.Window{Events: 1, Bytes: 1 << 20} // a held event must not wait for its own room
	var mu sync.Mutex
	var marks []string
	sink := &scripted{publish: func(run checkpoint.Run, seq uint64, ev *decoder.Event) {
		mu.Lock()
		marks = append(marks, fmt.Sprintf("%s:%s:%t:%d:%d", ev.ID, ev.Payload, ev.Marked, ev.Position.Index, ev.Count))
		mu.Unlock()
		run.Mailbox.Settle([]uint64{seq})
	}}
	r := start(t, db, cfg, sink)
	r.state(StateStreaming)
	db.Exec(t, "INSERT INTO events VALUES (1, 'a', 'k', 'one')")
	db.Exec(t, "CREATE TABLE other (id int)")
	db.Exec(t, `BEGIN; INSERT INTO events VALUES (2, 'a', 'k', 'two'); ALTER TABLE events ADD further int DEFAULT 7;
		INSERT INTO events VALUES (3, 'a', 'k', 'three'), (4, 'a', NULL, NULL); INSERT INTO other VALUES (1);
		DELETE FROM events WHERE id = 4; COMMIT`)
	db.Exec(t, "INSERT INTO other VALUES (2)")
	end := r.end("1", "2", "3", "4")
	r.until(func() bool { slot, _ := r.confirmed(); return slot >= end })
	r.stopped()
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"1:one:true:0:1", "2:two:true:0:0", "3:three:true:1:0", "4::true:2:3"}, slices.Clone(marks))
}

// A run that ends while an event is held forgets it: the transaction comes again as a whole.
func TestMarkTransactions_HeldEventComesAgain(t *testing.T) {
	t.Parallel()
	db, cfg := newStream(t, 18)
	cfg.MarkTransactions = true
	cfg.Window.Events = 2
	var mu sync.Mutex
	var counts []uint32
	sink := &scripted{}
	sink.publish = func(run checkpoint.Run, seq uint64, ev *decoder.Event) {
		mu.Lock()
		defer mu.Unlock()
		counts = append(counts, ev.Count)
		switch len(counts) {
		case 1: // settled never, so that there is no room for the third
		case 2:
			run.Mailbox.Fail(errors.New("test"))
		default:
			run.Mailbox.Settle([]uint64{seq})
		}
	}
	r := start(t, db, cfg, sink)
	r.state(StateStreaming)
	insert(t, db, 1, 2, 3)
	r.until(func() bool { _, published, _, _ := sink.snapshot(); return slices.Contains(published, "3") })
	end := r.end("1", "2", "1", "2", "3")
	r.until(func() bool { slot, _ := r.confirmed(); return slot >= end })
	r.stopped()
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []uint32{0, 0, 0, 0, 3}, counts)
}
