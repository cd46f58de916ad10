package sink

import (
	"fmt"
	"strings"

	"github.com/walrelay/walrelay/decoder"
)

// Template derives a topic name from columns of the row: literal text and {column} references.
type Template struct {
	*decoder.Template
	rewrite *rewrite // nil: none
}

// ParseTemplate reads a topic template such as "outbox.event.{aggregatetype}". Literal text must be
// made of characters that a topic name may have.
func ParseTemplate(text string) (*Template, error) {
	t, err := decoder.ParseTemplate(text)
	if err != nil {
		return nil, err
	}
	for _, literal := range t.Literals() {
		if i := strings.IndexFunc(literal, func(r rune) bool { return r > 127 || !topicByte(byte(r)) }); i >= 0 {
			return nil, fmt.Errorf("%q is not a character of topic names", literal[i:i+1])
		}
	}
	return &Template{Template: t}, nil
}

// appendTopic renders the topic of an event, by the template of its table or else the configured one, whose names
// may be rewritten, and follows the rules then. It reports whether they put other characters.
func (c *Config) appendTopic(dst []byte, ev *decoder.Event) (name []byte, renamed bool) {
	start := len(dst)
	if own := ev.Mapping.Topic; own != nil {
		dst = own.Append(dst, ev.Route)
	} else if dst = c.Topic.Append(dst, ev.Route); c.Topic.rewrite != nil {
		dst = c.Topic.rewrite.apply(dst, start)
	}
	if c.TopicRules == nil {
		return dst, false
	}
	name, renamed = c.TopicRules.apply(dst[start:], ev.Type)
	return append(dst[:start], name...), renamed
}

// topicFault says why no event may go to a topic of this name, empty when it may. Letters and states are read back
// from theirs: a row that could write there could forge them.
func (c *Config) topicFault(name []byte) string {
	fault := checkTopic(name)
	switch {
	case fault != "":
	case string(name) == c.DeadTopic:
		fault = "the topic is the one of dead letters"
	case string(name) == c.StateTopic:
		fault = "the topic is the one of walrelay's states"
	}
	return fault
}

// LegalTopic reports whether a topic that clients may write can have the name.
func LegalTopic(name string) bool { return checkTopic([]byte(name)) == "" }

// checkTopic says why name cannot be a topic that clients may write, by the rules of Kafka's
// org.apache.kafka.common.internals.Topic; empty when it can. The name is not part of the answer,
// since it holds column values.
func checkTopic(name []byte) string {
	switch {
	case len(name) == 0:
		return "the topic name is empty"
	case len(name) > 249:
		return "the topic name is longer than 249 bytes"
	}
	switch string(name) {
	case ".", "..":
		return `a topic cannot be named "." or ".."`
	case "__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata":
		return "the topic is one of Kafka's own" // and were it missing, creating it would harm the cluster
	}
	for _, c := range name {
		if !topicByte(c) {
			return "the topic name has a character other than a-z, A-Z, 0-9, '.', '_' and '-'"
		}
	}
	return ""
}

func topicByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}
