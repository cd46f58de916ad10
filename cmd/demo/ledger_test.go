package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// commit is what the shop does with an event whose transaction the database commits.
func commit(l *ledger, customer uint8, now time.Time) []byte {
	id := l.begin(customer)
	l.committing(id, now)
	l.committed(id)
	return []byte(id.String())
}

func TestLedger_CountsEachEventOnce(t *testing.T) {
	t.Parallel()
	l, now := newLedger(), time.Now()
	a, b := commit(l, 1, now), commit(l, 2, now)
	require.Equal(t, tally{committed: 2}, l.totals())
	require.Equal(t, 2, l.totals().inFlight())

	require.Equal(t, 5*time.Millisecond, l.arrived(a, now.Add(5*time.Millisecond)))
	l.arrived(a, now)
	l.arrived(a, now)
	require.Equal(t, tally{committed: 2, delivered: 1, duplicates: 2}, l.totals())
	l.arrived(b, now)
	require.Zero(t, l.totals().inFlight())
}

// The consumer may be faster than the database's answer: until it comes, the event is not delivered.
func TestLedger_ArrivesBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	l, now := newLedger(), time.Now()
	id := l.begin(1)
	l.committing(id, now)
	l.arrived([]byte(id.String()), now)
	require.Equal(t, tally{}, l.totals())
	l.committed(id)
	require.Equal(t, tally{committed: 1, delivered: 1}, l.totals())
}

func TestLedger_RolledBackMustNotArrive(t *testing.T) {
	t.Parallel()
	l, now := newLedger(), time.Now()
	late, early := l.begin(1), l.begin(1)
	l.rolledBack(late)
	l.arrived([]byte(late.String()), now)
	l.arrived([]byte(early.String()), now)
	l.rolledBack(early)
	require.Equal(t, 2, l.totals().phantoms)
	require.Equal(t, 2, l.totals().rolledBack)
	require.Zero(t, l.totals().delivered)
}

func TestLedger_StrangersArePhantoms(t *testing.T) {
	t.Parallel()
	l, now := newLedger(), time.Now()
	never := l.begin(1)
	never[15]++
	strangers := []string{"", "x", "00000000-0000-8000-8000-000000000000", newLedger().begin(1).String(), never.String()}
	for _, id := range strangers {
		l.arrived([]byte(id), now)
	}
	require.Equal(t, tally{phantoms: 5}, l.totals())
}

func TestLedger_OrderWithinACustomer(t *testing.T) {
	t.Parallel()
	l, now := newLedger(), time.Now()
	a1, b1, a2, b2 := commit(l, 'a', now), commit(l, 'b', now), commit(l, 'a', now), commit(l, 'b', now)
	for _, id := range [][]byte{b1, b2, a1, b1, a2} { // the late b1 is a duplicate
		l.arrived(id, now)
	}
	require.Zero(t, l.totals().disorder)
	a3, a4 := commit(l, 'a', now), commit(l, 'a', now)
	l.arrived(a4, now)
	l.arrived(a3, now)
	require.Equal(t, 1, l.totals().disorder)
}

func TestHistogram_Quantile(t *testing.T) {
	t.Parallel()
	var h histogram
	require.Zero(t, h.quantile(0.5))
	for ms := range 1000 {
		h.add(time.Duration(ms+1) * time.Millisecond)
	}
	require.InEpsilon(t, 500*time.Millisecond, h.quantile(0.5), 0.06)
	require.InEpsilon(t, 990*time.Millisecond, h.quantile(0.99), 0.06)
	h.add(-time.Second)
	h.add(time.Hour)
	require.Equal(t, 10*time.Microsecond, h.quantile(0))
	require.Greater(t, h.quantile(1), 5*time.Minute)
}

func TestWindow_ForgetsAfterTenSeconds(t *testing.T) {
	t.Parallel()
	var w window
	began := time.Unix(1_000_000, 0)
	w.at(began).add(time.Second)
	w.at(began.Add(5 * time.Second)).add(time.Millisecond)
	count := func(after time.Duration) (n uint32) {
		for _, c := range w.sum(began.Add(after)) {
			n += c
		}
		return n
	}
	require.EqualValues(t, 2, count(9*time.Second))
	require.EqualValues(t, 1, count(10*time.Second))
	require.EqualValues(t, 0, count(15*time.Second))
	w.at(began.Add(time.Hour)).add(time.Second)
	require.EqualValues(t, 1, count(time.Hour))
}
