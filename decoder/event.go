package decoder

import (
	"slices"
	"time"

	"github.com/walrelay/walrelay/checkpoint"
)

// Mapping names the columns of one outbox table, or the members of the envelope in logical messages.
// An empty name means: not mapped.
type Mapping struct {
	// Schema and Table are bare identifiers, unquoted, case as in the catalog.
	Schema, Table string
	// Prefix selects logical messages, exactly; then there is no table. See MessageMapping.
	Prefix string
	// Binary says that the content of the messages is the binary envelope, see BinaryMapping.
	Binary bool

	// ID, Key, Payload, the Route columns and those of KeyTemplate must exist in the table.
	ID, Key, Payload string
	// KeyTemplate makes the key of several columns, and Key is empty then. Nil: none. A column that is NULL there is a
	// fault: the rest would be the key of other events.
	KeyTemplate *Template
	// Type, Headers, Timestamp and the columns of the trace context are left out of the record when the table
	// lacks them.
	Type, Headers, Timestamp, TraceParent string
	// TraceState is the W3C one; SpanContext is Debezium's, see ParseProperties.
	TraceState, SpanContext string
	// Route lists the columns that the topic template names, in the template's order.
	Route []string
	// Topic is the topic template of this table, if it has one of its own: it is the sink's to render.
	Topic *Template
	// Extra lists further columns, which end up in the record as the sink decides. ExtraRequired makes a fault of one
	// that the table lacks.
	Extra         []string
	ExtraRequired bool
}

// Name is what people read: the table's name, schema-qualified, with quotes unless plain lower case, or
// "messages" and the prefix. It is not for SQL, where keywords need quotes too.
func (m *Mapping) Name() string {
	if m.Prefix != "" {
		return "messages " + quoted(m.Prefix)
	}
	return quoted(m.Schema) + "." + quoted(m.Table)
}

// Required lists the columns that the table must have.
func (m *Mapping) Required() []string {
	columns := append([]string{m.ID, m.Key, m.Payload}, m.Route...)
	columns = append(columns, m.keyParts()...)
	if m.ExtraRequired {
		columns = append(columns, m.Extra...)
	}
	return slices.DeleteFunc(columns, func(name string) bool { return name == "" }) // the key of a template
}

// Optional lists the columns that are mapped where the table has them.
func (m *Mapping) Optional() []string {
	columns := []string{m.Type, m.Headers, m.Timestamp, m.TraceParent, m.TraceState, m.SpanContext}
	if !m.ExtraRequired {
		columns = append(columns, m.Extra...)
	}
	return slices.DeleteFunc(columns, func(name string) bool { return name == "" })
}

// NotNull lists the columns that must not be NULL.
func (m *Mapping) NotNull() []string {
	return append(append([]string{m.ID}, m.Route...), m.keyParts()...)
}

// Text lists the columns that must not be of type bytea, since the record has them in the middle of a text.
func (m *Mapping) Text() []string { return slices.Concat(m.Route, m.keyParts()) }

// Fault is the fault of an event that one of its columns, or members of its envelope, is to blame for. reason is a
// predicate: "is NULL".
func (m *Mapping) Fault(part, reason string) error {
	if m.Prefix != "" {
		return &MessageError{Prefix: m.Prefix, Member: part, Reason: reason}
	}
	return &ColumnError{Table: m.Name(), Column: quoted(part), Reason: reason}
}

func (m *Mapping) keyParts() []string {
	if m.KeyTemplate == nil {
		return nil
	}
	return m.KeyTemplate.Columns()
}

// Event is one outbox insert or logical message, mapped. Its byte slices alias the decoder's input or scratch space
// and are valid until the next Decode: copy what is kept. A nil slice is SQL NULL or a column that
// is not there; an empty, non-nil slice is an empty value. Payload and Key of type bytea are its bytes; any other
// column is its text, which of bytea is hex.
type Event struct {
	Position checkpoint.Position
	// CommitTime is the transaction's commit time on the server's clock.
	CommitTime time.Time
	Mapping    *Mapping

	ID, Key, Payload                      []byte
	Type, Headers, Timestamp, TraceParent []byte
	TraceState, SpanContext               []byte
	// Route holds the values of Mapping.Route, same order.
	Route [][]byte
	// Extra holds the values of Mapping.Extra, same order; empty for messages.
	Extra [][]byte
	// Relation describes the row's table; nil for messages. One description of a table is one pointer, until the next.
	Relation *Relation

	parts [][]byte // values of the columns of Mapping.KeyTemplate

	// Marked says that the record tells its transaction and its place there. Count is set on the last event of
	// such a transaction, to the number of its events, poison included; else it is 0. The decoder knows neither.
	Marked bool
	Count  uint32

	// Fault is not nil when the row or message cannot be mapped (a required column is missing or NULL).
	// It names columns, never values; the event is subject to the poison policy. The other fields
	// hold what could be read; the payload of a message is then its whole content.
	Fault error
	// Partial says that key and payload are not those of the event, since Fault is about them, or about a message.
	Partial bool
}
