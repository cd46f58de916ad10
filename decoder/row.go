package decoder

// Rows maps rows that a query has read from an outbox table, where Decoder maps inserts from the log:
// the same row becomes the same event either way, but for Position and CommitTime, which are zero. It
// is not safe for concurrent use.
type Rows struct {
	decoder  Decoder
	relation relation
}

// NewRows returns a mapper of rows that have these columns, in this order. The mapping is not copied.
func NewRows(m *Mapping, columns []Column) *Rows {
	r := &Rows{relation: relation{Relation: Relation{Schema: m.Schema, Table: m.Table, Columns: columns}}}
	r.relation.bind(m)
	return r
}

// Event maps one row, its values in text format as the session settings of replication print them, nil
// for NULL. The event aliases values and scratch space, and is valid until the next call. There must be
// one value for each column.
func (r *Rows) Event(values [][]byte) *Event {
	rel, ev := &r.relation, &r.decoder.event
	*ev = Event{
		Mapping: rel.Mapping, Route: rel.route, Extra: rel.extra, Relation: &rel.Relation, parts: rel.parts,
		Fault: rel.fault, Partial: rel.partial,
	}
	for _, f := range rel.fields {
		held := byte(valueText)
		if values[f.column] == nil {
			held = valueNull
		}
		r.decoder.mapColumn(rel, f, held, values[f.column])
	}
	r.decoder.composeKey()
	return ev
}
