package decoder

import (
	"encoding/binary"
	"slices"
	"strconv"
	"unicode/utf8"
)

// BinaryMapping maps logical messages of a prefix whose content is the binary envelope: fields one behind the
// other, of which all have to be there. Numbers are big-endian, as PostgreSQL's own binary formats have them.
//
//	version        one byte, 1
//	id             value, not null
//	route          pairs: what the topic template names, and further ones, which are passed over
//	aggregateid    value: the record's key, any bytes
//	type           value
//	timestamp      value: null, or 8 bytes, milliseconds since 1970
//	headers        pairs; their values are any bytes
//	payload        value: the record's value, any bytes
//
// A value is its length as an int32 and as many bytes; length -1 is null. Pairs are their number as a uint16,
// and as many names and values, each a value; names are not null. Names, id, type and the route are UTF-8. A
// template may name id, aggregateid and type as well: unless the route has a pair of that name, the field is it.
func BinaryMapping(prefix string, route []string) *Mapping {
	m := MessageMapping(prefix, route)
	m.Binary = true
	return m
}

// binaryVersion is the first byte of a binary envelope.
const binaryVersion = 1

// mapBinary reads the content of a message into the event. Nothing in it is an error of the stream.
func (d *Decoder) mapBinary(e *envelope, content []byte) {
	m, ev := e.mapping, &d.event
	if len(content) == 0 || content[0] != binaryVersion {
		d.messageFault("version", "is not 1")
		return
	}
	f := binaryFields{d: d, rest: content[1:]}
	ev.ID = f.text(m.ID)
	if ev.ID == nil {
		f.fail(m.ID, "is null")
	}
	f.pairs("route", func(name, value []byte) {
		for i, wanted := range m.Route {
			if string(name) == wanted {
				f.route(e, i, value)
			}
		}
	})
	ev.Key = f.value(m.Key)
	ev.Type = f.text(m.Type)
	f.timestamp(m.Timestamp)
	f.headers(m.Headers)
	ev.Payload = f.value(m.Payload)
	if !f.failed && len(f.rest) > 0 {
		f.fail("", "has bytes behind its end")
	}
	f.complete(e)
}

// binaryFields reads fields from the front of rest. After a failure everything is null.
type binaryFields struct {
	d      *Decoder
	rest   []byte
	failed bool
}

func (f *binaryFields) fail(name, reason string) {
	if !f.failed {
		f.d.messageFault(name, reason)
	}
	f.failed, f.rest = true, nil
}

// value reads a value, nil for null. Its capacity ends with it.
func (f *binaryFields) value(name string) []byte {
	if len(f.rest) < 4 {
		f.fail(name, "is cut off")
		return nil
	}
	n := int32(binary.BigEndian.Uint32(f.rest))
	f.rest = f.rest[4:]
	switch {
	case n == -1:
		return nil
	case n < 0:
		f.fail(name, "has a negative length")
		return nil
	case int(n) > len(f.rest):
		f.fail(name, "is cut off")
		return nil
	}
	v := f.rest[:n:n]
	f.rest = f.rest[n:]
	return v
}

func (f *binaryFields) text(name string) []byte {
	v := f.value(name)
	if !utf8.Valid(v) {
		f.fail(name, "is not UTF-8")
		return nil
	}
	return v
}

func (f *binaryFields) pairs(section string, yield func(name, value []byte)) {
	if len(f.rest) < 2 {
		f.fail(section, "is cut off")
		return
	}
	n := binary.BigEndian.Uint16(f.rest)
	f.rest = f.rest[2:]
	for ; n > 0 && !f.failed; n-- {
		name := f.text(section)
		if name == nil {
			f.fail(section, "has a name that is null")
			return
		}
		value := f.value(section)
		if f.failed {
			return
		}
		yield(name, value)
	}
}

// route sets the i-th value that the topic template names.
func (f *binaryFields) route(e *envelope, i int, value []byte) {
	name := e.mapping.Route[i]
	switch {
	case value == nil:
		f.fail(name, "is null")
	case e.route[i] != nil:
		f.fail(name, "is given twice")
	case !utf8.Valid(value):
		f.fail(name, "is not UTF-8")
	default:
		e.route[i] = value
	}
}

// complete takes from the fields what the topic template names and the route has not.
func (f *binaryFields) complete(e *envelope) {
	m, ev := e.mapping, &f.d.event
	for i, name := range m.Route {
		if e.route[i] != nil || f.failed {
			continue
		}
		own := slices.Index([]string{m.ID, m.Key, m.Type}, name)
		if own < 0 {
			f.fail(name, "is missing")
			continue
		}
		if value := [][]byte{ev.ID, ev.Key, ev.Type}[own]; value == nil {
			f.fail(name, "is null")
		} else {
			e.route[i] = value
		}
	}
}

// timestamp writes the milliseconds as text into the scratch space, where ParseTimestamp has them.
func (f *binaryFields) timestamp(name string) {
	v := f.value(name)
	d := f.d
	if cap(d.scratch) > scratchKept {
		d.scratch = nil
	}
	d.scratch = d.scratch[:0]
	switch {
	case v == nil:
	case len(v) != 8:
		f.fail(name, "is not of 8 bytes")
	default:
		d.scratch = strconv.AppendInt(d.scratch, int64(binary.BigEndian.Uint64(v)), 10)
		d.event.Timestamp = slices.Clip(d.scratch)
	}
}

// headers writes the pairs as a JSON object into the scratch space, behind the timestamp, since a row's
// headers are one.
func (f *binaryFields) headers(name string) {
	d := f.d
	object := d.scratch[len(d.scratch):]
	f.pairs(name, func(key, value []byte) { object = AppendMember(object, key, value) })
	if f.failed || len(object) == 0 {
		return
	}
	object = append(object, '}')
	d.event.Headers = slices.Clip(object)
	if cap(object) > cap(d.scratch) {
		d.scratch = object // it had to grow: kept for the next message
	}
}
