package monitor

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// chronicle asks for the samples after one.
func (f *fixture) chronicle(t *testing.T, after int64) chronicle {
	t.Helper()
	code, body := f.get(t, "/status/history?after="+strconv.FormatInt(after, 10))
	require.Equal(t, http.StatusOK, code, body)
	var doc chronicle
	require.NoError(t, json.Unmarshal([]byte(body), &doc))
	return doc
}

// ticking is a fixture whose clock advances by the interval with each sample.
func ticking(t *testing.T) (f *fixture, tick func()) {
	t.Helper()
	now := noon()
	f = newFixtureWith(t, func(cfg *Config) { cfg.Now = func() time.Time { return now } })
	return f, func() {
		now = now.Add(f.interval)
		f.sample()
	}
}

func TestHistory_RatesAndLatencies(t *testing.T) {
	t.Parallel()
	f, tick := ticking(t)
	tick() // what came before counts as of the process's life
	f.change(func(s *Status) { s.Events += 1000 })
	now := noon()
	var commits []time.Time
	for i := range 200 {
		commits = append(commits, now.Add(-time.Duration(i+1)*time.Millisecond))
	}
	f.Observer().Acked("a", 1, commits[:100], now)
	f.Observer().Acked("b", 1, commits[100:], now)
	tick()
	tick()

	doc := f.chronicle(t, 1)
	require.Equal(t, noon(), doc.Began)
	require.InDelta(t, 5, doc.IntervalSeconds, 0)
	require.Len(t, doc.Samples, 2)
	busy, idle := doc.Samples[0], doc.Samples[1]
	require.EqualValues(t, 2, busy.Number)
	require.Equal(t, noon().Add(2*sampleInterval), busy.At)
	require.Equal(t, Streaming, busy.State)
	require.True(t, busy.Ready)
	require.InDelta(t, 200, busy.EventsPerSecond, 0)
	require.InDelta(t, 40, busy.AcknowledgedPerSecond, 0)
	require.InEpsilon(t, 0.1, *busy.P50Seconds, 0.1)
	require.InEpsilon(t, 0.198, *busy.P99Seconds, 0.1)
	require.InDelta(t, 12, *busy.SecondsBehind, 0, "on the server's clock")
	require.Zero(t, idle.EventsPerSecond)
	require.Nil(t, idle.P50Seconds, "nothing was acknowledged since")
}

// The history asks the database nothing: it keeps what others were told, and knows silence from not asking.
func TestHistory_AsksNobody(t *testing.T) {
	t.Parallel()
	f, tick := ticking(t)
	asked := 0
	answer := f.cfg.Lag
	f.cfg.Lag = func(ctx context.Context) (Lag, error) {
		asked++
		return answer(ctx)
	}
	tick()
	require.Zero(t, asked)
	f.scrape(t)
	tick()
	tick()
	f.lag.Store(nil)
	f.get(t, "/status")
	tick()
	require.Equal(t, 2, asked)

	samples := f.chronicle(t, 0).Samples
	require.Len(t, samples, 4)
	require.Nil(t, samples[0].ConfirmedBytes)
	require.False(t, samples[0].Silent)
	require.EqualValues(t, 768, *samples[1].ConfirmedBytes)
	require.EqualValues(t, 1024, *samples[1].RetainedBytes)
	require.Nil(t, samples[2].ConfirmedBytes, "an answer is not repeated")
	require.False(t, samples[2].Silent)
	require.Nil(t, samples[3].ConfirmedBytes)
	require.True(t, samples[3].Silent)
}

func TestHistory_IsBounded(t *testing.T) {
	t.Parallel()
	f, tick := ticking(t)
	_, body := f.get(t, "/status/history")
	require.Contains(t, body, `"samples":[]`)
	for range maxSamples + 40 {
		tick()
	}
	all := f.chronicle(t, 0).Samples
	require.Len(t, all, maxSamples)
	require.EqualValues(t, 41, all[0].Number)
	require.Len(t, f.chronicle(t, maxSamples+38).Samples, 2)
	require.Empty(t, f.chronicle(t, maxSamples+40).Samples)
	require.Empty(t, f.chronicle(t, 1<<60).Samples, "of another process")
	require.Len(t, f.chronicle(t, -5).Samples, maxSamples)
	code, _ := f.get(t, "/status/history?after=x")
	require.Equal(t, http.StatusBadRequest, code)
}

// A standby has nothing unsettled, and knows nothing of what the active instance has.
func TestHistory_StandbyKnowsNoDelay(t *testing.T) {
	t.Parallel()
	f, tick := ticking(t)
	f.change(func(s *Status) { s.State, s.OldestUnsettled = Standby, time.Time{} })
	tick()
	require.Nil(t, f.chronicle(t, 0).Samples[0].SecondsBehind)
	_, body := f.get(t, "/status")
	require.Contains(t, body, `"seconds_behind": null`)
	f.change(func(s *Status) { s.State = Streaming })
	tick()
	require.Zero(t, *f.chronicle(t, 1).Samples[0].SecondsBehind)
}

func TestLatencies_Buckets(t *testing.T) {
	t.Parallel()
	for bucket := range latencyBuckets {
		middle := time.Duration(bucketSeconds(bucket) * 1e9)
		require.Equal(t, bucket, latencyBucket(middle), middle)
	}
	require.Zero(t, latencyBucket(-time.Second))
	require.Equal(t, latencyBuckets-1, latencyBucket(1000*time.Hour))
	for d := 20 * time.Microsecond; d < time.Hour; d = d * 11 / 10 {
		require.InEpsilon(t, d.Seconds(), bucketSeconds(latencyBucket(d)), 0.07)
	}
}

func TestLatencies_OfOneEvent(t *testing.T) {
	t.Parallel()
	var l latencies
	l.add([]time.Time{noon()}, noon().Add(time.Second))
	events, p50, p99 := l.take()
	require.EqualValues(t, 1, events)
	require.InEpsilon(t, 1, *p50, 0.07)
	require.Equal(t, *p50, *p99)
	events, p50, p99 = l.take()
	require.Zero(t, events)
	require.Nil(t, p50)
	require.Nil(t, p99)
}

func TestFormat(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		shownBytes(0): "0 B", shownBytes(999): "999 B", shownBytes(1000): "0.98 KiB", shownBytes(1536): "1.50 KiB",
		shownBytes(-2048): "-2 KiB", shownBytes(123 << 20): "123 MiB", shownBytes(1 << 62): "4096 PiB",
		shownSpan(0): "0 s", shownSpan(0.0042): "4.20 ms", shownSpan(0.9999): "1.00 s", shownSpan(59.5): "59.5 s",
		shownSpan(61): "1 min 1 s", shownSpan(7265): "2 h 1 min", shownSpan(200000): "2 d 7 h",
		shownRate(0): "0/s", shownRate(12.34): "12.3/s", shownRate(54321): "54.3 k/s", shownRate(2.5e6): "2.50 M/s",
	} {
		require.Equal(t, want, text)
	}
}
