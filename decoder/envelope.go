package decoder

import (
	"encoding/json"
	"unicode/utf8"
)

// MessageMapping maps logical messages of a prefix. Their content is a JSON object, the envelope, in
// UTF-8, with these members, and those that the topic template names; further ones are passed over:
//
//	id             string
//	aggregateid    string or null: the record's key
//	payload        any value: the record's value, its bytes unchanged; null is a null value
//	type           string or null; may be missing
//	headers        object or null, see ParseHeaders; may be missing
//	timestamp      string or null, RFC 3339, see ParseTimestamp; may be missing
//	aggregatetype  string, and so every other member that the template names
//
// What may be null has to be there nevertheless, so that a misspelt name is a fault and not a tombstone.
// A member that is given twice is a fault too, since readers of JSON differ in which one they take.
func MessageMapping(prefix string, route []string) *Mapping {
	return &Mapping{
		Prefix: prefix,
		ID:     "id", Key: "aggregateid", Payload: "payload",
		Type: "type", Headers: "headers", Timestamp: "timestamp",
		Route: route,
	}
}

// member is a member of the envelope that is mapped, and where it goes.
type member struct {
	name     string
	slot     slot
	required bool
	notNull  bool
	raw      bool // any value, not a string's text
	seen     bool // in the present message
}

// envelope is how the messages of one prefix become events.
type envelope struct {
	mapping *Mapping
	members []member // of the JSON envelope
	route   [][]byte // Event.Route of every message
}

func newEnvelope(m *Mapping) envelope {
	return envelope{mapping: m, members: envelopeMembers(m), route: make([][]byte, len(m.Route))}
}

func envelopeMembers(m *Mapping) []member {
	members := []member{
		{name: m.ID, slot: slotID, required: true, notNull: true},
		{name: m.Key, slot: slotKey, required: true},
		{name: m.Payload, slot: slotPayload, required: true, raw: true},
		{name: m.Type, slot: slotType},
		{name: m.Headers, slot: slotHeaders, raw: true},
		{name: m.Timestamp, slot: slotTimestamp},
	}
	for i, name := range m.Route {
		members = append(members, member{name: name, slot: slotRoute + slot(i), required: true, notNull: true})
	}
	return members
}

// mapEnvelope reads the content of a message into the event. Nothing in it is an error of the stream.
func (d *Decoder) mapEnvelope(e *envelope, content []byte) {
	clear(e.route)
	if e.mapping.Binary {
		d.mapBinary(e, content)
	} else {
		d.mapMembers(e, content)
	}
	if d.event.Fault != nil {
		d.event.Payload, d.event.Partial = content, true // no table has it, so a dead letter shall
	}
}

func (d *Decoder) mapMembers(e *envelope, content []byte) {
	for i := range e.members {
		e.members[i].seen = false
	}
	// Valid settles the grammar, so that the rest only has to find where values end. It lets any bytes
	// pass in strings; the server does not convert content to the client's encoding.
	switch {
	case !utf8.Valid(content):
		d.messageFault("", "is not UTF-8")
		return
	case !json.Valid(content):
		d.messageFault("", "is not JSON")
		return
	}
	rest := trimSpace(content)
	if rest[0] != '{' {
		d.messageFault("", "is not a JSON object")
		return
	}
	for rest = trimSpace(rest[1:]); rest[0] != '}'; {
		var key, value []byte
		key, value, rest = cutMember(rest)
		name, err := unquote(key)
		if err != nil {
			continue // half a surrogate pair: none of ours
		}
		for i := range e.members {
			if m := &e.members[i]; string(name) == m.name {
				d.mapMember(m, value)
			}
		}
	}
	for i := range e.members {
		if m := &e.members[i]; m.required && !m.seen {
			d.messageFault(m.name, "is missing")
		}
	}
}

func (d *Decoder) mapMember(m *member, value []byte) {
	if m.seen {
		d.messageFault(m.name, "is given twice")
		return
	}
	m.seen = true
	switch {
	case value[0] == 'n':
		if m.notNull {
			d.messageFault(m.name, "is null")
		}
		return
	case m.raw:
		*d.event.at(m.slot) = value
		return
	case value[0] != '"':
		d.messageFault(m.name, "is not a string")
		return
	}
	text, err := unquote(value)
	if err != nil {
		d.messageFault(m.name, "holds half of a surrogate pair")
		return
	}
	*d.event.at(m.slot) = text
}

// messageFault keeps the first fault of the event.
func (d *Decoder) messageFault(name, reason string) {
	if d.event.Fault == nil {
		d.event.Fault = &MessageError{Prefix: d.event.Mapping.Prefix, Member: name, Reason: reason}
	}
}
