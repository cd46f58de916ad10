package sink

import (
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/walrelay/walrelay/decoder"
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

// followRules changes the topic of the present event from what the template made of it. What has other characters
// then is counted, and the log says so once a run and topic. Called with mu held.
func (k *Kafka) followRules(ev *decoder.Event) {
	var renamed bool
	if k.name, renamed = k.cfg.TopicRules.apply(k.name, ev.Type); !renamed {
		return
	}
	t := k.topic(k.name)
	if t == nil {
		return // it is no topic even so
	}
	k.cfg.Observer.Renamed(t.name)
	if !t.renamed {
		t.renamed = true
		k.log.Warn("characters that a topic cannot have were replaced", zap.String("topic", t.name))
	}
}
