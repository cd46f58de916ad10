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
	var object []byte
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
			ev.Fault = errors.New("the letter has the columns' bytes, and not the format of a record")
		case headerDeadHeaders:
			ev.Headers = h.Value // it is refused again, for the same reason
		case headerDeadTracing:
			ev.SpanContext = h.Value
		default:
			object = decoder.AppendMember(object, h.Key, h.Value)
		}
	}
	if object != nil && ev.Headers == nil {
		object = append(object, '}')
		ev.Headers = object
	}
	if ev.ID == nil {
		ev.Fault = errors.New("the event has no id")
	}
	return ev, nil
}
