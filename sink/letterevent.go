package sink

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/walrelay/walrelay/decoder"
)

// letterEvent turns a letter back into its event. What the stream's own headers say goes to the fields
// that make them, and the rest becomes the row's headers, in their order.
func letterEvent(b *sarama.RecordBatch, r *sarama.Record) (*decoder.Event, error) {
	ev := &decoder.Event{Mapping: &decoder.Mapping{}, Key: r.Key, Payload: r.Value}
	if !b.LogAppendTime {
		stamp := b.FirstTimestamp.Add(r.TimestampDelta).UTC()
		ev.Timestamp = stamp.AppendFormat(nil, "2006-01-02 15:04:05.000+00")
	}
	var object, refused []byte
	for _, h := range r.Headers {
		switch name := string(h.Key); name {
		case headerStream, headerDeadTopic, headerDeadReason, headerSourcePosition:
		case headerTransaction, headerIndex, headerCount: // it is published outside of its transaction
		case headerID:
			ev.ID = h.Value
		case headerCommitTime:
			at, err := time.Parse(commitTimeFormat, string(h.Value))
			if err != nil {
				return nil, fmt.Errorf("header %s: %w", headerCommitTime, err)
			}
			ev.CommitTime = at
		case headerType:
			ev.Type = h.Value
		case headerDeadRaw:
			ev.Fault = errors.New("the letter has bytes of the row or message, and not the key and value of a record")
		case headerDeadHeaders:
			refused = h.Value
		case headerDeadTracing:
			ev.SpanContext = h.Value
		default:
			object = decoder.AppendMember(object, h.Key, h.Value)
		}
	}
	ev.Headers = letterHeaders(object, refused)
	if ev.ID == nil {
		ev.Fault = errors.New("the event has no id")
	}
	return ev, nil
}

// letterHeaders completes the row's headers, an object that is still open, by those that were refused: they are again,
// unless the reason has gone.
func letterHeaders(object, refused []byte) []byte {
	err := decoder.ParseHeaders(refused, func(name, value []byte) error {
		object = decoder.AppendMember(object, name, value)
		return nil
	})
	switch {
	case err != nil:
		return refused
	case object == nil:
		return nil
	}
	return append(object, '}')
}
