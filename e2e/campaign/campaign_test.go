package main

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A short campaign with faults of each group. WALRELAY_CAMPAIGN_SEED repeats one,
// WALRELAY_CAMPAIGN_FOR says how long ("10m").
func TestCampaign(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two minutes")
	}
	opts := options{
		duration: 90 * time.Second, seed: rand.Uint64N(1_000_000), postgres: 18, delivery: "at-least-once", rate: 1000,
	}
	if text := os.Getenv("WALRELAY_CAMPAIGN_FOR"); text != "" {
		var err error
		opts.duration, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	if text := os.Getenv("WALRELAY_CAMPAIGN_SEED"); text != "" {
		var err error
		opts.seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	var err error
	// Those that take long are left to longer campaigns, so that every one of these has its turn.
	opts.faults, err = selectFaults("relay-kill,relay-crash-loop,relay-term,pg-crash,walsender-terminate," +
		"alter-publication,broker-kill,move-leaders,add-partitions,pg-cut,kafka-reset,kafka-outage," +
		"pg-credentials,kafka-credentials")
	require.NoError(t, err)

	r := campaign(t.Context(), t, opts)
	require.NotNil(t, r)
	var text strings.Builder
	require.NoError(t, r.writeTable(&text))
	t.Logf("WALRELAY_CAMPAIGN_SEED=%d\n%s", opts.seed, &text)
	require.GreaterOrEqual(t, len(r.Faults), 8, "kinds of faults")
	require.NotZero(t, r.RolledBack)
	require.Greater(t, r.Committed, 1000)
	require.Equal(t, r.Committed, r.Delivered)
	require.Zero(t, r.Lost+r.Phantom+r.Reordered+r.AfterDedup)
}

func TestSelectFaults(t *testing.T) {
	t.Parallel()
	all, err := selectFaults("")
	require.NoError(t, err)
	names := map[string]bool{}
	for _, f := range all {
		require.False(t, names[f.name], f.name)
		names[f.name] = true
		require.NotEmpty(t, f.about)
		require.LessOrEqual(t, f.least, f.most)
	}
	some, err := selectFaults("relay,pg-crash")
	require.NoError(t, err)
	require.Len(t, some, len(relayFaults())+1)
	_, err = selectFaults("relay,typo")
	require.ErrorContains(t, err, "typo")
}

func TestDeck_DealsEachFaultInTurn(t *testing.T) {
	t.Parallel()
	all, err := selectFaults("")
	require.NoError(t, err)
	dealt := map[string]int{}
	for d := (deck{faults: all, random: rand.New(rand.NewPCG(1, 1))}); len(dealt) < len(all) || dealt[all[0].name] < 2; {
		dealt[d.next().name]++
	}
	for name, n := range dealt {
		require.InDelta(t, 2, n, 1, name)
	}
}
