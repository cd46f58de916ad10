package cdc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// The slot that fills the disk is dropped, whatever else is missing: a standby, or the time at which a slot that was
// found had been confirmed.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	db, cfg := streamOn(t, testenv.StartPostgres(t, 18, testenv.Config{}))
	db.Exec(t, createPublication(cfg.Publication, cfg.Mappings))
	db.Exec(t, "SELECT pg_create_logical_replication_slot('"+cfg.Slot+"', 'pgoutput')")
	r := start(t, db, cfg, &scripted{})
	r.state(StateStreaming)
	r.stopped()
	confirmed, _ := r.confirmed()
	server := dial(t, cfg)
	loseStandby(t, db)

	err := r.stream.giveUp(t.Context(), server, &overBudgetError{retained: 7})
	fatal(t, err, "was dropped: it kept 7 bytes", "between "+confirmed.String(), "from an unknown time to 20",
		"walrelay replay --since TIME")
	require.False(t, slotOf(t, dial(t, cfg)).Exists)
}
