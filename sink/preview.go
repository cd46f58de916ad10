package sink

import (
	"errors"
	"time"

	"github.com/walrelay/walrelay/decoder"
)

// Preview shows the records that events become, without a broker. It is not safe for concurrent use.
type Preview struct {
	kafka   Kafka
	encoder *encoder
}

// Record is what a record will be made of. Its slices are valid until the next one is made.
type Record struct {
	Topic      string // empty: none could be derived
	Key, Value []byte // nil: null
	Headers    []Header
	Timestamp  time.Time // in milliseconds
	Size       int       // bytes that it takes in a batch of its own, uncompressed
	// Fault is why the event cannot be a record, nil when it can. It names no value of the row.
	Fault error
}

// Header is a header of a record.
type Header struct {
	Name  string
	Value []byte // nil: null
}

// NewPreview returns a preview of what a sink of this configuration makes. Brokers and limits do not matter.
func NewPreview(cfg *Config) *Preview {
	own := *cfg
	own.Now = time.Now
	return &Preview{
		kafka:   Kafka{cfg: own, constant: constantSize(own.Stream, own.Replay), shaper: newShaper(own.Shape)},
		encoder: newEncoder(&own),
	}
}

// Record shows the record that ev becomes.
func (p *Preview) Record(ev *decoder.Event) Record {
	e, c, fault := p.kafka.record(0, ev)
	var rec Record
	if ev.Fault == nil {
		p.kafka.name, _ = p.kafka.cfg.appendTopic(p.kafka.name[:0], ev)
		rec.Topic = p.kafka.topicName()
		if fault == "" {
			fault = p.kafka.cfg.topicFault(p.kafka.name)
		}
	}
	if fault != "" {
		rec.Fault = errors.New(fault)
	}
	b := batch{firstSequence: -1}
	b.add(e, c)
	p.encoder.reset()
	made := p.encoder.encode(&b, producerID{}, false)
	rec.Key, rec.Value = made.Records[0].Key, made.Records[0].Value
	rec.Timestamp, rec.Size = made.FirstTimestamp, int(e.size)+batchOverhead
	for _, h := range made.Records[0].Headers {
		rec.Headers = append(rec.Headers, Header{Name: string(h.Key), Value: h.Value})
	}
	return rec
}
