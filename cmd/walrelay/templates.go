package main

import (
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/sink"
)

// topicFault says why a text can be no topic template; empty when it can.
func topicFault(text string) string {
	template, err := sink.ParseTemplate(text)
	switch {
	case err != nil:
		return "must be a topic name with {column} fields: " + err.Error()
	case len(template.Columns()) > 0:
		return columnsFault(template.Template)
	case !sink.LegalTopic(text):
		return topicRule
	}
	return ""
}

// keyFault says why a text can be no key template; empty when it can.
func keyFault(text string) string {
	template, err := decoder.ParseTemplate(text)
	switch {
	case err != nil:
		return "must be text with {column} fields: " + err.Error()
	case len(template.Columns()) == 0:
		return "must have a {column} field"
	}
	return columnsFault(template)
}

func columnsFault(template *decoder.Template) string {
	for _, column := range template.Columns() {
		if identifierFault(column) != nil {
			return "must have column names of 1 to 63 bytes in braces"
		}
	}
	return ""
}

// setKeyTemplate makes the key by a template without a fault.
func setKeyTemplate(m *decoder.Mapping, text string) {
	m.Key = ""
	m.KeyTemplate, _ = decoder.ParseTemplate(text)
}

// setTopic gives a mapping a topic template of its own, which has no fault.
func setTopic(m *decoder.Mapping, text string) {
	if template, err := sink.ParseTemplate(text); err == nil {
		m.Topic, m.Route = template.Template, template.Columns()
	}
}
