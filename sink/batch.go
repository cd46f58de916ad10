package sink

import (
	"encoding/binary"
	"math"
	"math/bits"
	"time"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// batch holds the records of one partition between Publish and acknowledgement, compactly: the
// bytes of all records in one buffer and a fixed-size entry a record. Sarama's own records, which
// cost several hundred bytes each, exist only while a request is being encoded (see encoder).
type batch struct {
	entries []entry
	buf     []byte
	size    int // bytes that the records take in a record batch, uncompressed

	// firstSequence is the idempotence sequence of the first record; -1 until first sent.
	firstSequence int32
	// again: it was sent before, under the same sequence. It goes alone: those sent behind it since may be in the log
	// while it is tried, and with more of them the broker would not remember it.
	again bool
	// ambiguous: an attempt ended without an answer, so the records may be in the log already.
	ambiguous bool
	plain     bool     // leaves uncompressed: compression could push it over the topic's limit
	order     uint64   // grows with every sending
	state     bool     // holds the state record of a transaction, which has no headers
	refused   *refusal // the broker's answer to the last attempt, nil unless a record is to blame
	span      *span    // from the first sending on; nil without tracing
}

// entry is one record. Its bytes lie in the batch's buffer from off on, in the order id, key, value,
// kind, trace, headers; a length of -1 is null and takes no bytes.
type entry struct {
	seq     uint64
	pos     checkpoint.Position
	mapping *decoder.Mapping
	commit  int64 // commit time, microseconds since 1970, server's clock
	stamp   int64 // record timestamp, milliseconds since 1970
	off     int
	size    int32 // bytes in a record batch, when it is the only record

	id, key, value, kind, trace, headers int32

	partition int32 // one more than the one that the row asks for; 0: its key decides

	// poison is set on a dead letter: what to report once its topic has acknowledged it.
	poison *checkpoint.Poison
}

// content is what an entry is made of before it is copied into a batch.
type content struct {
	id, key, value, kind, trace []byte
	headers                     []byte // encoded by appendHeader
}

func (b *batch) reset() {
	clear(b.entries)
	*b = batch{entries: b.entries[:0], buf: b.buf[:0], firstSequence: -1}
}

// memory is about what the batch takes, in bytes.
func (b *batch) memory() int { return 128*(1+cap(b.entries)) + cap(b.buf) }

// add copies a record into the batch. The caller has set everything in e but the lengths.
func (b *batch) add(e entry, c content) {
	e.off = len(b.buf)
	for _, f := range [...]struct {
		bytes  []byte
		length *int32
	}{
		{c.id, &e.id},
		{c.key, &e.key},
		{c.value, &e.value},
		{c.kind, &e.kind},
		{c.trace, &e.trace},
		{c.headers, &e.headers},
	} {
		*f.length = int32(len(f.bytes))
		if f.bytes == nil {
			*f.length = -1
		}
		b.buf = append(b.buf, f.bytes...)
	}
	b.entries = append(b.entries, e)
	b.size += int(e.size) + deltaReserve
}

// youngest is the latest record timestamp, but not one in the future.
func (b *batch) youngest(at time.Time) time.Time {
	latest := int64(0)
	for i := range b.entries {
		latest = max(latest, b.entries[i].stamp)
	}
	if stamp := time.UnixMilli(latest); stamp.Before(at) {
		return stamp
	}
	return at
}

// truncate drops the records from n on.
func (b *batch) truncate(n int) {
	dropped := b.entries[n:]
	b.buf = b.buf[:dropped[0].off]
	for i := range dropped {
		b.size -= int(dropped[i].size) + deltaReserve
	}
	clear(dropped)
	b.entries = b.entries[:n]
}

// content returns the bytes of an entry, aliasing the batch's buffer.
func (b *batch) content(e *entry) (c content) {
	rest := b.buf[e.off:]
	for _, f := range [...]struct {
		bytes  *[]byte
		length int32
	}{
		{&c.id, e.id},
		{&c.key, e.key},
		{&c.value, e.value},
		{&c.kind, e.kind},
		{&c.trace, e.trace},
		{&c.headers, e.headers},
	} {
		if f.length >= 0 {
			*f.bytes, rest = rest[:f.length:f.length], rest[f.length:]
		}
	}
	return c
}

// Sizes of the record format, version 2: https://kafka.apache.org/documentation/#recordbatch.
const (
	batchOverhead = 61 // header of a record batch
	deltaReserve  = 12 // what the varints of a record's deltas and length may take beyond the first record's
)

// expanded is the most that compression makes of n bytes which do not compress: gzip, snappy, lz4 and
// zstd store them in blocks with a few bytes of frame each, of 32 KiB or more.
func expanded(n int) int { return n + n/256 + 128 }

// recordSize is what a record takes as the only one of its batch, so that both its deltas are 0:
// with constant bytes of headers of constant length, in constantHeaders+extra headers.
func recordSize(c content, constant, extra int) int {
	headers, count := rowHeaders(c)
	n := 1 + 1 + 1 + // attributes, timestamp delta, offset delta
		blobSize(c.key) + blobSize(c.value) +
		varintLen(int64(count+constantHeaders+extra)) + constant + headers
	return varintLen(int64(n)) + n
}

// bareSize is what a record without headers takes as the only one of its batch.
func bareSize(c content) int {
	n := 1 + 1 + 1 + blobSize(c.key) + blobSize(c.value) + 1
	return varintLen(int64(n)) + n
}

// rowHeaders measures and counts the headers that depend on the row.
func rowHeaders(c content) (size, count int) {
	size, count = headerSize(len(headerID), c.id), 1
	if c.kind != nil {
		size += headerSize(len(headerType), c.kind)
		count++
	}
	if c.trace != nil {
		size += headerSize(len(headerTraceParent), c.trace)
		count++
	}
	eachHeader(c.headers, func(key, value []byte) {
		size += headerSize(len(key), value)
		count++
	})
	return size, count
}

func headerSize(key int, value []byte) int { return varintLen(int64(key)) + key + blobSize(value) }

func blobSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintLen(int64(len(b))) + len(b)
}

// varintLen is the length of a zigzag varint.
func varintLen(v int64) int {
	return (bits.Len64(uint64(v<<1^v>>63)|1) + 6) / 7
}

// appendHeader encodes a row's header into a batch's buffer: key length, value length plus one
// (0 is null), key, value.
func appendHeader(dst, key, value []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(key)))
	if value == nil {
		dst = binary.LittleEndian.AppendUint32(dst, 0)
	} else {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(value))+1)
	}
	return append(append(dst, key...), value...)
}

func eachHeader(encoded []byte, yield func(key, value []byte)) {
	for len(encoded) > 0 {
		k := binary.LittleEndian.Uint32(encoded)
		v := binary.LittleEndian.Uint32(encoded[4:])
		encoded = encoded[8:]
		key := encoded[:k]
		encoded = encoded[k:]
		if v == 0 {
			yield(key, nil)
			continue
		}
		yield(key, encoded[:v-1:v-1])
		encoded = encoded[v-1:]
	}
}

// clampMillis makes a time a legal record timestamp: whole milliseconds, not before 1970, and within
// the years up to 2262 that sarama, which counts nanoseconds, can express.
func clampMillis(t time.Time) int64 { return min(max(t.UnixMilli(), 0), math.MaxInt64/1_000_000) }
