package checkpoint

// Poison is an event that cannot be delivered to its topic. It carries no payload and no key.
type Poison struct {
	Seq      uint64
	Position Position
	EventID  string
	// Table is the outbox table, schema-qualified and quoted where needed.
	Table string
	// Topic is the topic that the event was meant for; empty when none could be derived.
	Topic string
	// KeyDigest and PayloadDigest are SHA-256; nil for a null key or payload.
	KeyDigest, PayloadDigest []byte
	// Size is the size in bytes of the record as it would have been produced.
	Size int
	// Reason says in one line why, without any byte of the row.
	Reason string
	Action Action
}

// Action is what was done with a poison event.
type Action string

const (
	// Stopped says: nothing was done. The sink publishes nothing further in this run; the session
	// freezes until the operator gives a verdict.
	Stopped Action = "stopped"
	// DeadLettered says: the dead-letter topic acknowledged the record.
	DeadLettered Action = "dead-lettered"
	// Skipped says: the event is dropped, as configured or as the operator said.
	Skipped Action = "skipped"
	// Unfit says: the record does not fit the dead-letter topic either. The session records it by digest
	// and row id while the row is still in its table, and freezes otherwise.
	Unfit Action = "unfit"
	// Refused says: a replay could not publish the row, and left it where it is. Its position is a RowPosition.
	Refused Action = "refused"
)

// Verdict is an operator's decision about one stuck event.
type Verdict string

const (
	// VerdictRetry tries again, after the cause was mended.
	VerdictRetry Verdict = "retry"
	// VerdictSkip drops the event.
	VerdictSkip Verdict = "skip"
	// VerdictDeadLetter sends the event to the dead-letter topic.
	VerdictDeadLetter Verdict = "dead-letter"
)

// DeadKey names the key of a dead-lettered event: later events of that key follow it when the
// sink is configured so, which keeps order within the key.
type DeadKey struct {
	Topic string
	// KeyDigest is the SHA-256 of the key's bytes.
	KeyDigest [32]byte
}

// Run is what a session hands to its sink for the time of one START_REPLICATION.
type Run struct {
	Mailbox *Mailbox
	// Verdicts holds the operator's decisions that are not yet carried out.
	Verdicts map[Position]Verdict
	// DeadKeys lists the keys whose events go to the dead-letter topic.
	DeadKeys map[DeadKey]struct{}
	// Partitions holds the counts under which the stream's epoch was recorded. A topic with
	// another count ends the run with a *PartitionsChangedError before anything is produced to it.
	Partitions map[string]int32
	// Line is what the sink's state has to agree with, in exactly-once delivery.
	Line Line
}

// PartitionsChangedError ends a run: the topic's partition count is not the recorded one. The
// session drains what is in flight, raises the epoch, records the new count and starts again.
type PartitionsChangedError struct {
	Partitions
	Recorded int32
}

func (e *PartitionsChangedError) Error() string {
	return "topic " + e.Topic + " has another number of partitions than recorded"
}
