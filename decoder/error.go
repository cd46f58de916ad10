package decoder

import "fmt"

// Error says why a message cannot be decoded: malformed bytes, or a message that cannot come at this
// point of the stream. It holds no bytes of rows.
type Error struct {
	// Message is the message's type byte; 0 when there was none.
	Message byte
	// Offset counts bytes from the message's type byte.
	Offset int
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("decode message %q at byte %d: %s", e.Message, e.Offset, e.Reason)
}

// ColumnError is the fault of an event: its row cannot be mapped. It holds no value of the row.
type ColumnError struct {
	// Table is schema-qualified; names are quoted unless they are plain lower case.
	Table  string
	Column string
	// Reason is a predicate: "is NULL".
	Reason string
}

func (e *ColumnError) Error() string { return "column " + e.Column + " of " + e.Table + " " + e.Reason }

// MessageError is the fault of an event that came as a logical message. It holds no part of the content.
type MessageError struct {
	Prefix string
	// Member is the envelope's; empty when the content as a whole is at fault.
	Member string
	// Reason is a predicate: "is missing".
	Reason string
}

func (e *MessageError) Error() string {
	if e.Member == "" {
		return "the content of a message " + quoted(e.Prefix) + " " + e.Reason
	}
	return "member " + quoted(e.Member) + " of a message " + quoted(e.Prefix) + " " + e.Reason
}
