package cdc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/testenv"
)

// refusing returns a stream that records messages outside of transactions.
func refusing(t *testing.T) (*testenv.Database, *Config) {
	t.Helper()
	t.Parallel()
	db, cfg := newStream(t, 18)
	cfg.Messages = []*decoder.Mapping{decoder.MessageMapping("orders", nil)}
	cfg.RefuseStray = true
	return db, cfg
}

// A message ends where the commit record behind it begins: what is recorded of the one must not hide what is
// recorded of that transaction's event.
func TestStray_BesideAnEventThatIsRecorded(t *testing.T) {
	db, cfg := refusing(t)
	sink := &scripted{publish: func(run checkpoint.Run, seq uint64, ev *decoder.Event) {
		run.Mailbox.PutPoison(checkpoint.Poison{
			Seq: seq, Position: ev.Position, EventID: string(ev.ID), Table: ev.Mapping.Name(), Reason: "test",
			Action: checkpoint.Skipped,
		})
	}}
	r := start(t, db, cfg, sink)
	r.state(StateStreaming)
	db.Exec(t, `BEGIN; INSERT INTO events VALUES (1, 'a', 'k', 'p'); SELECT pg_logical_emit_message(false, 'orders', '{}');
		COMMIT`)
	end := r.end("1")
	r.until(func() bool { slot, _ := r.confirmed(); return slot >= end })
	letters, err := dial(t, cfg).Registry().Letters(t.Context(), true)
	require.NoError(t, err)
	require.Len(t, letters, 2)
	require.Equal(t, letters[0].Position.LSN, letters[1].Position.LSN)
	require.Equal(t, []string{"1", ""}, []string{letters[0].EventID, letters[1].EventID})
	require.Contains(t, letters[1].Reason, "is not transactional")
	r.stopped()
}
