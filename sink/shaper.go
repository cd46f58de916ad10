package sink

import (
	"bytes"
	"slices"

	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/sink/connect"
)

// shaper gives records their shape. What it makes is valid until the next event.
type shaper struct {
	Shape
	envelope bool

	// What is known of the columns of one table, by its last description, or of the messages of one prefix.
	mapping      *decoder.Mapping
	relation     *decoder.Relation // nil for messages
	key, payload column
	extra        []column

	keyText, value, schemas []byte
}

// column is how a column's values are written.
type column struct {
	name     string
	kind     connect.Type
	optional bool
	present  bool
}

func newShaper(s *Shape) *shaper {
	if s == nil {
		return nil
	}
	return &shaper{Shape: *s, envelope: s.enveloped()}
}

// describeMessages is for what comes without a table.
func (s *shaper) describeMessages(m *decoder.Mapping) {
	s.key = column{name: m.Key, optional: true, present: true}
	s.payload = column{name: m.Payload, kind: connect.Type{Kind: connect.JSON}, optional: true, present: true}
	if m.Binary {
		s.payload.kind.Kind = connect.Bytes
	}
}

// describe looks the columns of an event's table up, once for each description of it.
func (s *shaper) describe(ev *decoder.Event) {
	if s.mapping == ev.Mapping && s.relation == ev.Relation {
		return
	}
	s.mapping, s.relation, s.extra = ev.Mapping, ev.Relation, s.extra[:0]
	if s.relation == nil {
		s.describeMessages(s.mapping)
		return
	}
	find := func(name string) column {
		i := slices.IndexFunc(s.relation.Columns, func(c decoder.Column) bool { return c.Name == name })
		if i < 0 {
			return column{name: name}
		}
		c := s.relation.Columns[i]
		return column{name: name, kind: connect.TypeOf(c.Type, c.Modifier), optional: !c.NotNull, present: true}
	}
	s.key, s.payload = find(s.mapping.Key), find(s.mapping.Payload)
	if template := s.mapping.KeyTemplate; template != nil {
		s.key.name = template.String() // a fault tells it
	}
	for _, name := range s.mapping.Extra {
		s.extra = append(s.extra, find(name))
	}
}

// apply gives a record its shape, or says why it cannot. Headers are appended to headers. What was read
// from a dead letter has its shape already.
func (s *shaper) apply(ev *decoder.Event, e *entry, c *content, headers []byte) (out []byte, fault string) {
	if fromLetter(ev) {
		return headers, ""
	}
	s.describe(ev)
	if s.Key != Raw {
		var err error
		if s.keyText, err = s.appendKey(s.keyText[:0], c.key); err != nil {
			return headers, reason(ev, s.key, err)
		}
		c.key = s.keyText
	}
	headers, fault = s.place(ev, e, headers)
	if fault != "" {
		return headers, fault
	}
	blank := c.value == nil || s.payload.kind.Kind != connect.Bytes && javaBlank(c.value)
	switch {
	case blank && s.Tombstones:
		c.value = nil
	case s.Value != Raw:
		if fault = s.appendValue(ev); fault != "" {
			return headers, fault
		}
		c.value = s.value
	}
	return headers, ""
}

// fromLetter says that an event was read from a dead letter.
func fromLetter(ev *decoder.Event) bool { return ev.Relation == nil && ev.Mapping.Prefix == "" }

// keyOf is the key in its format, or as it came if it has none or may itself be at fault.
func (s *shaper) keyOf(ev *decoder.Event) []byte {
	if s.Key == Raw || ev.Partial || fromLetter(ev) {
		return ev.Key
	}
	s.describe(ev)
	var err error
	if s.keyText, err = s.appendKey(s.keyText[:0], ev.Key); err != nil {
		return ev.Key
	}
	return s.keyText
}

func reason(ev *decoder.Event, c column, err error) string {
	return ev.Mapping.Fault(c.name, err.Error()).Error()
}

// javaBlank says that Java's String.trim leaves nothing of text.
func javaBlank(text []byte) bool {
	return !bytes.ContainsFunc(text, func(r rune) bool { return r > ' ' })
}

func (s *shaper) appendKey(dst, text []byte) ([]byte, error) {
	if s.Key == JSON {
		return s.key.kind.AppendJSON(dst, text, true)
	}
	dst = s.key.kind.AppendSchema(append(dst, `{"schema":`...), s.key.optional)
	dst, err := s.key.kind.AppendJSON(append(dst, `},"payload":`...), text, true)
	return append(dst, '}'), err
}

// place puts the additional columns into headers, and takes the partition. Those of the envelope come with the value.
func (s *shaper) place(ev *decoder.Event, e *entry, headers []byte) ([]byte, string) {
	for i, column := range s.extra {
		p, text := s.Additional[i], ev.Extra[i]
		switch {
		case !column.present:
		case p.Place == InHeader && column.kind.IsNull(text):
			headers = appendHeader(headers, []byte(p.Name), nil)
		case p.Place == InHeader:
			value, err := column.kind.AppendText([]byte{}, text, false) // which is null only if text is
			if err != nil {
				return headers, reason(ev, column, err)
			}
			headers = appendHeader(headers, []byte(p.Name), value)
		case p.Place == AsPartition && text != nil:
			n, err := parsePartition(text)
			if err != nil {
				return headers, reason(ev, column, err)
			}
			e.partition = n + 1
		}
	}
	return headers, ""
}

// appendValue makes the value, and the schema in front of it.
func (s *shaper) appendValue(ev *decoder.Event) string {
	s.schemas, s.value = s.schemas[:0], s.value[:0]
	if s.envelope {
		s.schemas = append(s.schemas, `{"type":"struct","fields":[`...)
		s.value = append(s.value, `{"payload":`...)
	}
	if err := s.appendPayload(ev.Payload); err != nil {
		return reason(ev, s.payload, err)
	}
	if s.envelope {
		if fault := s.appendEnvelope(ev); fault != "" {
			return fault
		}
	}
	if s.Value == JSONSchema {
		s.schemas = append(append(append(s.schemas, `},"payload":`...), s.value...), '}')
		s.value = append(append(s.value[:0], `{"schema":`...), s.schemas...)
	}
	return ""
}

func (s *shaper) appendPayload(text []byte) error {
	if s.Expand != nil && s.payload.kind.IsString() {
		expand := s.Expand.Append
		if s.relation == nil { // the envelope of a message holds its payload as JSON, of any kind
			expand = s.Expand.AppendAny
		}
		var expanded bool
		if s.schemas, s.value, expanded = expand(s.schemas, s.value, text, s.payload.name); expanded {
			return nil
		}
	}
	var err error
	s.schemas = s.payload.kind.AppendSchema(s.schemas, s.payload.optional)
	s.value, err = s.payload.kind.AppendJSON(s.value, text, true)
	return err
}

func (s *shaper) appendEnvelope(ev *decoder.Event) string {
	s.schemas = append(s.schemas, `,"field":"payload"}`...)
	for i, column := range s.extra {
		p := s.Additional[i]
		if p.Place != InEnvelope || !column.present {
			continue
		}
		s.schemas = column.kind.AppendSchema(append(s.schemas, ','), column.optional)
		s.schemas = append(connect.AppendString(append(s.schemas, `,"field":`...), []byte(p.Name)), '}')
		s.value = append(connect.AppendString(append(s.value, ','), []byte(p.Name)), ':')
		var err error
		if s.value, err = column.kind.AppendJSON(s.value, ev.Extra[i], false); err != nil {
			return reason(ev, column, err)
		}
	}
	s.value = append(s.value, '}')
	name := ""
	if s.relation != nil {
		name = s.SchemaPrefix + "." + s.relation.Schema + "." + s.relation.Table + "."
	}
	if len(ev.Route) > 0 {
		name += string(ev.Route[0]) + "."
	}
	s.schemas = append(s.schemas, `],"optional":false,"name":`...)
	s.schemas = connect.AppendString(s.schemas, []byte(name+"Value"))
	return ""
}
