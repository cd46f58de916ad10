package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/walrelay/walrelay/sink"
	"github.com/walrelay/walrelay/sink/connect"
)

// Additional is a list of columns and of their places in the record: type:header:eventType,shard:partition.
type Additional struct {
	input
	Columns    []string
	Placements []sink.Placement
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Additional) UnmarshalText(b []byte) error {
	a.raw = string(b)
	if a.raw == "" {
		return nil
	}
	for entry := range strings.SplitSeq(a.raw, ",") {
		column, placement, err := parseAdditional(entry)
		if err != nil {
			a.err = err
			return nil
		}
		a.Columns, a.Placements = append(a.Columns, column), append(a.Placements, placement)
	}
	return nil
}

func parseAdditional(entry string) (column string, placement sink.Placement, err error) {
	parts := strings.Split(entry, ":")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	wrong := fmt.Errorf("must list column:header, column:envelope or column:partition, each with :name behind it "+
		"if it is to be called otherwise; cannot read %q", entry)
	if len(parts) < 2 || len(parts) > 3 || identifierFault(parts[0]) != nil || parts[len(parts)-1] == "" {
		return "", placement, wrong
	}
	placement.Name = parts[len(parts)-1]
	if len(parts) == 2 {
		placement.Name = parts[0]
	}
	switch strings.ToLower(parts[1]) {
	case "header":
		placement.Place = sink.InHeader
	case "envelope":
		placement.Place = sink.InEnvelope
	case "partition":
		placement.Place = sink.AsPartition
	default:
		return "", placement, wrong
	}
	return parts[0], placement, nil
}

// template is what topics are named by.
func (s *Settings) template() (*sink.Template, error) {
	t, err := sink.ParseTemplate(s.Topic.Text)
	if err != nil {
		return nil, fmt.Errorf("read the topic template: %w", err)
	}
	if s.TopicRegex.Text != "" {
		if err := t.Rewrite(s.TopicRegex.Text, s.TopicReplacement.Text); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// shape is nil when records have the columns' bytes and nothing else.
func (s *Settings) shape() *sink.Shape {
	shape := &sink.Shape{
		Key: format(s.KeyFormat.Text), Value: format(s.ValueFormat.Text),
		Tombstones: s.TombstoneOnEmpty.Value,
		Additional: s.AdditionalColumns.Placements, SchemaPrefix: s.SchemaPrefix.Text,
	}
	if s.ExpandJSON.Value {
		shape.Expand = &connect.Expansion{Nulls: s.ExpandNulls.Value, EmptyArrays: s.ExpandEmptyArrays.Value}
	}
	if shape.Key == sink.Raw && shape.Value == sink.Raw && !shape.Tombstones && len(shape.Additional) == 0 {
		return nil
	}
	return shape
}

func format(name string) sink.Format {
	switch name {
	case "json":
		return sink.JSON
	case "json-schema":
		return sink.JSONSchema
	default:
		return sink.Raw
	}
}

// described says that what is sent depends on which columns are declared NOT NULL.
func (s *Settings) described() bool {
	return format(s.KeyFormat.Text) == sink.JSONSchema || format(s.ValueFormat.Text) == sink.JSONSchema
}

// shapeRouting is the shape's part of the fingerprint, empty where it decides about nothing.
func (s *Settings) shapeRouting() (routing string) {
	if s.TopicRegex.Text != "" {
		routing += fmt.Sprintf(" regex=%q replacement=%q", s.TopicRegex.Text, s.TopicReplacement.Text)
	}
	if format(s.KeyFormat.Text) != sink.Raw {
		routing += fmt.Sprintf(" format=%q", s.KeyFormat.Text)
	}
	byPartition := func(p sink.Placement) bool { return p.Place == sink.AsPartition }
	if i := slices.IndexFunc(s.AdditionalColumns.Placements, byPartition); i >= 0 {
		routing += fmt.Sprintf(" partition=%q", s.AdditionalColumns.Columns[i])
	}
	return routing
}

func (s *Settings) checkShape(f *faults) {
	raw := s.ValueFormat.Text == "raw"
	cloud := s.cloudEvents() != nil
	for _, c := range []*Choice{&s.KeyFormat, &s.ValueFormat} {
		f.check(!cloud || format(c.Text) == sink.Raw, &c.input, "must be raw with %s=%s", s.Format.variable, s.Format.Text)
	}
	f.check(!raw || !s.ExpandJSON.Value, &s.ExpandJSON.input, "needs %s=json or json-schema", s.ValueFormat.variable)
	for _, b := range []*Bool{&s.ExpandNulls, &s.ExpandEmptyArrays} {
		f.check(!b.Value || s.ExpandJSON.Value, &b.input, "needs %s=true", s.ExpandJSON.variable)
	}
	partitions, members := 0, map[string]bool{"payload": true}
	for _, p := range s.AdditionalColumns.Placements {
		switch p.Place {
		case sink.InEnvelope:
			f.check(!raw, &s.AdditionalColumns.input, "needs %s=json or json-schema for an envelope", s.ValueFormat.variable)
			f.check(!members[p.Name], &s.AdditionalColumns.input, "must not put a second %s into the envelope", p.Name)
			members[p.Name] = true
		case sink.InHeader:
			taken := p.Name == "id" || strings.HasPrefix(p.Name, "walrelay-") ||
				p.Name == "eventType" && s.ColumnType.Text != "" ||
				p.Name == "traceparent" && s.ColumnTraceparent.Text != "" ||
				p.Name == "tracestate" && s.ColumnTracestate.Text != "" ||
				cloud && (strings.EqualFold(p.Name, "content-type") || strings.HasPrefix(strings.ToLower(p.Name), "ce_"))
			f.check(!taken, &s.AdditionalColumns.input, "must not name the header %s, which is sent already "+
				"(eventType, traceparent, tracestate: unless %s, %s, %s is empty)", p.Name,
				s.ColumnType.variable, s.ColumnTraceparent.variable, s.ColumnTracestate.variable)
		case sink.AsPartition:
			partitions++
		}
	}
	f.check(partitions <= 1, &s.AdditionalColumns.input, "must take the partition from one column")
	f.check((s.TopicRegex.Text == "") == (s.TopicReplacement.Text == ""), &s.TopicReplacement.input,
		"must be given together with %s", s.TopicRegex.variable)
	if s.TopicRegex.Text != "" {
		if _, err := s.template(); err != nil {
			f.add(&s.TopicRegex.input, "cannot be used: "+err.Error())
		}
	}
}
