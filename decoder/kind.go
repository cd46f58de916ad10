package decoder

// Kind says what a message was, and so which accessors of the Decoder hold its content.
type Kind uint8

// The kinds of messages. Zero is none of them.
const (
	KindBegin         Kind = iota + 1 // Begin
	KindCommit                        // Commit
	KindEvent                         // Event: an insert into an outbox table (Relation), or a message
	KindForeignInsert                 // Relation: an insert into an ignored relation
	KindUpdate                        // Relation
	KindDelete                        // Relation
	KindTruncate                      // no content
	KindRelation                      // Relation
	KindType                          // no content
	KindOrigin                        // no content
	KindMessage                       // Message: its prefix is not that of events
	KindStrayMessage                  // Message: its prefix is, but it is not transactional
)

// String returns the kind in lower case, as a metric's label has it.
func (k Kind) String() string {
	switch k {
	case KindBegin:
		return "begin"
	case KindCommit:
		return "commit"
	case KindEvent:
		return "event"
	case KindForeignInsert:
		return "insert"
	case KindUpdate:
		return "update"
	case KindDelete:
		return "delete"
	case KindTruncate:
		return "truncate"
	case KindRelation:
		return "relation"
	case KindType:
		return "type"
	case KindOrigin:
		return "origin"
	case KindMessage:
		return "message"
	case KindStrayMessage:
		return "stray-message"
	}
	return "unknown"
}
