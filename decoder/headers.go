package decoder

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrHeaders is returned for a headers column that is not a JSON object. It does not quote the value.
var ErrHeaders = errors.New("headers are not a JSON object, or hold half of a surrogate pair")

// ParseHeaders calls yield for each member of a JSON object, in order, duplicates included. A string
// becomes its text and null a nil value; anything else keeps its JSON text unchanged, so that numbers
// lose no digit. Nil and the JSON null have no headers. An error of yield ends the parsing and is
// returned as it is; for anything but an object the error is ErrHeaders.
//
// Key and value alias object, or memory of their own where a string had escapes.
func ParseHeaders(object []byte, yield func(key, value []byte) error) error {
	if object == nil {
		return nil
	}
	// Valid settles the grammar, so that the rest only has to find where values end.
	if !json.Valid(object) {
		return ErrHeaders
	}
	rest := trimSpace(object)
	switch {
	case rest[0] == 'n':
		return nil
	case rest[0] != '{':
		return ErrHeaders
	}
	for rest = trimSpace(rest[1:]); rest[0] != '}'; {
		var key, value []byte
		key, value, rest = cutMember(rest)
		if err := yieldHeader(key, value, yield); err != nil {
			return err
		}
	}
	return nil
}

// cutMember cuts the first member off what is left of a valid object, and the comma behind it.
func cutMember(b []byte) (key, value, after []byte) {
	key, after = cutValue(b)
	value, after = cutValue(trimSpace(trimSpace(after)[1:])) // behind the colon
	if after = trimSpace(after); after[0] == ',' {
		after = trimSpace(after[1:])
	}
	return key, value, after
}

func yieldHeader(key, value []byte, yield func(key, value []byte) error) error {
	key, err := unquote(key)
	if err != nil {
		return err
	}
	switch value[0] {
	case 'n':
		value = nil
	case '"':
		if value, err = unquote(value); err != nil {
			return err
		}
	}
	return yield(key, value)
}

func trimSpace(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }

// cutValue cuts the first value off valid JSON that begins with one.
func cutValue(b []byte) (value, after []byte) {
	end, depth := 0, 0
	for {
		switch b[end] {
		case '"':
			end += stringLen(b[end:])
		case '{', '[':
			depth++
			end++
		case '}', ']':
			depth--
			end++
		case ',', ':', ' ', '\t', '\r', '\n': // between the parts of an object or array
			end++
		default: // a number or a word
			end += bytes.IndexAny(b[end:], ",]} \t\r\n")
		}
		if depth == 0 {
			return b[:end:end], b[end:]
		}
	}
}

// stringLen returns the length of the string that b begins with, quotes included.
func stringLen(b []byte) int {
	for i := 1; ; i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// unquote returns the text of a valid JSON string. PostgreSQL's json type, unlike jsonb, lets halves
// of surrogate pairs pass; they stand for no character and are refused rather than replaced.
func unquote(quoted []byte) ([]byte, error) {
	s := quoted[1 : len(quoted)-1 : len(quoted)-1]
	next := bytes.IndexByte(s, '\\')
	if next < 0 {
		return s, nil
	}
	text := make([]byte, 0, len(s))
	for ; next >= 0; next = bytes.IndexByte(s, '\\') {
		text = append(text, s[:next]...)
		escape := s[next+1]
		s = s[next+2:]
		if escape != 'u' {
			text = append(text, unescaped(escape))
			continue
		}
		char := hexRune(s)
		s = s[4:]
		if utf16.IsSurrogate(char) {
			if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
				return nil, ErrHeaders
			}
			if char = utf16.DecodeRune(char, hexRune(s[2:])); char == utf8.RuneError {
				return nil, ErrHeaders
			}
			s = s[6:]
		}
		text = utf8.AppendRune(text, char)
	}
	return append(text, s...), nil
}

func unescaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	default: // quote, backslash, slash stand for themselves
		return c
	}
}

// hexRune reads the four digits of a \u escape, which are known to be there.
func hexRune(s []byte) rune {
	v, _ := strconv.ParseUint(string(s[:4]), 16, 16)
	return rune(v)
}

// AppendMember appends a member to a JSON object that is still open, and opens it if it is empty, such that
// ParseHeaders gives back the same bytes, valid UTF-8 or not. A nil value is null.
func AppendMember(object, name, value []byte) []byte {
	if len(object) == 0 {
		object = append(object, '{')
	} else {
		object = append(object, ',')
	}
	object = append(appendText(object, name), ':')
	if value == nil {
		return append(object, "null"...)
	}
	return appendText(object, value)
}

func appendText(dst, text []byte) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
