package main

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A short campaign with faults of each group. WALRELAY_CAMPAIGN_SEED repeats one,
// WALRELAY_CAMPAIGN_FOR says how long ("10m").
func TestCampaign(t *testing.T) {
	// Those that take long are left to longer campaigns, so that every one of these has its turn.
	r := short(t, rows(), "at-least-once", campaignSeed(t), 90*time.Second, 8,
		"relay-kill,relay-crash-loop,relay-term,pg-crash,walsender-terminate,alter-publication,broker-kill,"+
			"move-leaders,add-partitions,pg-cut,kafka-reset,kafka-outage,pg-credentials,kafka-credentials")
	require.GreaterOrEqual(t, len(r.Faults), 8, "kinds of faults")
}

// What breaks transactions of Kafka: their coordinator, their leaders, and whoever writes them.
func TestCampaign_ExactlyOnce(t *testing.T) {
	r := short(t, rows(), exactlyOnce, campaignSeed(t), 30*time.Second, 3,
		"relay-kill,relay-term,relay-zombie,pg-crash,walsender-terminate,broker-kill,move-leaders,kafka-reset")
	require.GreaterOrEqual(t, len(r.Faults), 3, "kinds of faults")
	require.Zero(t, r.Duplicated)
}

// One of the other shapes, in one of the modes, by turns: the seed says which.
func TestCampaign_Shape(t *testing.T) {
	others := shapes()[1:]
	seed := campaignSeed(t)
	delivery := pick(rand.New(rand.NewPCG(seed, 3)), "at-least-once", exactlyOnce)
	short(t, others[seed%uint64(len(others))], delivery, seed, 10*time.Second, 1,
		"relay-kill,relay-term,pg-crash,walsender-terminate,new-partition,add-partitions,broker-kill,pg-cut,kafka-reset")
}

// campaignSeed is that of WALRELAY_CAMPAIGN_SEED, or another one each time.
func campaignSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("WALRELAY_CAMPAIGN_SEED")
	if text == "" {
		return rand.Uint64N(1_000_000)
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err)
	return seed
}

// short is a campaign in which nothing may go wrong. It lasts longer where it has to, until there is enough to judge.
func short(
	t *testing.T, s *shape, delivery string, seed uint64, duration time.Duration, kinds int, faults string,
) *report {
	t.Helper()
	if testing.Short() {
		t.Skip("takes minutes")
	}
	opts := options{
		duration: duration, kinds: kinds, events: 1000, seed: seed, postgres: 18, delivery: delivery, shape: s, rate: 1000,
	}
	if text := os.Getenv("WALRELAY_CAMPAIGN_FOR"); text != "" {
		var err error
		opts.duration, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	var err error
	opts.faults, err = selectFaults(faults)
	require.NoError(t, err)

	r := campaign(t.Context(), t, opts)
	require.NotNil(t, r)
	var text strings.Builder
	require.NoError(t, r.writeTable(&text))
	t.Logf("WALRELAY_CAMPAIGN_SEED=%d\n%s", opts.seed, &text)
	require.NotZero(t, r.RolledBack)
	require.GreaterOrEqual(t, r.Committed, opts.events)
	require.Equal(t, r.Committed, r.Delivered)
	require.Zero(t, r.Lost+r.Phantom+r.Reordered+r.AfterDedup)
	return r
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

func TestPossible_LeavesOutWhatTheServerIsTooOldFor(t *testing.T) {
	t.Parallel()
	all, err := selectFaults("postgres")
	require.NoError(t, err)
	require.Len(t, possible(all, failoverMajor, t.Logf), len(all))
	old := possible(all, failoverMajor-1, t.Logf)
	require.Len(t, old, len(all)-1)
	for _, f := range old {
		require.NotEqual(t, "failover", f.name)
	}
}

func TestGate_HoldsEverybodyUp(t *testing.T) {
	t.Parallel()
	var g gate
	var passed atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range writers + 1 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					g.pass(t.Context())
					passed.Add(1)
				}
			}
		})
	}
	for range 100 {
		require.NoError(t, g.shut(t.Context()))
		before := passed.Load()
		runtime.Gosched()
		require.Equal(t, before, passed.Load())
		g.open()
		g.open()
		require.False(t, g.isShut())
	}
	close(stop)
	all.Wait()
}

func TestGapText(t *testing.T) {
	t.Parallel()
	const message = `slot "campaign": is gone; rows committed between 0/1E1AD60 and 0/1F1C200 may be missing; to go on: ` +
		"publish the rows of the gap again, then run `walrelay stream new-epoch campaign`; the next start creates the slot"
	require.Equal(t, []string{"0/1E1AD60", "0/1F1C200"}, gapText.FindStringSubmatch(message)[1:])
	require.Equal(t, []string{"stream new-epoch campaign"}, commandText.FindStringSubmatch(message)[1:])
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
