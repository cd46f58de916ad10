package sink

import (
	"unicode/utf8"

	"go.uber.org/zap"
)

// TopicRules change where the template sends events.
type TopicRules struct {
	// ByType names the topic of an event type, whatever the template says.
	ByType map[string]string
	// Map names the topic in place of what the template makes of an event, which need not be a legal name.
	Map map[string]string
	// Replace puts '_' for every character that a topic name cannot have, instead of calling the event
	// undeliverable. Observer.Renamed is told.
	Replace bool
}

// apply changes the name that the template made of an event of this type.
func (r *TopicRules) apply(name, kind []byte) (changed []byte, renamed bool) {
	if to, ok := r.ByType[string(kind)]; ok && kind != nil {
		return append(name[:0], to...), false
	}
	if to, ok := r.Map[string(name)]; ok {
		return append(name[:0], to...), false
	}
	if r.Replace {
		return replaceIllegal(name)
	}
	return name, false
}

// replaceIllegal works in place: what it puts is never longer than what was there.
func replaceIllegal(name []byte) (legal []byte, replaced bool) {
	dots := string(name) == "." || string(name) == ".."
	legal = name[:0]
	for i := 0; i < len(name); {
		c, n := name[i], 1
		if !topicByte(c) || dots {
			_, n = utf8.DecodeRune(name[i:])
			c, replaced = '_', true
		}
		legal = append(legal, c)
		i += n
	}
	return legal, replaced
}

// destination is the present event's topic, or why it can have none. Called with mu held.
func (k *Kafka) destination() (t *topic, fault string) {
	if t = k.topics[string(k.name)]; t != nil && !t.dead && !t.state {
		return t, ""
	}
	if fault = k.cfg.topicFault(k.name); fault != "" {
		return nil, fault
	}
	return k.topic(k.name), ""
}

// noteRenamed counts that the present event's topic has other characters than the template made, and the log says so
// once a run and topic. Called with mu held.
func (k *Kafka) noteRenamed() {
	t, fault := k.destination()
	if fault != "" {
		return // it is no topic even so
	}
	k.cfg.Observer.Renamed(t.name)
	if !t.renamed {
		t.renamed = true
		k.log.Warn("characters that a topic cannot have were replaced", zap.String("topic", t.name))
	}
}
