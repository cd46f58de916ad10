package sink

import (
	"bytes"
	"time"

	"github.com/IBM/sarama"

	"github.com/walrelay/walrelay/checkpoint"
)

// Headers of every record. Their names and formats are part of the wire format: consumers depend
// on them.
const (
	headerID         = "id"                   // the event's id, as Debezium's router has it
	headerStream     = "walrelay-stream"      // name of the stream
	headerPosition   = "walrelay-position"    // checkpoint.Position; grows per stream, topic and partition
	headerReplay     = "walrelay-replay"      // name of a replay; in place of headerPosition
	headerCommitTime = "walrelay-commit-time" // RFC 3339, UTC, microseconds; a replayed row has none
	headerType       = "eventType"            // the type column, when not NULL

	headerTraceParent = "traceparent" // the traceparent column, when not NULL
	headerTraceState  = "tracestate"  // the tracestate column, when not NULL

	// A dead letter has these in place of headerPosition, since its partition holds letters of
	// several topics, which do not come in order.
	headerSourcePosition = "walrelay-source-position"
	headerDeadTopic      = "walrelay-dead-letter-topic"
	headerDeadReason     = "walrelay-dead-letter-reason"
	// The value, and the key if it cannot have its format, are bytes of the columns or of the whole message, or not all
	// there.
	headerDeadRaw = "walrelay-dead-letter-raw"
	// The column as it was, when that was to blame.
	headerDeadHeaders = "walrelay-dead-letter-headers"
	headerDeadTracing = "walrelay-dead-letter-tracing"

	constantHeaders = 3 // stream, position or replay, commit time

	commitTimeFormat = "2006-01-02T15:04:05.000000Z"
	commitTimeSize   = 1 + len(headerCommitTime) + 1 + len(commitTimeFormat) // both lengths fit a byte
)

// noCommit is the commit time of a row whose transaction is not known.
func noCommit() int64 { return time.Time{}.UnixMicro() }

// constantSize is what the headers of constant length take: stream, position or replay, commit time.
func constantSize(stream, replay string) int {
	mark := headerSize(len(headerReplay), []byte(replay))
	if replay == "" {
		mark = varintLen(int64(len(headerPosition))) + len(headerPosition) +
			varintLen(checkpoint.PositionLen) + checkpoint.PositionLen
	}
	return headerSize(len(headerStream), []byte(stream)) + mark + commitTimeSize
}

// encoder turns batches into sarama's record batches. A sender owns one and reuses its memory for
// every request: sarama keeps no record after AsyncProduce has returned.
type encoder struct {
	stream     sarama.RecordHeader
	replay     *sarama.RecordHeader // nil for a stream
	cloud      *CloudEvents         // nil: none
	codec      sarama.CompressionCodec
	records    []sarama.Record
	recordPtrs []*sarama.Record
	headers    []sarama.RecordHeader
	headerPtrs []*sarama.RecordHeader
	text       []byte
	names      headerNames

	// The last ones made: records of a transaction share its commit time, and most share a type.
	commitTime  *sarama.RecordHeader
	commitMicro int64
	kind        *sarama.RecordHeader
}

// headerNames are shared by all records: sarama only reads them.
type headerNames struct {
	id, position, commitTime, kind, trace, source, deadTopic, deadReason []byte
}

func newEncoder(cfg *Config) *encoder {
	n := &encoder{
		stream: sarama.RecordHeader{Key: []byte(headerStream), Value: []byte(cfg.Stream)},
		codec:  cfg.Compression,
		cloud:  cfg.CloudEvents,
		names: headerNames{
			id: []byte(headerID), position: []byte(headerPosition), commitTime: []byte(headerCommitTime),
			kind: []byte(headerType), trace: []byte(headerTraceParent), source: []byte(headerSourcePosition),
			deadTopic: []byte(headerDeadTopic), deadReason: []byte(headerDeadReason),
		},
	}
	if cfg.Replay != "" {
		n.replay = &sarama.RecordHeader{Key: []byte(headerReplay), Value: []byte(cfg.Replay)}
	}
	return n
}

// reset forgets the records of the last request. Memory that an unusually large one left is dropped.
func (n *encoder) reset() {
	n.records, n.recordPtrs = emptied(n.records, 1<<13), emptied(n.recordPtrs, 1<<13)
	n.headers, n.headerPtrs = emptied(n.headers, 1<<15), emptied(n.headerPtrs, 1<<16)
	n.text = emptied(n.text, 1<<19)
	n.commitTime, n.kind = nil, nil
}

func emptied[T any](s []T, keep int) []T {
	if cap(s) > keep {
		return nil
	}
	return s[:0]
}

// encode builds the record batch of b under the producer's id and epoch.
func (n *encoder) encode(b *batch, id producerID, transactional bool) *sarama.RecordBatch {
	start := len(n.recordPtrs)
	first, latest := b.entries[0].stamp, b.entries[0].stamp
	for i := range b.entries {
		e := &b.entries[i]
		latest = max(latest, e.stamp)
		if b.state {
			n.bare(b.content(e))
		} else {
			n.record(b, e, int64(i), first)
		}
	}
	codec := n.codec
	if b.plain {
		codec = sarama.CompressionNone
	}
	return &sarama.RecordBatch{
		Version: 2, Codec: codec, CompressionLevel: sarama.CompressionLevelDefault,
		ProducerID: id.id, ProducerEpoch: id.epoch, FirstSequence: b.firstSequence,
		FirstTimestamp: time.UnixMilli(first), MaxTimestamp: time.UnixMilli(latest),
		LastOffsetDelta: int32(len(b.entries) - 1),
		Records:         n.recordPtrs[start:],
		IsTransactional: transactional,
	}
}

// bare appends a record without headers, the only one of its batch.
func (n *encoder) bare(c content) {
	n.records = append(n.records, sarama.Record{Key: c.key, Value: c.value})
	n.recordPtrs = append(n.recordPtrs, &n.records[len(n.records)-1])
}

// record appends the record of an entry. Slices that grow move, but what was taken from the old place
// stays as it is there.
func (n *encoder) record(b *batch, e *entry, delta, first int64) {
	c := b.content(e)
	start := len(n.headerPtrs)
	n.header(n.names.id, c.id)
	n.headerPtrs = append(n.headerPtrs, &n.stream)
	n.position(e)
	n.commit(e.commit)
	if c.kind != nil {
		n.eventType(c.kind)
	}
	if c.trace != nil {
		n.header(n.names.trace, c.trace)
	}
	eachHeader(c.headers, n.header)
	if n.cloud != nil && e.poison == nil {
		c.value = n.cloudEvent(*e, c)
	}
	if e.poison != nil {
		n.header(n.names.deadTopic, []byte(e.poison.Topic))
		n.header(n.names.deadReason, []byte(e.poison.Reason))
	}
	n.records = append(n.records, sarama.Record{
		Headers: n.headerPtrs[start:], Key: c.key, Value: c.value,
		OffsetDelta: delta, TimestampDelta: time.Duration(e.stamp-first) * time.Millisecond,
	})
	n.recordPtrs = append(n.recordPtrs, &n.records[len(n.records)-1])
}

// cloudEvent makes the record an event of CloudEvents: it appends headers, and returns the value.
func (n *encoder) cloudEvent(e entry, c content) (value []byte) {
	n.cloud.headers(e, c, n.header)
	if !n.cloud.Structured {
		return c.value
	}
	from := len(n.text)
	n.text = n.cloud.appendDocument(n.text, e, c)
	return n.text[from:]
}

// position appends what tells a record's place: its position, or that it has none.
func (n *encoder) position(e *entry) {
	if n.replay != nil {
		n.headerPtrs = append(n.headerPtrs, n.replay)
		return
	}
	name := n.names.position
	if e.poison != nil {
		name = n.names.source
	}
	from := len(n.text)
	n.text = e.pos.Append(n.text)
	n.header(name, n.text[from:])
}

func (n *encoder) header(key, value []byte) {
	n.headers = append(n.headers, sarama.RecordHeader{Key: key, Value: value})
	n.headerPtrs = append(n.headerPtrs, &n.headers[len(n.headers)-1])
}

func (n *encoder) commit(micro int64) {
	if micro == noCommit() {
		return
	}
	if n.commitTime != nil && n.commitMicro == micro {
		n.headerPtrs = append(n.headerPtrs, n.commitTime)
		return
	}
	from := len(n.text)
	n.text = time.UnixMicro(micro).UTC().AppendFormat(n.text, commitTimeFormat)
	n.header(n.names.commitTime, n.text[from:])
	n.commitTime, n.commitMicro = n.headerPtrs[len(n.headerPtrs)-1], micro
}

func (n *encoder) eventType(kind []byte) {
	if n.kind != nil && bytes.Equal(n.kind.Value, kind) {
		n.headerPtrs = append(n.headerPtrs, n.kind)
		return
	}
	n.header(n.names.kind, kind)
	n.kind = n.headerPtrs[len(n.headerPtrs)-1]
}
