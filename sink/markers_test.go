package sink

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

func TestMarkers(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders", "dead"))
	k := start(t, c.ListenAddrs(), func(c *Config) { c.OnPoison, c.DeadTopic = DeadLetter, "dead" })
	s := begin(t, k, checkpoint.Run{})
	marked := func(index, count uint32, headers string) *decoder.Event {
		return s.event("orders", "k", func(ev *decoder.Event) {
			ev.Position.LSN, ev.Position.Index = 0xABC, index
			ev.Marked, ev.Count, ev.Headers = true, count, []byte(headers)
		})
	}
	s.publish(marked(0, 0, `{"a": "b"}`), marked(4294967294, 4294967295, `[]`), marked(9, 10, `{}`),
		s.event("orders", "k"))
	k.Flush()
	s.until("all", func() bool { return len(s.settled)+len(s.poison) == 4 })

	marks := func(topic string, n int) (all [][3]string) {
		for _, r := range consume(t, c.ListenAddrs(), n, topic) {
			id, _ := header(r, headerTransaction)
			index, _ := header(r, headerIndex)
			count, _ := header(r, headerCount)
			all = append(all, [3]string{id, index, count})
		}
		return all
	}
	const id = "00000001-0000000000000ABC"
	require.Equal(t, [][3]string{{id, "0", ""}, {id, "9", "10"}, {}}, marks("orders", 3))
	require.Equal(t, [][3]string{{id, "4294967294", "4294967295"}}, marks("dead", 1), "a letter keeps its place")
	raw, _ := header(consume(t, c.ListenAddrs(), 1, "dead")[0], headerDeadHeaders)
	require.Equal(t, "[]", raw)

	// Published again it comes outside of its transaction, and nothing of the letter is lost on the way.
	l := lettersOf(t, k)
	at := s.poison[0].Position
	ev, err := l.Read(t.Context(), at)
	require.NoError(t, err)
	require.Equal(t, "[]", string(ev.Headers))
	require.False(t, ev.Marked)
}
