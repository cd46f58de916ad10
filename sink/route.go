package sink

import (
	"fmt"
	"strings"
)

// Template derives a topic name from columns of the row: literal text and {column} references.
type Template struct {
	text  string
	parts []part
	cols  []string
}

type part struct {
	literal string
	column  int // index into cols; -1 for a literal
}

// ParseTemplate reads a topic template such as "outbox.event.{aggregatetype}". Literal text must be
// made of characters that a topic name may have.
func ParseTemplate(text string) (*Template, error) {
	t := &Template{text: text}
	for rest := text; rest != ""; {
		literal, tail, found := strings.Cut(rest, "{")
		if i := strings.IndexFunc(literal, func(r rune) bool { return r > 127 || !topicByte(byte(r)) }); i >= 0 {
			return nil, fmt.Errorf("%q is not a character of topic names", literal[i:i+1])
		}
		if literal != "" {
			t.parts = append(t.parts, part{literal: literal, column: -1})
		}
		if !found {
			break
		}
		column, after, closed := strings.Cut(tail, "}")
		if !closed || column == "" || strings.Contains(column, "{") {
			return nil, fmt.Errorf("%q: want {column}", "{"+tail)
		}
		t.parts = append(t.parts, part{column: len(t.cols)})
		t.cols = append(t.cols, column)
		rest = after
	}
	if len(t.parts) == 0 {
		return nil, fmt.Errorf("a topic template cannot be empty")
	}
	return t, nil
}

// Columns lists the columns that the template names, in order: the Route of a decoder.Mapping.
func (t *Template) Columns() []string { return t.cols }

// String returns the template's text.
func (t *Template) String() string { return t.text }

// appendTopic renders the template with the values of Columns.
func (t *Template) appendTopic(dst []byte, route [][]byte) []byte {
	for _, p := range t.parts {
		if p.column < 0 {
			dst = append(dst, p.literal...)
		} else {
			dst = append(dst, route[p.column]...)
		}
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
