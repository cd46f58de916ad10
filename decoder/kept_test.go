package decoder_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

func TestKept_OutlivesItsEvent(t *testing.T) {
	t.Parallel()
	memory := []byte("idkeyroute")
	ev := decoder.Event{
		Position: checkpoint.Position{Epoch: 1, LSN: 2, Index: 3},
		ID:       memory[:2], Key: memory[2:5], Payload: []byte{}, Route: [][]byte{memory[5:], nil},
		Extra: [][]byte{memory[:2]}, Relation: &decoder.Relation{},
	}
	var kept decoder.Kept
	kept.Keep(&decoder.Event{Payload: make([]byte, 2<<20), Headers: []byte("{}")})
	kept.Keep(&ev)
	copy(memory, "xxxxxxxxxx")
	ev.Route[1] = memory

	got := kept.Event()
	require.Equal(t, ev.Position, got.Position)
	require.Equal(t, "id", string(got.ID))
	require.Equal(t, "key", string(got.Key))
	require.Equal(t, [][]byte{[]byte("route"), nil}, got.Route)
	require.Equal(t, [][]byte{[]byte("id")}, got.Extra)
	require.Same(t, ev.Relation, got.Relation)
	require.Equal(t, []byte{}, got.Payload, "empty is not NULL")
	require.Nil(t, got.Headers, "NULL is not what was there before")

	kept.Keep(&decoder.Event{Payload: []byte{}})
	require.NotNil(t, kept.Event().Payload)
}

//nolint:paralleltest // counts allocations
func TestKept_AllocatesNothing(t *testing.T) {
	var kept decoder.Kept
	ev := decoder.Event{ID: []byte("id"), Payload: make([]byte, 1000), Route: [][]byte{[]byte("route")}}
	require.Zero(t, testing.AllocsPerRun(10, func() { kept.Keep(&ev) }))
}
