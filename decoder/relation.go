package decoder

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Relation is a table as the server describes it before its first change, and again after each
// change of its schema, also in mid-transaction. Every description is a new Relation.
type Relation struct {
	OID           uint32
	Schema, Table string
	Columns       []Column
	// Mapping is nil unless the relation is a configured table or was bound to one.
	Mapping *Mapping
}

// Column is a column of a Relation. Dropped and unpublished columns are not among them.
type Column struct {
	Name string
	// Type is the OID of the column's type; for a domain over bytea, json, jsonb, uuid, bool, an integer, a floating-point
	// number, a date or a timestamp, that type's.
	Type uint32
	// Modifier is what the type was declared with: digits, length; -1 for nothing.
	Modifier int32
	// NotNull says that the column is declared so. The log does not tell: whoever needs it sets it.
	NotNull bool
}

// relation is a Relation and how its rows become events.
type relation struct {
	Relation
	ignored bool

	fields []field  // in column order
	route  [][]byte // Event.Route of every event of this relation: each row writes all that are there
	parts  [][]byte // Event.parts, likewise
	extra  [][]byte // Event.Extra, likewise

	fault   error // a required column is missing, or cannot be what it is mapped to
	partial bool  // and the key or the payload is made of it
}

// field is a column that is mapped, and where it goes. A column may have several.
type field struct {
	column  int
	slot    slot
	notNull bool
	bytea   bool // hex text to be decoded
}

// slot is a destination in Event; those from slotRoute on are the elements of Event.Route, behind them those of
// Event.Extra, and those from slotKeyPart on, which is out of their reach, the elements of Event.parts.
type slot int

const (
	slotID slot = iota
	slotKey
	slotPayload
	slotType
	slotHeaders
	slotTimestamp
	slotTraceParent
	slotTraceState
	slotSpanContext
	slotRoute
	slotKeyPart slot = 1 << 24
)

// isContent says that key or payload are made of it.
func (s slot) isContent() bool { return s == slotKey || s == slotPayload || s >= slotKeyPart }

// Bind says that inserts into the relation are events, as for a partition of an outbox table.
// It holds until the relation is described again.
func (d *Decoder) Bind(oid uint32, m *Mapping) error {
	rel, ok := d.relations[oid]
	if !ok {
		return fmt.Errorf("bind relation %d: not described", oid)
	}
	rel.ignored = false
	rel.bind(m)
	return nil
}

// Ignore says that inserts into the relation are none of ours. It holds until the relation is
// described again.
func (d *Decoder) Ignore(oid uint32) error {
	rel, ok := d.relations[oid]
	if !ok {
		return fmt.Errorf("ignore relation %d: not described", oid)
	}
	rel.ignored = true
	rel.Mapping = nil
	return nil
}

// decodeRelation starts from nothing each time: columns may have moved, and a table may have been
// renamed, attached or detached, since the OID was last described.
func (d *Decoder) decodeRelation(r *reader) Kind {
	rel := &relation{Relation: Relation{OID: r.uint32(), Schema: r.string(), Table: r.string()}}
	if rel.Schema == "" {
		rel.Schema = "pg_catalog" // sent as an empty string
	}
	r.byte()                                  // replica identity
	n := r.count(uint32(r.uint16()), 1+1+4+4) // flags, empty name, type, modifier
	rel.Columns = make([]Column, n)
	for i := range rel.Columns {
		r.byte() // flags: part of the replica identity
		rel.Columns[i] = Column{Name: r.string(), Type: d.baseType(r.uint32()), Modifier: int32(r.uint32())}
	}
	if r.err != nil {
		return 0
	}
	for i := range d.cfg.Mappings {
		if m := &d.cfg.Mappings[i]; m.Schema == rel.Schema && m.Table == rel.Table {
			rel.bind(m)
			break
		}
	}
	d.relations[rel.OID] = rel
	d.last, d.current = rel, rel
	return KindRelation
}

// relation reads an OID and returns what it stands for, nil after a failure.
func (d *Decoder) relation(r *reader) *relation {
	oid := r.uint32()
	if r.err != nil {
		return nil
	}
	if d.last == nil || d.last.OID != oid {
		rel, ok := d.relations[oid]
		if !ok {
			r.fail(r.off-4, "relation "+strconv.FormatUint(uint64(oid), 10)+" was never described")
			return nil
		}
		d.last = rel
	}
	return d.last
}

// bind works out where the columns go, by name.
func (rel *relation) bind(m *Mapping) {
	rel.Mapping = m
	rel.fields, rel.fault, rel.partial = nil, nil, false
	rel.route = make([][]byte, len(m.Route))

	const required, notNull = true, true
	rel.add(m.ID, slotID, required, notNull)
	rel.add(m.Key, slotKey, required, !notNull)
	rel.add(m.Payload, slotPayload, required, !notNull)
	for i, name := range m.Route {
		rel.add(name, slotRoute+slot(i), required, notNull)
		rel.text(name, slotRoute, "is of type bytea, and a part of a topic must be text")
	}
	rel.add(m.Type, slotType, !required, !notNull)
	rel.add(m.Headers, slotHeaders, !required, !notNull)
	rel.add(m.Timestamp, slotTimestamp, !required, !notNull)
	rel.add(m.TraceParent, slotTraceParent, !required, !notNull)
	rel.add(m.TraceState, slotTraceState, !required, !notNull)
	rel.add(m.SpanContext, slotSpanContext, !required, !notNull)
	rel.addKeyParts(m)
	rel.extra = make([][]byte, len(m.Extra))
	for i, name := range m.Extra {
		rel.add(name, slotRoute+slot(len(m.Route)+i), m.ExtraRequired, !notNull)
	}
	slices.SortStableFunc(rel.fields, func(a, b field) int { return a.column - b.column })
}

func (rel *relation) addKeyParts(m *Mapping) {
	rel.parts = nil
	columns := m.keyParts()
	if len(columns) > 0 {
		rel.parts = make([][]byte, len(columns))
	}
	for i, name := range columns {
		rel.add(name, slotKeyPart+slot(i), true, true)
		rel.text(name, slotKeyPart, "is of type bytea, and a part of a key must be text")
	}
}

// text makes a fault of a column of Mapping.Text that is none.
func (rel *relation) text(name string, to slot, reason string) {
	if slices.ContainsFunc(rel.Columns, func(c Column) bool { return c.Name == name && c.Type == byteaOID }) {
		rel.blame(name, to, reason)
	}
}

// blame keeps the first fault of the relation.
func (rel *relation) blame(name string, to slot, reason string) {
	rel.partial = rel.partial || to.isContent()
	if rel.fault == nil {
		rel.fault = &ColumnError{Table: rel.name(), Column: quoted(name), Reason: reason}
	}
}

func (rel *relation) add(name string, to slot, required, notNull bool) {
	if name == "" {
		return
	}
	i := slices.IndexFunc(rel.Columns, func(c Column) bool { return c.Name == name })
	switch {
	case i >= 0:
		rel.fields = append(rel.fields, field{
			column:  i,
			slot:    to,
			notNull: notNull,
			bytea:   (to == slotPayload || to == slotKey) && rel.Columns[i].Type == byteaOID,
		})
	case required:
		rel.blame(name, to, "is missing")
	}
}

// name returns the qualified name for a message.
func (rel *relation) name() string { return quoted(rel.Schema) + "." + quoted(rel.Table) }

// quoted quotes an identifier that is not plain lower case. It is for messages, not for SQL, where
// keywords need quotes too.
func quoted(name string) string {
	plain := name != "" && (name[0] < '0' || name[0] > '9')
	for _, c := range name {
		plain = plain && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_')
	}
	if plain {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}
