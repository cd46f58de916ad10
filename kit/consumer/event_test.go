package consumer_test

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/kit/consumer"
	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

// The relay's own type is the oracle.
func TestPosition_AsTheRelayWritesIt(t *testing.T) {
	t.Parallel()
	position := rapid.Custom(func(t *rapid.T) consumer.Position {
		return consumer.Position{
			Epoch: rapid.Uint32Range(0, 3).Draw(t, "epoch"), Timeline: rapid.Uint32().Draw(t, "timeline"),
			LSN: rapid.Uint64().Draw(t, "lsn"), Index: rapid.Uint32().Draw(t, "index"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		p, q := position.Draw(t, "p"), position.Draw(t, "q")
		theirs, err := checkpoint.ParsePosition(p.String())
		require.NoError(t, err)
		other, err := checkpoint.ParsePosition(q.String())
		require.NoError(t, err)
		require.Equal(t, p.String(), theirs.String())
		require.Equal(t, theirs.Compare(other), p.Compare(q))
		require.Equal(t, p.Compare(q), cmp.Compare(p.String(), q.String()))
		again, err := consumer.ParsePosition(strings.ToLower(p.String()))
		require.NoError(t, err)
		require.Equal(t, p, again)
		require.Equal(t, theirs.IsZero(), p.IsZero())
	})
	for _, text := range []string{
		"", "00000001-00000001-0000000000000001-0000000G", "00000001-00000001-0000000000000001 00000001",
	} {
		_, err := consumer.ParsePosition(text)
		require.ErrorIs(t, err, consumer.ErrPosition, text)
	}
}

type pair struct{ name, value string }

func headers(pairs ...pair) consumer.Headers {
	return consumer.List(pairs, func(p pair) (string, []byte) { return p.name, []byte(p.value) })
}

const at = "00000002-00000001-00000000016B3748-00000003"

func TestRead(t *testing.T) {
	t.Parallel()
	stream, id := pair{"walrelay-stream", "shop"}, pair{"id", "0190"}
	want := consumer.Event{
		ID: "0190", Stream: "shop", Type: "paid",
		Position:   consumer.Position{Epoch: 2, Timeline: 1, LSN: 0x16B3748, Index: 3},
		CommitTime: time.Date(2026, 1, 31, 9, 30, 0, 123456000, time.UTC),
	}
	sent := []pair{
		id, stream,
		{"walrelay-position", at},
		{"walrelay-commit-time", "2026-01-31T09:30:00.123456Z"},
		{"eventType", "paid"},
		{"id", "a second one"},
	}
	var franz kgo.Record
	var sar sarama.ConsumerMessage
	for _, p := range sent {
		franz.Headers = append(franz.Headers, kgo.RecordHeader{Key: p.name, Value: []byte(p.value)})
		sar.Headers = append(sar.Headers, &sarama.RecordHeader{Key: []byte(p.name), Value: []byte(p.value)})
	}
	for name, from := range map[string]consumer.Headers{
		"franz-go": consumer.List(franz.Headers, func(h kgo.RecordHeader) (string, []byte) { return h.Key, h.Value }),
		"sarama": consumer.List(sar.Headers, func(h *sarama.RecordHeader) (string, []byte) {
			return string(h.Key), h.Value
		}),
	} {
		got, err := consumer.Read(from)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}

	replay, err := consumer.Read(headers(id, stream, pair{"walrelay-replay", "r1"}))
	require.NoError(t, err)
	require.Equal(t, consumer.Event{ID: "0190", Stream: "shop", Replay: true}, replay)
	dead, err := consumer.Read(headers(id, stream, pair{"walrelay-source-position", at}))
	require.NoError(t, err)
	require.Equal(t, consumer.Event{ID: "0190", Stream: "shop", DeadLetter: true}, dead)

	_, err = consumer.Read(headers(id))
	require.ErrorIs(t, err, consumer.ErrForeign)
	for _, faulty := range [][]pair{
		{stream},
		{stream, id},
		{stream, id, {"walrelay-position", "1"}},
		{stream, id, {"walrelay-position", "00000000-00000000-0000000000000000-00000000"}},
		{stream, id, {"walrelay-position", at}, {"walrelay-commit-time", "yesterday"}},
	} {
		_, err := consumer.Read(headers(faulty...))
		require.ErrorIs(t, err, consumer.ErrHeader)
		require.NotContains(t, err.Error(), "yesterday")
	}
}
