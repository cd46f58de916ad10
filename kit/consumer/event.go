package consumer

import (
	"errors"
	"fmt"
	"time"
)

// Headers of walrelay's records; docs/wire-format.md has them all.
const (
	HeaderID         = "id"
	HeaderStream     = "walrelay-stream"
	HeaderPosition   = "walrelay-position"
	HeaderCommitTime = "walrelay-commit-time"
	HeaderType       = "eventType"
	HeaderReplay     = "walrelay-replay"
	// HeaderSourcePosition is what a dead letter has in place of the position.
	HeaderSourcePosition = "walrelay-source-position"
)

// Headers looks up a record's header by its name, and says whether it is there.
type Headers func(name string) (value []byte, ok bool)

// List makes Headers of a client's list. Of several with one name the first counts. For franz-go, sarama and
// segmentio's kafka-go:
//
//	consumer.List(r.Headers, func(h kgo.RecordHeader) (string, []byte) { return h.Key, h.Value })
//	consumer.List(m.Headers, func(h *sarama.RecordHeader) (string, []byte) { return string(h.Key), h.Value })
//	consumer.List(m.Headers, func(h kafka.Header) (string, []byte) { return h.Key, h.Value })
func List[H any](headers []H, split func(H) (name string, value []byte)) Headers {
	return func(name string) ([]byte, bool) {
		for _, h := range headers {
			if key, value := split(h); key == name {
				return value, true
			}
		}
		return nil, false
	}
}

// Event is what walrelay says about a record.
type Event struct {
	ID     string // the outbox row's id: the same for every delivery, and for replays
	Stream string
	Type   string // empty when the outbox has no type
	// CommitTime is when the business transaction was committed, on the database's clock; zero when the record
	// does not say.
	CommitTime time.Time
	// Position is zero for replays and dead letters: only the id tells whether these were seen before.
	Position Position
	// Replay marks what was sent again on request.
	Replay bool
	// DeadLetter marks what could not go to its own topic.
	DeadLetter bool
}

var (
	// ErrForeign says that the record is not one of walrelay's: it has no stream.
	ErrForeign = errors.New("not a record of walrelay: no header " + HeaderStream)
	// ErrHeader says that a header of walrelay's is missing or malformed.
	ErrHeader = errors.New("unexpected headers")
)

// Read takes an event's data from the headers of its record. The errors wrap ErrForeign or ErrHeader. No
// value of a header is part of an error's text.
func Read(headers Headers) (Event, error) {
	stream, ok := headers(HeaderStream)
	if !ok {
		return Event{}, ErrForeign
	}
	id, ok := headers(HeaderID)
	if !ok {
		return Event{}, fmt.Errorf("%s: %w", HeaderID, ErrHeader)
	}
	kind, _ := headers(HeaderType)
	event := Event{ID: string(id), Stream: string(stream), Type: string(kind)}
	_, event.Replay = headers(HeaderReplay)
	_, event.DeadLetter = headers(HeaderSourcePosition)
	if text, ok := headers(HeaderCommitTime); ok {
		at, err := time.Parse(time.RFC3339Nano, string(text))
		if err != nil {
			return Event{}, fmt.Errorf("%s: %w", HeaderCommitTime, ErrHeader)
		}
		event.CommitTime = at
	}
	text, ok := headers(HeaderPosition)
	if !ok {
		if !event.Replay && !event.DeadLetter {
			return Event{}, fmt.Errorf("%s: %w", HeaderPosition, ErrHeader)
		}
		return event, nil
	}
	var err error
	if event.Position, err = ParsePosition(string(text)); err != nil {
		return Event{}, fmt.Errorf("%s: %w: %w", HeaderPosition, ErrHeader, err)
	}
	if event.Position.IsZero() { // as if it had none, it would pass each time
		return Event{}, fmt.Errorf("%s is all zeros, which no event has: %w", HeaderPosition, ErrHeader)
	}
	return event, nil
}
