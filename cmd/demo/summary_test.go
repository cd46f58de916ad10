package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSummary_LastLineAndVerdict(t *testing.T) {
	t.Parallel()
	summarise := func(prepare func(*ledger)) (last string, err error) {
		p := &play{database: &database{}, broker: &broker{}, relay: &relay{}, ledger: newLedger(), began: time.Now()}
		now := time.Now()
		for range 3 {
			p.ledger.arrived(commit(p.ledger, 1, now), now)
		}
		prepare(p.ledger)
		var out bytes.Buffer
		err = p.summarise(&out)
		lines := strings.Split(out.String(), "\n")
		require.Empty(t, lines[len(lines)-1])
		return lines[len(lines)-2], err
	}
	now := time.Now()

	last, err := summarise(func(l *ledger) { l.arrived(commit(l, 2, now), now) })
	require.NoError(t, err)
	require.Equal(t, "committed 4 delivered 4 lost 0 duplicates 0", last)

	last, err = summarise(func(l *ledger) {
		id := commit(l, 2, now)
		l.arrived(id, now)
		l.arrived(id, now)
	})
	require.NoError(t, err, "delivery is at least once")
	require.Equal(t, "committed 4 delivered 4 lost 0 duplicates 1", last)

	last, err = summarise(func(l *ledger) { commit(l, 2, now) })
	require.ErrorIs(t, err, errLoss)
	require.Equal(t, "committed 4 delivered 3 lost 1 duplicates 0", last)

	_, err = summarise(func(l *ledger) { l.arrived([]byte("stranger"), now) })
	require.ErrorIs(t, err, errLoss)
}
