package replay

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// batching is a sink that sends what it was given when it is told to, as Kafka's does.
type batching struct {
	send func(run int, mailbox *checkpoint.Mailbox, seqs []uint64)

	runs    int
	mailbox *checkpoint.Mailbox
	open    []uint64
}

func (b *batching) Begin(_ context.Context, run checkpoint.Run) error {
	b.runs++
	b.mailbox, b.open = run.Mailbox, nil
	return nil
}
func (b *batching) Publish(seq uint64, _ *decoder.Event) { b.open = append(b.open, seq) }
func (b *batching) Flush() {
	b.send(b.runs, b.mailbox, b.open)
	b.open = nil
}
func (b *batching) End(context.Context) error { return nil }
func (b *batching) Reached(pglogrepl.LSN)     {}
func (b *batching) Recorded([]uint64)         {}
func (b *batching) Full()                     {}

// outcomes publishes events with the ids through the sink and returns what became of each.
func outcomes(t *testing.T, sink *batching, ids ...string) (settled []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	window := checkpoint.Window{Events: 10, Bytes: 1 << 20}
	p := NewPublisher(sink, window, func(ev *decoder.Event, refused *checkpoint.Poison) {
		outcome := string(ev.ID) + " acknowledged"
		if refused != nil {
			outcome = string(ev.ID) + " refused: " + refused.Reason
		}
		settled = append(settled, outcome)
	}, func(error) {})
	for _, id := range ids {
		require.NoError(t, p.Publish(ctx, &decoder.Event{ID: []byte(id)}))
	}
	require.NoError(t, p.Drain(ctx))
	return settled
}

// What a run has left behind leaves with the next one, however little it is.
func TestPublisher_RunEndsWhileItDrains(t *testing.T) {
	t.Parallel()
	settled := outcomes(t, &batching{send: func(run int, mailbox *checkpoint.Mailbox, seqs []uint64) {
		if run == 1 {
			mailbox.Fail(errors.New("test"))
			return
		}
		mailbox.Settle(seqs)
	}}, "a", "b")
	require.Equal(t, []string{"a acknowledged", "b acknowledged"}, settled)
}

// A verdict holds for the run that gave it: the next one sends the event again.
func TestPublisher_RefusedOnceAndAcknowledged(t *testing.T) {
	t.Parallel()
	settled := outcomes(t, &batching{send: func(run int, mailbox *checkpoint.Mailbox, seqs []uint64) {
		if run == 1 {
			mailbox.PutPoison(checkpoint.Poison{Seq: seqs[1], Reason: "too large"})
			mailbox.Fail(errors.New("test"))
			return
		}
		mailbox.Settle(seqs[:2])
		mailbox.PutPoison(checkpoint.Poison{Seq: seqs[2], Reason: "too large"})
	}}, "a", "b", "c")
	require.Equal(t, []string{"a acknowledged", "b acknowledged", "c refused: too large"}, settled)
}
