package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/walrelay/walrelay/kit/tx"
)

// Outcome says what became of a message.
type Outcome int

const (
	// Undone comes with every error: nothing is known to be committed, deliver the message again.
	Undone Outcome = iota
	// Applied says that the message was new; its effect is in the transaction.
	Applied
	// Duplicate says that the message was applied before; nothing was done now.
	Duplicate
	// Parked says that the message failed too often: it is kept in walrelay_kit.inbox_attempts, go on with the next.
	Parked
)

// String returns the outcome's name.
func (o Outcome) String() string {
	switch o {
	case Applied:
		return "applied"
	case Duplicate:
		return "duplicate"
	case Parked:
		return "parked"
	case Undone:
		return "undone"
	}
	return fmt.Sprintf("outcome %d", int(o))
}

// Message identifies a delivery. Consumer and ID are always required; each Recorder says what else.
type Message struct {
	// Consumer is who applies the message, such as "billing". Another consumer applies it again.
	Consumer string
	// ID is the same in every delivery: walrelay's header id, or the provider's event id.
	ID string
	// Stream and Position are the headers walrelay-stream and walrelay-position, Topic and Partition
	// where the record was read. For HighWater.
	Stream    string
	Topic     string
	Partition int32
	Position  Position
	// Time is one that the message carries itself, so that it is the same in every delivery: the header
	// walrelay-commit-time, or the provider's time of creation. Never the time of arrival. For Partitions.
	Time time.Time
	// Digest identifies the body: where both deliveries have one, a difference is ErrBodyChanged. Webhook sets it.
	Digest []byte
	// Body is what Parking keeps of a message that it parks, for Retry.
	Body []byte
}

// Effect is the consumer's own work. All of it that has to happen once belongs into t; what it does
// elsewhere (a call to another service) may happen again, since a transaction that does not commit is
// run again. It must not keep t, commit it or roll it back.
type Effect func(ctx context.Context, t tx.Tx) error

// Recorder remembers messages: Table, Partitions, HighWater, or a RecorderFunc around a business row.
type Recorder interface {
	// Record notes m within t and returns Applied when it is new, Duplicate when it was noted before. While
	// another transaction that notes the same message is open, it waits for how that ends. After an
	// error t has to be rolled back.
	Record(ctx context.Context, t tx.Tx, m Message) (Outcome, error)
}

// RecorderFunc lets the business row itself be the record, with Unique, Affected or Transition.
type RecorderFunc func(ctx context.Context, t tx.Tx, m Message) (Outcome, error)

// Record implements Recorder.
func (f RecorderFunc) Record(ctx context.Context, t tx.Tx, m Message) (Outcome, error) {
	return f(ctx, t, m)
}

var (
	// ErrIncomplete is returned for a message that lacks what its Recorder needs.
	ErrIncomplete = errors.New("incomplete message")
	// ErrBodyChanged is returned when a message's id is known with another body. Whoever sent it uses an
	// id twice, or forges; the message cannot be applied and must not be taken for a repetition.
	ErrBodyChanged = errors.New("same message id with another body")
)

// Once notes m within the caller's transaction and runs effect when it is new. The caller commits. After
// an error it has to roll back: the record without its effect would lose the message.
func Once(ctx context.Context, t tx.Tx, r Recorder, m Message, effect Effect) (Outcome, error) {
	if m.Consumer == "" || m.ID == "" {
		return Undone, fmt.Errorf("consumer and id are required: %w", ErrIncomplete)
	}
	outcome, err := r.Record(ctx, t, m)
	if err != nil {
		return Undone, fmt.Errorf("record message: %w", err)
	}
	if outcome != Applied {
		return outcome, nil
	}
	if err := effect(ctx, t); err != nil {
		return Undone, fmt.Errorf("apply message: %w", err)
	}
	return Applied, nil
}

// Do is Once in a transaction of its own, of the session's default isolation level. It runs the
// transaction again, effect included, when the server ended it for the sake of another (a
// serialization failure or a deadlock). After any error deliver the message again, also when the
// answer to COMMIT was lost: if it did commit, that delivery is a Duplicate.
func Do(ctx context.Context, db DB, r Recorder, m Message, effect Effect) (Outcome, error) {
	return inTx(ctx, db, func(t tx.Tx) (Outcome, error) {
		return Once(ctx, t, r, m, effect)
	})
}
