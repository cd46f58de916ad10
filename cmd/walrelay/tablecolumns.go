package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/walrelay/walrelay/decoder"
)

// TableColumns is what tables have in place of the columns that WALRELAY_COLUMN_… name, table after table, separated
// by semicolons, and templates of their own: audit.events: id=no, key=subject, {aggregatetype}=kind; "Other": topic=o.
type TableColumns struct {
	input
	tables map[Table]map[string]string // by table, the column by its part
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *TableColumns) UnmarshalText(b []byte) error {
	t.raw = string(b)
	if t.raw != "" {
		t.tables, t.err = parseTableColumns(t.raw)
	}
	return nil
}

func parseTableColumns(text string) (map[Table]map[string]string, error) {
	tables := map[Table]map[string]string{}
	for rest := text; ; {
		table, tail, err := parseTable(rest)
		switch {
		case err != nil:
			return nil, err
		case !strings.HasPrefix(tail, ":"):
			return nil, fmt.Errorf("must list table: part=column, ...; and so on; cannot read %q", tail)
		case tables[table] != nil:
			return nil, fmt.Errorf("must name a table once, but %q.%q comes twice", table.Schema, table.Name)
		}
		pairs, after, more := strings.Cut(tail[1:], ";")
		columns := map[string]string{}
		for pair := range strings.SplitSeq(pairs, ",") {
			part, column, found := strings.Cut(strings.TrimSpace(pair), "=")
			part = strings.TrimSpace(part)
			if _, twice := columns[part]; !found || twice {
				return nil, fmt.Errorf("must list part=column, each part once; cannot read %q", strings.TrimSpace(pair))
			}
			columns[part] = strings.TrimSpace(column)
		}
		tables[table] = columns
		if !more {
			return tables, nil
		}
		rest = after
	}
}

// partRetention is a column that is no part of an event, in place of WALRELAY_RETENTION_COLUMN.
const partRetention = "retention"

// The parts that are templates and no columns.
const (
	partKeyTemplate = "key_template" // in place of WALRELAY_KEY_TEMPLATE
	partTopic       = "topic"        // in place of WALRELAY_TOPIC
)

// columnParts lists what of an event a column can be named for.
func columnParts(m *decoder.Mapping) map[string]*string {
	return map[string]*string{
		"id": &m.ID, "key": &m.Key, "payload": &m.Payload, "type": &m.Type, "headers": &m.Headers,
		"timestamp": &m.Timestamp, "traceparent": &m.TraceParent, "tracestate": &m.TraceState,
		"tracingspancontext": &m.SpanContext,
	}
}

// apply gives a mapping its table's own columns.
func (t *TableColumns) apply(m *decoder.Mapping) {
	columns := t.tables[Table{m.Schema, m.Table}]
	if columns == nil {
		return
	}
	if _, own := columns["key"]; own {
		m.KeyTemplate = nil
	}
	for part, to := range columnParts(m) {
		if column, own := columns[part]; own {
			*to = column
		}
	}
	if template, own := columns[partKeyTemplate]; own {
		setKeyTemplate(m, template)
	}
	if template, own := columns[partTopic]; own {
		setTopic(m, template)
		return
	}
	m.Route = slices.Clone(m.Route)
	for i, name := range m.Route {
		if column, own := columns["{"+name+"}"]; own {
			m.Route[i] = column
		}
	}
}

func (s *Settings) checkTableColumns(f *faults, route []string) {
	in := &s.TableColumns.input
	for table, columns := range s.TableColumns.tables {
		f.check(slices.Contains(s.Tables.Tables, table), in, "has %q.%q, which is none of %s", table.Schema, table.Name,
			s.Tables.variable)
		fields := route
		if topic, own := columns[partTopic]; own {
			fields = nil
			for _, taken := range []*Text{&s.DeadLetterTopic, &s.StateTopic} {
				f.check(topic != taken.Text, in, "topic of %q.%q must not be %s", table.Schema, table.Name, taken.variable)
			}
		}
		_, key := columns["key"]
		_, composed := columns[partKeyTemplate]
		f.check(!key || !composed, in, "must not have both key and %s for a table", partKeyTemplate)
		for _, part := range slices.Sorted(maps.Keys(columns)) {
			if err := s.partFault(part, columns[part], fields); err != nil {
				f.add(in, err.Error())
			}
		}
	}
}

func (s *Settings) partFault(part, value string, route []string) error {
	var fault string
	switch part {
	case partTopic:
		fault = topicFault(value)
	case partKeyTemplate:
		fault = keyFault(value)
	default:
		return s.columnFault(part, value, route)
	}
	if fault != "" {
		return fmt.Errorf("%s %s", part, fault)
	}
	return nil
}

func (s *Settings) columnFault(part, column string, route []string) error {
	_, known := columnParts(new(decoder.Mapping))[part]
	field := slices.ContainsFunc(route, func(name string) bool { return part == "{"+name+"}" })
	switch {
	case !known && !field && part != partRetention:
		return fmt.Errorf("must name parts of an event (id, key, payload, type, headers, timestamp, traceparent, "+
			"tracestate, tracingspancontext), retention, key_template, topic, or, without a topic, fields of %s in braces, "+
			"not %q",
			s.Topic.variable, part)
	case column == "" && (field || part == partRetention || part == "id" || part == "key" || part == "payload"):
		return fmt.Errorf("must name a column for %s", part)
	case column == "":
		return nil
	case strings.HasPrefix(column, `"`):
		return errors.New("must have columns without quotes, in the catalog's case")
	}
	return identifierFault(column)
}

// text is what the setting says of events, in an order that does not depend on how it was written.
func (t *TableColumns) text() string {
	var parts []string
	for table, columns := range t.tables {
		for _, part := range slices.Sorted(maps.Keys(columns)) {
			if part == partRetention {
				continue
			}
			parts = append(parts, fmt.Sprintf("%q.%q:%s=%q", table.Schema, table.Name, part, columns[part]))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
