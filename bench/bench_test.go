package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

// The whole of it at a small size: every event arrives, and the figures are there. How good they are
// is not for a test.
func TestMeasure(t *testing.T) {
	t.Parallel()
	opts, err := parseOptions([]string{
		"--events", "5000", "--rows-per-tx", "10,1", "--rounds", "1", "--latency", "2s", "--warm-up", "500ms",
		"--rate", "200", "--exactly-once",
	}, io.Discard)
	require.NoError(t, err)
	result, err := measure(t.Context(), t, opts)
	require.NoError(t, err)

	var out bytes.Buffer
	require.NoError(t, result.writeJSON(&out))
	decoder := json.NewDecoder(&out)
	var r struct {
		Machine, Setup map[string]any
		Drain          []struct {
			RowsPerTx    int     `json:"rows_per_tx"`
			Events       int     `json:"events"`
			PayloadBytes float64 `json:"payload_bytes"`
			Rounds       []struct {
				Walrelay         map[string]float64 `json:"walrelay"`
				PgRecvlogical    map[string]float64 `json:"pg_recvlogical"`
				Ratio            float64            `json:"ratio"`
				ExactlyOnce      map[string]float64 `json:"exactly_once"`
				ExactlyOnceRatio float64            `json:"exactly_once_ratio"`
			} `json:"rounds"`
			Ratio            map[string]float64 `json:"ratio"`
			ExactlyOnceRatio map[string]float64 `json:"exactly_once_ratio"`
		} `json:"drain"`
		Latency struct {
			Events          int                `json:"events"`
			Rate            float64            `json:"rate"`
			RateAsked       int                `json:"rate_asked"`
			InsertToConsume map[string]float64 `json:"insert_to_consume"`
			CommitToConsume map[string]float64 `json:"commit_to_consume"`
		} `json:"latency"`
		ExactlyOnceLatency struct {
			Events          int                `json:"events"`
			Rate            float64            `json:"rate"`
			RateAsked       int                `json:"rate_asked"`
			InsertToConsume map[string]float64 `json:"insert_to_consume"`
			CommitToConsume map[string]float64 `json:"commit_to_consume"`
		} `json:"exactly_once_latency"`
	}
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&r))
	require.ErrorIs(t, decoder.Decode(&r), io.EOF, "one object and nothing else")

	require.Contains(t, r.Machine, "cores")
	require.Equal(t, "off", r.Setup["fsync"])
	require.Contains(t, r.Setup["command"], "--events 5000")
	require.Len(t, r.Drain, 2)
	for i, rows := range []int{10, 1} {
		series := r.Drain[i]
		require.Equal(t, rows, series.RowsPerTx)
		require.Equal(t, 5000, series.Events)
		require.InDelta(t, 265, series.PayloadBytes, 5)
		require.Len(t, series.Rounds, 1)
		round := series.Rounds[0]
		require.EqualValues(t, 5000, round.Walrelay["delivered"])
		require.EqualValues(t, 5000, round.Walrelay["distinct"])
		require.Positive(t, round.Walrelay["peak_rss_bytes"])
		contenders := []map[string]float64{round.Walrelay}
		if findReceive() != "" {
			contenders = append(contenders, round.PgRecvlogical)
			require.InDelta(t, round.Walrelay["events_per_second"]/round.PgRecvlogical["events_per_second"], round.Ratio, 1e-6)
			require.Equal(t, map[string]float64{"min": round.Ratio, "median": round.Ratio, "max": round.Ratio}, series.Ratio)
		}
		require.Positive(t, round.Walrelay["broker_cpu_seconds"])
		for _, c := range contenders {
			require.Positive(t, c["server_cpu_seconds"])
			require.Positive(t, c["machine_cpu_seconds"])
			require.InEpsilon(t, 5000, c["events_per_second"]*c["seconds"], 1e-6)
			require.InDelta(t, c["cpu_seconds"], c["cpu_seconds_per_million"]*5000/1e6, 1e-6)
		}
	}

	require.Equal(t, 400, r.Latency.Events)
	require.Equal(t, 200, r.Latency.RateAsked)
	require.Positive(t, r.Latency.Rate)
	for _, p := range []map[string]float64{r.Latency.InsertToConsume, r.Latency.CommitToConsume} {
		require.Len(t, p, 4)
		require.LessOrEqual(t, p["p50_ms"], p["p90_ms"])
		require.LessOrEqual(t, p["p90_ms"], p["p99_ms"])
		require.LessOrEqual(t, p["p99_ms"], p["max_ms"])
	}

	var table bytes.Buffer
	require.NoError(t, result.writeTable(&table))
	require.Contains(t, table.String(), "Drain: 5000 events")
}

func TestParseOptions(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--events", "0"},
		{"--rows-per-tx", "10,x"},
		{"--rows-per-tx", "0"},
		{"--rounds", "-1"},
		{"--rate", "0"},
		{"--latency", "-1s"},
		{"more"},
		{"--unknown"},
	} {
		var out bytes.Buffer
		_, err := parseOptions(args, &out)
		require.Error(t, err, args)
		require.NotEmpty(t, out.String(), args)
	}
	_, err := parseOptions([]string{"--help"}, io.Discard)
	require.ErrorIs(t, err, flag.ErrHelp)
}

func TestRatios(t *testing.T) {
	t.Parallel()
	ratio := func(r drainRound) float64 { return r.Ratio }
	require.Equal(t, &spread{Min: 1, Median: 2, Max: 3}, ratios([]drainRound{{Ratio: 3}, {Ratio: 1}, {Ratio: 2}}, ratio))
	require.Equal(t, &spread{Min: 1, Median: 2, Max: 3}, ratios([]drainRound{{Ratio: 3}, {Ratio: 1}}, ratio))
}

func TestPercentiles(t *testing.T) {
	t.Parallel()
	from, to := make([]time.Duration, 1000), make([]time.Duration, 1000)
	for i := range to {
		to[i] = time.Duration(1000-i) * time.Millisecond
	}
	require.Equal(t, percentiles{P50: 500, P90: 900, P99: 990, Max: 1000}, percentilesOf(to, from))
	require.Equal(t, percentiles{P50: 1000, P90: 1000, P99: 1000, Max: 1000}, percentilesOf(to[:1], from[:1]))
}

// Every message carries the program's name.
func TestNamed(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	n, err := named{&log}.Write([]byte("over 7\n"))
	require.NoError(t, err)
	require.Equal(t, 7, n)
	require.Equal(t, "bench: over 7\n", log.String())
}

// What a process uses is read of this one.
func TestUsage(t *testing.T) {
	t.Parallel()
	rss, err := peakRSS(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, rss, int64(1<<20))
	meter, err := startMeter(os.Getpid())
	require.NoError(t, err)
	require.Eventually(t, func() bool { // looking costs enough
		machine, processes, err := meter.used()
		return err == nil && machine > 0 && processes[0] > 0
	}, time.Minute, time.Millisecond)
	_, err = kilobytes([]byte("VmPeak: 1 kB\n"), "VmHWM:")
	require.Error(t, err)
}
