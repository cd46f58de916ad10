package connect

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strconv"
	"unicode/utf8"
)

// ErrValue is returned for a text that is no value of its type, or none that Kafka Connect can hold: an array of
// several dimensions, for one. It does not quote the text.
var ErrValue = errors.New("holds a value that Kafka Connect has no form for")

// ErrText is returned for a text that no JSON can hold, as a database without an encoding may have it. It does not
// quote the text.
var ErrText = errors.New("is not UTF-8")

// AppendJSON appends a value, given as PostgreSQL prints it, as JsonConverter writes it; nil is null. A Bytes value is
// given in hex format, or as its bytes when decoded is set.
func (t Type) AppendJSON(dst, text []byte, decoded bool) ([]byte, error) {
	if t.IsNull(text) {
		return append(dst, "null"...), nil
	}
	switch t.Kind {
	case Text, JSON, UUID, XML, Words:
		if !utf8.Valid(text) {
			return dst, ErrText
		}
		return AppendString(dst, text), nil
	case Zoned, ZonedTime, Bytes:
		dst = append(dst, '"')
		dst, err := t.AppendText(dst, text, decoded)
		return append(dst, '"'), err
	case Decimal:
		d, err := parseDecimal(text)
		return append(d.appendBase64(append(dst, '"')), '"'), err
	case Float32, Float64:
		bits := 64
		if t.Kind == Float32 {
			bits = 32
		}
		f, err := strconv.ParseFloat(string(text), bits)
		if err != nil {
			return dst, ErrValue
		}
		return appendDouble(dst, f, bits), nil
	case Array:
		return t.appendItems(dst, text, Type.AppendJSON)
	default:
		return t.AppendText(dst, text, decoded)
	}
}

// AppendText appends a value, given likewise, as SimpleHeaderConverter prints it. It must not be null.
func (t Type) AppendText(dst, text []byte, decoded bool) ([]byte, error) {
	switch t.Kind {
	case Bool:
		return appendBool(dst, string(text) == "t"), nil
	case Float32, Float64:
		json, err := t.AppendJSON(nil, text, decoded)
		return append(dst, bytes.Trim(json, `"`)...), err
	case Bytes:
		return appendBytes(dst, text, decoded)
	case Decimal:
		d, err := parseDecimal(text)
		return d.appendText(dst), err
	case FreeDecimal:
		return appendFreeDecimal(dst, text)
	case Array:
		return t.appendItems(dst, text, Type.appendItem)
	case Zoned, ZonedTime, Date, Timestamp, MilliTimestamp, Time, MilliTime, Duration:
		return t.appendTime(dst, string(text))
	default:
		return append(dst, text...), nil
	}
}

func appendBytes(dst, text []byte, decoded bool) ([]byte, error) {
	if !decoded {
		digits, isHex := bytes.CutPrefix(text, []byte(`\x`))
		value := make([]byte, hex.DecodedLen(len(digits)))
		if _, err := hex.Decode(value, digits); err != nil || !isHex {
			return dst, ErrValue
		}
		text = value
	}
	return base64.StdEncoding.AppendEncode(dst, text), nil
}

func (t Type) appendItems(
	dst, text []byte, appendItem func(t Type, dst, text []byte, decoded bool) ([]byte, error),
) ([]byte, error) {
	all, err := items(text)
	if err != nil {
		return dst, err
	}
	dst = append(dst, '[')
	for i, item := range all {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendItem(*t.Item, dst, item, false); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

// appendItem appends an item of an array as SimpleHeaderConverter prints it: strings in quotes, and nothing else.
func (t Type) appendItem(dst, text []byte, decoded bool) ([]byte, error) {
	if t.IsNull(text) {
		return append(dst, "null"...), nil
	}
	if !t.IsString() && t.Kind != Bytes {
		return t.AppendText(dst, text, decoded)
	}
	value, err := t.AppendText(nil, text, decoded)
	dst = append(dst, '"')
	for _, c := range value {
		if c == '"' || c == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, c)
	}
	return append(dst, '"'), err
}
