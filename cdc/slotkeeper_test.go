package cdc

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// What an operator has skipped is only in the outbox table, where retention must leave it.
func TestSlotKeeper_AdvanceKeepsTheRowsOfTheGap(t *testing.T) {
	t.Parallel()
	db, cfg := newStream(t, 18)
	register(t, cfg)
	insert(t, db, 1)
	keeper, err := OpenSlotKeeper(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { keeper.Close(context.Background()) })
	gap, err := keeper.Free(t.Context())
	require.NoError(t, err)
	reached, err := keeper.Advance(t.Context(), gap.Current)
	require.NoError(t, err)
	slot, recorded := slotOf(t, dial(t, cfg)), register(t, cfg)
	require.Equal(t, reached, slot.ConfirmedFlush)
	require.Equal(t, reached, recorded.Confirmed)
	var covered bool
	require.NoError(t, db.QueryRow(t, "SELECT covered_since < $1 FROM walrelay.streams", gap.ServerTime).Scan(&covered))
	require.False(t, covered)
}
