package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/walrelay/walrelay/sink"
)

// Topics is a comma-separated list of from=topic. What is before the last equals sign may have anything but
// commas, and no space around it counts.
type Topics struct {
	input
	Values map[string]string
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Topics) UnmarshalText(b []byte) error {
	t.raw = string(b)
	if t.raw == "" {
		return nil
	}
	t.Values = map[string]string{}
	for pair := range strings.SplitSeq(t.raw, ",") {
		at := strings.LastIndexByte(pair, '=')
		from := strings.TrimSpace(pair[:max(at, 0)])
		if from == "" {
			t.err = errors.New("must list from=topic, comma-separated")
			return nil
		}
		if _, twice := t.Values[from]; twice {
			t.err = fmt.Errorf("must name %q once", from)
			return nil
		}
		t.Values[from] = strings.TrimSpace(pair[at+1:])
	}
	return nil
}

// text is the list in an order that does not depend on how it was written.
func (t *Topics) text() string {
	var pairs []string
	for _, from := range slices.Sorted(maps.Keys(t.Values)) {
		pairs = append(pairs, fmt.Sprintf("%q=%q", from, t.Values[from]))
	}
	return strings.Join(pairs, ",")
}

func (s *Settings) checkTopicRules(f *faults) {
	for _, t := range []*Topics{&s.TopicMap, &s.TopicByType} {
		for _, from := range slices.Sorted(maps.Keys(t.Values)) {
			to := t.Values[from]
			f.check(sink.LegalTopic(to), &t.input, "topic of %q "+topicRule, from)
			f.check(to != s.DeadLetterTopic.Text, &t.input, "topic of %q must not be %s", from, s.DeadLetterTopic.variable)
			f.check(to != s.StateTopic.Text, &t.input, "topic of %q must not be %s", from, s.StateTopic.variable)
		}
	}
	f.check(s.typed() || len(s.TopicByType.Values) == 0, &s.TopicByType.input, "needs %s", s.ColumnType.variable)
}

// typed says that there are events which may have a type.
func (s *Settings) typed() bool {
	for _, columns := range s.TableColumns.tables {
		if columns["type"] != "" {
			return true
		}
	}
	return s.ColumnType.Text != "" || s.MessagePrefix.Text != "" || s.MessageBinaryPrefix.Text != ""
}

// topicRules is nil where the template alone decides.
func (s *Settings) topicRules() *sink.TopicRules {
	r := &sink.TopicRules{
		ByType: s.TopicByType.Values, Map: s.TopicMap.Values, Replace: s.TopicInvalid.Text == "replace",
	}
	if len(r.ByType) == 0 && len(r.Map) == 0 && !r.Replace {
		return nil
	}
	return r
}

// topicRouting is their part of the fingerprint, empty without any.
func (s *Settings) topicRouting() (routing string) {
	if len(s.TopicMap.Values) > 0 {
		routing += " map=" + s.TopicMap.text()
	}
	if len(s.TopicByType.Values) > 0 {
		routing += fmt.Sprintf(" type=%q by_type=%s", s.ColumnType.Text, s.TopicByType.text())
	}
	if s.TopicInvalid.Text == "replace" {
		routing += " invalid=replace"
	}
	return routing
}
