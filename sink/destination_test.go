package sink

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

func TestTopicRules(t *testing.T) {
	t.Parallel()
	rules := &TopicRules{
		ByType: map[string]string{"Paid": "billing", "": "untyped"},
		Map:    map[string]string{"orders": "shop.orders", "no topic": "spaced", "a/b": "ab"},
	}
	replacing := &TopicRules{Map: rules.Map, Replace: true}
	for _, c := range []struct {
		rules      *TopicRules
		name, kind string
		want       string
		renamed    bool
	}{
		{rules, "orders", "Paid", "billing", false},
		{rules, "orders", "", "untyped", false},
		{rules, "orders", "Sent", "shop.orders", false},
		{rules, "shop.orders", "Sent", "shop.orders", false},
		{rules, "no topic", "Sent", "spaced", false},
		{rules, "other topic", "Sent", "other topic", false},
		{replacing, "no topic", "Paid", "spaced", false},
		{replacing, "other topic/é😀\xff", "Paid", "other_topic____", true},
		{replacing, "fine.Topic_1-2", "Paid", "fine.Topic_1-2", false},
		{replacing, ".", "Paid", "_", true},
		{replacing, "..", "Paid", "__", true},
		{replacing, "...", "Paid", "...", false},
		{replacing, "", "Paid", "", false},
	} {
		got, renamed := c.rules.apply([]byte(c.name), []byte(c.kind))
		require.Equal(t, c.want, string(got), "%q %q", c.name, c.kind)
		require.Equal(t, c.renamed, renamed, "%q", c.name)
	}
	got, _ := rules.apply([]byte("payments"), nil)
	require.Equal(t, "payments", string(got), "no type is not an empty one")
}

//nolint:paralleltest // counts allocations
func TestTopicRules_AllocateNothing(t *testing.T) {
	rules := &TopicRules{ByType: map[string]string{"Paid": "b"}, Map: map[string]string{"orders": "o"}, Replace: true}
	name, kind := []byte("other topic with a long name"), []byte("Sent")
	require.Zero(t, testing.AllocsPerRun(10, func() { rules.apply(name, kind) }))
}

// What is replaced is counted; what is no topic even so is undeliverable.
func TestTopicRules_AreVisible(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "a_b", "billing"))
	k := start(t, c.ListenAddrs(), func(c *Config) {
		c.OnPoison, c.TopicRules = Skip, &TopicRules{ByType: map[string]string{"Paid": "billing"}, Replace: true}
	})
	s := begin(t, k, checkpoint.Run{})
	s.publish(s.event("a b", "k"), s.event("a/b", "k"), s.event("", "k"),
		s.event("a?b", "k", func(ev *decoder.Event) { ev.Type = []byte("Paid") }))
	k.Flush()
	s.until("all", func() bool { return len(s.settled) == 3 && len(s.poison) == 1 })
	require.Contains(t, s.poison[0].Reason, "the topic name is empty")
	require.Len(t, consume(t, c.ListenAddrs(), 2, "a_b"), 2)
	require.Len(t, consume(t, c.ListenAddrs(), 1, "billing"), 1)
	o := k.cfg.Observer.(*observer)
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Equal(t, map[string]int{"a_b": 2}, o.renamed)
}

// No row gets into the topics that walrelay reads back, nor into Kafka's own, whatever its columns say.
func TestDestination_Reserved(t *testing.T) {
	t.Parallel()
	own := map[string]string{
		"dead": "the topic is the one of dead letters", "states": "the topic is the one of walrelay's states",
		"__consumer_offsets": "the topic is one of Kafka's own",
	}
	for _, policy := range []Policy{Skip, DeadLetter} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			c := fakeKafka(t, kfake.SeedTopics(1, "orders", "dead"))
			k := start(t, c.ListenAddrs(), func(c *Config) {
				c.OnPoison, c.DeadTopic, c.StateTopic, c.CreateTopics = policy, "dead", "states", true
			})
			preview := NewPreview(&k.cfg)
			s := begin(t, k, checkpoint.Run{})
			for topic, reason := range own {
				ev := s.event(topic, "k")
				require.EqualError(t, preview.Record(ev).Fault, reason)
				s.publish(ev)
			}
			s.some("orders", 1)
			s.until("all", func() bool { return len(s.settled) == 1 && len(s.poison) == len(own) })
			reasons := map[string]string{}
			for _, p := range s.poison {
				reasons[p.Topic] = p.Reason
			}
			require.Equal(t, map[string]string{
				"dead": "the topic is the one of dead letters", "states": "the topic is the one of walrelay's states",
				"": "the topic is one of Kafka's own",
			}, reasons)
			if policy == DeadLetter {
				for _, r := range consume(t, c.ListenAddrs(), 3, "dead") {
					_, positioned := header(r, headerPosition)
					require.False(t, positioned)
				}
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			require.NotContains(t, k.topics, "states")
			require.NotContains(t, k.topics, "__consumer_offsets")
		})
	}
}
