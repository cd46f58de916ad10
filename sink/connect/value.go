package connect

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strconv"
	"time"
	"unicode/utf8"
)

// ErrValue is returned for a text that is no value of its kind, or none that Kafka Connect can hold: an infinite
// timestamp, for one. It does not quote the text.
var ErrValue = errors.New("holds a value that Kafka Connect has no form for")

// ErrText is returned for a text that no JSON can hold, as a database without an encoding may have it. It does not
// quote the text.
var ErrText = errors.New("is not UTF-8")

// AppendJSON appends a value, given as PostgreSQL prints it, as JsonConverter writes it; nil is null. A Bytes value is
// given in hex format, or as its bytes when decoded is set.
func (k Kind) AppendJSON(dst, text []byte, decoded bool) ([]byte, error) {
	if text == nil {
		return append(dst, "null"...), nil
	}
	switch k {
	case Text, JSON, UUID:
		if !utf8.Valid(text) {
			return dst, ErrText
		}
		return AppendString(dst, text), nil
	case Zoned, Bytes:
		dst = append(dst, '"')
		dst, err := k.AppendText(dst, text, decoded)
		return append(dst, '"'), err
	case Float32, Float64:
		bits := 64
		if k == Float32 {
			bits = 32
		}
		f, err := strconv.ParseFloat(string(text), bits)
		if err != nil {
			return dst, ErrValue
		}
		return appendDouble(dst, f, bits), nil
	default:
		return k.AppendText(dst, text, decoded)
	}
}

// AppendText appends a value, given likewise, as StringConverter and SimpleHeaderConverter print it. It must not be
// nil.
func (k Kind) AppendText(dst, text []byte, decoded bool) ([]byte, error) {
	switch k {
	case Bool:
		return appendBool(dst, string(text) == "t"), nil
	case Float32, Float64:
		dst, err := k.AppendJSON(dst, text, decoded)
		return bytes.Trim(dst, `"`), err
	case Bytes:
		return appendBytes(dst, text, decoded)
	case Zoned:
		t, err := time.Parse("2006-01-02 15:04:05-07", string(text))
		if err != nil {
			return dst, ErrValue
		}
		return t.UTC().AppendFormat(dst, "2006-01-02T15:04:05.000000Z"), nil
	case Timestamp:
		t, err := time.Parse(time.DateTime, string(text))
		if err != nil {
			return dst, ErrValue
		}
		return strconv.AppendInt(dst, t.UnixMicro(), 10), nil
	case Date:
		t, err := time.Parse(time.DateOnly, string(text))
		if err != nil {
			return dst, ErrValue
		}
		return strconv.AppendInt(dst, t.Unix()/(24*60*60), 10), nil
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
