package sink

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"mime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/walrelay/walrelay/decoder"
)

// CloudEvents makes records events of CloudEvents 1.0, by its binding to Kafka:
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md.
// Walrelay's own headers stay. Dead letters are left as they are, so that they can be redriven.
type CloudEvents struct {
	// Structured puts attributes and payload into one JSON document, the value. Otherwise the value is the
	// payload, and the attributes are headers.
	Structured bool
	Source     string // a URI reference
	// ContentType is the payload's. In structured mode a payload of application/json is embedded as it is, and any
	// other in base64.
	ContentType string
}

const (
	headerContentType = "content-type"
	structuredType    = "application/cloudevents+json; charset=UTF-8"
	cloudPrefix       = "ce_"
)

// cloudHeader reports whether a row's own headers cannot have the name.
func cloudHeader(name string) bool {
	return strings.EqualFold(name, headerContentType) ||
		len(name) >= len(cloudPrefix) && strings.EqualFold(name[:len(cloudPrefix)], cloudPrefix)
}

// fault says why a record cannot be an event, empty when it can.
func (ce *CloudEvents) fault(c content) string {
	switch {
	case len(c.kind) == 0:
		return "cloudevents: the type is missing, NULL or empty"
	case len(c.id) == 0:
		return "cloudevents: the id is empty"
	case !cloudText(c.id):
		return "cloudevents: the id has control characters, or is not UTF-8"
	case !cloudText(c.kind):
		return "cloudevents: the type has control characters, or is not UTF-8"
	case !cloudText(c.key):
		return "cloudevents: the key has control characters, or is not UTF-8"
	case ce.Structured && c.value != nil && ce.json() && (!utf8.Valid(c.value) || !json.Valid(c.value)):
		return "cloudevents: the payload is not JSON, which its content type says that it is"
	}
	return ""
}

// cloudText reports whether a text can be the value of an attribute.
func cloudText(text []byte) bool {
	for rest := text; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		noncharacter := r >= 0xFDD0 && r <= 0xFDEF || r&0xFFFE == 0xFFFE
		if r < 0x20 || r >= 0x7F && r <= 0x9F || noncharacter || r == utf8.RuneError && n == 1 {
			return false
		}
		rest = rest[n:]
	}
	return true
}

// json reports whether the payload is embedded as JSON. Types that end in +json are not: the spec allows it, but
// readers differ, and the official SDK for Go refuses it.
func (ce *CloudEvents) json() bool {
	media, _, err := mime.ParseMediaType(ce.ContentType)
	return err == nil && (media == "application/json" || media == "text/json")
}

// attributes yields the attributes of the event that e and c make, as names and texts.
func (ce *CloudEvents) attributes(e entry, c content, yield func(name string, text []byte)) {
	yield("specversion", []byte("1.0"))
	yield("id", c.id)
	yield("source", []byte(ce.Source))
	yield("type", c.kind)
	yield("time", cloudTime(e))
	if len(c.key) > 0 {
		yield("subject", c.key)
		yield("partitionkey", c.key)
	}
}

// cloudTime is the record's timestamp, and in microseconds if that is the commit time.
func cloudTime(e entry) []byte {
	if e.commit != noCommit() && clampMillis(time.UnixMicro(e.commit)) == e.stamp {
		return time.UnixMicro(e.commit).UTC().AppendFormat(nil, commitTimeFormat)
	}
	return time.UnixMilli(e.stamp).UTC().AppendFormat(nil, "2006-01-02T15:04:05.000Z")
}

// headers yields the headers that the event has on top of walrelay's.
func (ce *CloudEvents) headers(e entry, c content, yield func(key, value []byte)) {
	if ce.Structured {
		yield([]byte(headerContentType), []byte(structuredType))
		return
	}
	ce.attributes(e, c, func(name string, text []byte) { yield([]byte(cloudPrefix+name), text) })
	if c.value != nil {
		yield([]byte(headerContentType), []byte(ce.ContentType))
	}
}

// appendDocument appends the value of structured mode. A payload that is NULL is left out.
func (ce *CloudEvents) appendDocument(dst []byte, e entry, c content) []byte {
	var object []byte
	ce.attributes(e, c, func(name string, text []byte) { object = decoder.AppendMember(object, []byte(name), text) })
	if c.value == nil {
		return append(append(dst, object...), '}')
	}
	object = decoder.AppendMember(object, []byte("datacontenttype"), []byte(ce.ContentType))
	dst = append(dst, object...)
	if ce.json() {
		dst = append(dst, `,"data":`...)
		dst = append(dst, bytes.TrimSpace(c.value)...)
		return append(dst, '}')
	}
	dst = append(dst, `,"data_base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, c.value)
	return append(dst, `"}`...)
}

// size is recordSize of the event.
func (ce *CloudEvents) size(e entry, c content, constant, extra int) int {
	ce.headers(e, c, func(key, value []byte) {
		constant += headerSize(len(key), value)
		extra++
	})
	if ce.Structured {
		c.value = ce.appendDocument(nil, e, c)
	}
	return recordSize(c, constant, extra)
}
