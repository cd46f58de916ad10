package decoder

import (
	"encoding/hex"
	"math"
	"slices"
)

// The ways in which a tuple holds a column, see TupleData in the message formats.
const (
	valueText      = 't'
	valueNull      = 'n'
	valueUnchanged = 'u' // a TOASTed value that an update left alone
	valueBinary    = 'b' // only when the option binary is set
)

func (d *Decoder) decodeInsert(r *reader) Kind {
	rel := d.change(r)
	if rel == nil {
		return 0
	}
	if r.byte() != 'N' {
		r.fail(r.off-1, "insert without a new tuple")
		return 0
	}
	switch {
	case rel.ignored:
		skipTuple(r, rel)
		return KindForeignInsert
	case rel.Mapping == nil:
		r.fail(1, "insert into "+rel.name()+", which is neither an outbox table nor ignored")
		return 0
	}
	if !d.newEvent(r, rel.Mapping, rel.route) {
		return 0
	}
	d.event.Extra, d.event.Relation = rel.extra, &rel.Relation
	d.event.Fault, d.event.Partial, d.event.parts = rel.fault, rel.partial, rel.parts
	d.mapTuple(r, rel)
	d.composeKey()
	return KindEvent
}

// newEvent begins the transaction's next event. It reports whether there is a position for it.
func (d *Decoder) newEvent(r *reader, m *Mapping, route [][]byte) bool {
	if d.next.Index == math.MaxUint32 {
		r.fail(0, "transaction has more events than positions can count")
		return false
	}
	d.event = Event{Position: d.next, CommitTime: d.begin.CommitTime, Mapping: m, Route: route}
	d.next.Index++
	return true
}

// decodeUpdate reads the row before, of which the server sends the key or all or nothing, and the
// row after. An outbox row that is changed later has been an event already.
func (d *Decoder) decodeUpdate(r *reader) Kind {
	rel := d.change(r)
	if rel == nil {
		return 0
	}
	part := r.byte()
	if part == 'K' || part == 'O' {
		skipTuple(r, rel)
		part = r.byte()
	}
	if part != 'N' {
		r.fail(r.off-1, "update without a new tuple")
		return 0
	}
	skipTuple(r, rel)
	return KindUpdate
}

func (d *Decoder) decodeDelete(r *reader) Kind {
	rel := d.change(r)
	if rel == nil {
		return 0
	}
	if part := r.byte(); part != 'K' && part != 'O' {
		r.fail(r.off-1, "delete without an old tuple")
		return 0
	}
	skipTuple(r, rel)
	return KindDelete
}

func (d *Decoder) decodeTruncate(r *reader) Kind {
	if !d.inside(r) {
		return 0
	}
	relations := r.uint32()
	r.byte() // options: cascade, restart identity
	for range r.count(relations, 4) {
		if d.relation(r) == nil {
			return 0
		}
	}
	return KindTruncate
}

// change reads what inserts, updates and deletes begin with. It returns nil after a failure.
func (d *Decoder) change(r *reader) *relation {
	if !d.inside(r) {
		return nil
	}
	rel := d.relation(r)
	if rel != nil {
		d.current = rel
	}
	return rel
}

// tupleColumns reads the number of columns, which is the relation's in every tuple, old keys too.
func tupleColumns(r *reader, rel *relation) int {
	at := r.off
	n := int(r.uint16())
	if r.err == nil && n != len(rel.Columns) {
		r.fail(at, "tuple and description of "+rel.name()+" differ in their number of columns")
		return 0
	}
	return n
}

// column reads one column: how it is held, and the text if it is held as such.
func (r *reader) column() (held byte, text []byte) {
	held = r.byte()
	switch held {
	case valueText:
		return held, r.value()
	case valueNull, valueUnchanged:
	case valueBinary:
		r.fail(r.off-1, "binary column value, which was not asked for")
	default:
		r.fail(r.off-1, "unknown kind of column value")
	}
	return held, nil
}

func skipTuple(r *reader, rel *relation) {
	for range tupleColumns(r, rel) {
		r.column()
	}
}

// mapTuple reads a row into the event: the fields are sorted by column, so both advance together.
func (d *Decoder) mapTuple(r *reader, rel *relation) {
	fields := rel.fields
	for i := range tupleColumns(r, rel) {
		held, text := r.column()
		for len(fields) > 0 && fields[0].column == i {
			d.mapColumn(rel, fields[0], held, text)
			fields = fields[1:]
		}
	}
}

func (d *Decoder) mapColumn(rel *relation, f field, held byte, text []byte) {
	*d.event.at(f.slot) = text
	switch {
	case held == valueUnchanged:
		d.fault(rel, f, "was sent as unchanged in an insert")
	case held == valueNull && f.notNull:
		d.fault(rel, f, "is NULL")
	case held == valueText && f.bytea:
		d.mapBytea(rel, f, text)
	}
}

// mapBytea decodes the hex format. The escape format is told apart with certainty: it doubles a
// backslash, so it never begins with \x. A value that is not hex is left in the event as it came.
func (d *Decoder) mapBytea(rel *relation, f field, text []byte) {
	if len(text) < 2 || text[0] != '\\' || text[1] != 'x' {
		d.fault(rel, f, "is not in hex format: bytea_output must be hex")
		return
	}
	scratch := &d.scratch
	if f.slot == slotKey {
		scratch = &d.key
	}
	n := hex.DecodedLen(len(text) - 2)
	if *scratch == nil || cap(*scratch) < n || cap(*scratch) > scratchKept {
		*scratch = make([]byte, n)
	}
	value := (*scratch)[:n:n]
	if _, err := hex.Decode(value, text[2:]); err != nil {
		d.fault(rel, f, "is not valid hex") // the error quotes the value
		return
	}
	*d.event.at(f.slot) = value
}

// composeKey makes the key of its parts, if all are there.
func (d *Decoder) composeKey() {
	m := d.event.Mapping
	if m.KeyTemplate == nil || slices.ContainsFunc(d.event.parts, func(part []byte) bool { return part == nil }) {
		return
	}
	if d.key == nil || cap(d.key) > scratchKept {
		d.key = []byte{} // an empty key is none that is NULL
	}
	d.key = m.KeyTemplate.Append(d.key[:0], d.event.parts)
	d.event.Key = d.key
}

// fault keeps the first fault of the event.
func (d *Decoder) fault(rel *relation, f field, reason string) {
	d.event.Partial = d.event.Partial || f.slot.isContent()
	if d.event.Fault == nil {
		d.event.Fault = &ColumnError{Table: rel.name(), Column: quoted(rel.Columns[f.column].Name), Reason: reason}
	}
}

func (ev *Event) at(s slot) *[]byte {
	switch s {
	case slotID:
		return &ev.ID
	case slotKey:
		return &ev.Key
	case slotPayload:
		return &ev.Payload
	case slotType:
		return &ev.Type
	case slotHeaders:
		return &ev.Headers
	case slotTimestamp:
		return &ev.Timestamp
	case slotTraceParent:
		return &ev.TraceParent
	case slotTraceState:
		return &ev.TraceState
	case slotSpanContext:
		return &ev.SpanContext
	default:
		if s >= slotKeyPart {
			return &ev.parts[s-slotKeyPart]
		}
		if i := int(s - slotRoute); i < len(ev.Route) {
			return &ev.Route[i]
		}
		return &ev.Extra[int(s-slotRoute)-len(ev.Route)]
	}
}
