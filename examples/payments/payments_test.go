package main

import (
	"context"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// The test program is also the application that it tests: its services are started with a command.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		main()
	}
	testenv.Main(m)
}

func TestPayments(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	seed := rand.Uint64N(1_000_000)
	result := payAndCount(t, 15*time.Second, seed)
	require.NotNil(t, result)
	var text strings.Builder
	require.NoError(t, result.write(&text))
	t.Logf("make payments FOR=15s SEED=%d\n%s", seed, &text)
	require.Greater(t, result.sums.accepted, 20)
	require.Positive(t, result.refused)
	require.GreaterOrEqual(t, len(result.struck), 3, "kinds of faults")
	// Every record came twice at least, as the consumers were set back.
	require.GreaterOrEqual(t, result.duplicates, result.sums.accepted)
}

// What the proof is to find, it finds.
func TestBooks(t *testing.T) {
	t.Parallel()
	one := payment{ID: "1", Merchant: "m", order: order{Invoice: "a", Account: "x", Amount: 5}}
	agreed := func() *books {
		return &books{
			accepted: map[string]payment{"a": one}, refused: map[string]bool{"b": true}, charged: []payment{one},
			events: map[string]int{"1": 1}, entries: map[string][]int64{"1": {5}}, opened: 100, balances: 95, totals: 5,
		}
	}
	require.Empty(t, agreed().faults())
	require.Equal(t, sums{1, 1, 1, 5, 5}, agreed().sums())
	for name, change := range map[string]func(*books){
		"charged twice": func(b *books) {
			two := one
			two.ID = "2"
			b.charged = append(b.charged, two)
			b.events["2"], b.entries["2"], b.balances, b.totals = 1, []int64{5}, 90, 10
		},
		"charged in spite of a refusal": func(b *books) { b.accepted, b.refused["a"] = nil, true },
		"charged another amount": func(b *books) {
			b.charged[0].Amount, b.entries["1"], b.balances, b.totals = 6, []int64{6}, 94, 6
		},
		"accepted and not charged": func(b *books) {
			b.charged, b.events, b.entries, b.balances, b.totals = nil, nil, nil, 100, 0
		},
		"applied twice":                func(b *books) { b.entries["1"], b.totals = []int64{5, 5}, 10 },
		"not applied":                  func(b *books) { delete(b.entries, "1"); b.totals = 0 },
		"applied with another amount":  func(b *books) { b.entries["1"], b.totals = []int64{6}, 6 },
		"applied without a payment":    func(b *books) { b.entries["2"], b.totals = []int64{7}, 12 },
		"two events":                   func(b *books) { b.events["1"] = 2 },
		"no event":                     func(b *books) { delete(b.events, "1") },
		"an event without a payment":   func(b *books) { b.events["2"] = 1 },
		"money lost from an account":   func(b *books) { b.balances-- },
		"a total beside its entries":   func(b *books) { b.totals++ },
		"a key that stays in progress": func(b *books) { b.pending++ },
		"a parked record":              func(b *books) { b.parked++ },
	} {
		b := agreed()
		change(b)
		require.NotEmpty(t, b.faults(), name)
	}
}

func TestRun_RefusesWrongUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"typo"}, {"api", "more"}, {"prove", "--for", "soon"}} {
		var stderr strings.Builder
		require.Equal(t, 2, run(context.Background(), args, &stderr, &stderr), args)
		require.Contains(t, stderr.String(), "usage:")
	}
}
