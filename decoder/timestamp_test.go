package decoder_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/decoder"
)

func TestParseTimestamp(t *testing.T) {
	t.Parallel()
	at := func(h, m, s, ns int) time.Time { return time.Date(2026, 1, 2, h, m, s, ns, time.UTC) }
	tests := map[string]time.Time{
		"2026-01-02 12:04:05+00":        at(12, 4, 5, 0),
		"2026-01-02 12:04:05.123456+00": at(12, 4, 5, 123_456_000),
		"2026-01-02 12:04:05.1+00":      at(12, 4, 5, 100_000_000),
		"2026-01-02 12:04:05":           at(12, 4, 5, 0),
		"2026-01-02 12:04:05.5":         at(12, 4, 5, 500_000_000),
		"2026-01-02 12:04:05+05:30":     at(6, 34, 5, 0),
		"2026-01-02 12:04:05.25-07":     at(19, 4, 5, 250_000_000),
		"2026-01-02 12:04:05-00:44:30":  at(12, 48, 35, 0),
		"2026-01-02T12:04:05Z":          at(12, 4, 5, 0),
		"2026-01-02T12:04:05.5-07:00":   at(19, 4, 5, 500_000_000),
		"2026-01-02":                    at(0, 0, 0, 0),
		"1767355445123":                 at(12, 4, 5, 123_000_000),
		"0":                             time.Unix(0, 0).UTC(),
		"-1":                            time.UnixMilli(-1).UTC(),
		"0001-01-01 00:00:00+00":        time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC),
		"9999-12-31 23:59:59.999999+00": time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
		"2024-02-29 00:00:00+00":        time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC),
	}
	for text, want := range tests {
		got, err := decoder.ParseTimestamp([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestParseTimestamp_Refuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "infinity", "-infinity", "0044-03-15 12:00:00+00 BC", "0044-03-15 BC", "12026-01-02 12:04:05+00",
		"02/01/2026 12:04:05 JST", "2026-02-30 00:00:00+00", "2026-01-02 12:04", "2026-01-02 12:04:05 UTC",
		"2026-01-02 12:04:05+", "2026-01-02 12:04:05+0", "2026-01-02 12:04:05+00:00:00:00", "12:04:05", "1.5", "1e3",
		"99999999999999999999", "secret", "2026-01-02T12:04:05", "2026-01-02t12:04:05z",
	} {
		got, err := decoder.ParseTimestamp([]byte(text))
		require.Equal(t, decoder.ErrTimestamp, err, text)
		require.Zero(t, got)
	}
}

func TestEvent_Time(t *testing.T) {
	t.Parallel()
	ev := decoder.Event{CommitTime: commitTime}
	got, err := ev.Time()
	require.NoError(t, err)
	require.Equal(t, commitTime, got, "no timestamp")

	ev.Timestamp = []byte("2001-02-03 04:05:06+00")
	got, err = ev.Time()
	require.NoError(t, err)
	require.Equal(t, time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC), got)

	ev.Timestamp = []byte("infinity")
	got, err = ev.Time()
	require.ErrorIs(t, err, decoder.ErrTimestamp)
	require.Equal(t, commitTime, got, "something to go on with")
}
