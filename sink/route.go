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
// may be rewritten.
func (c *Config) appendTopic(dst []byte, ev *decoder.Event) []byte {
	if own := ev.Mapping.Topic; own != nil {
		return own.Append(dst, ev.Route)
	}
	start := len(dst)
	dst = c.Topic.Append(dst, ev.Route)
	if c.Topic.rewrite != nil {
		dst = c.Topic.rewrite.apply(dst, start)
	}
	return dst
}

// checkTopic says why name cannot be a topic, by the rules of Kafka's
// org.apache.kafka.common.internals.Topic; empty when it can. The name is not part of the answer,
// since it holds column values.
func checkTopic(name []byte) string {
	switch {
	case len(name) == 0:
		return "the topic name is empty"
	case len(name) > 249:
		return "the topic name is longer than 249 bytes"
	case string(name) == "." || string(name) == "..":
		return `a topic cannot be named "." or ".."`
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
