package idempotency

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

type member struct {
	name  string
	value any
}

type object []member

// CanonicalJSON writes a document in the one form of all that say the same: no white space, members
// sorted by the UTF-16 code units of their names, strings escaped where they must be, as RFC 8785 has
// it. Numbers differ from the RFC, which reads them as float64 and so takes 9007199254740993 for
// 9007199254740992: here they keep every digit, as digits without zeros at either end and a power of
// ten (1, 1.0 and 10e-1 are 1; 1200 is 12e2; -0 is 0).
//
// It is not ok for what is no JSON and for what readers disagree about: two members of one name, and
// text that is not Unicode.
func CanonicalJSON(document []byte) (canonical []byte, ok bool) {
	if !utf8.Valid(document) || !json.Valid(document) { // which also bounds the depth, to 10,000
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	value, ok := readValue(d)
	if !ok {
		return nil, false
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, false
	}
	return appendValue(make([]byte, 0, len(document)), value), true
}

func readValue(d *json.Decoder) (value any, ok bool) {
	token, err := d.Token()
	if err != nil {
		return nil, false
	}
	switch t := token.(type) {
	case string:
		return t, isUnicode(t)
	case json.Delim:
		if t == '[' {
			return readArray(d)
		}
		return readObject(d)
	default:
		return t, true
	}
}

func readArray(d *json.Decoder) (value any, ok bool) {
	elements := []any{}
	for d.More() {
		element, ok := readValue(d)
		if !ok {
			return nil, false
		}
		elements = append(elements, element)
	}
	_, err := d.Token()
	return elements, err == nil
}

func readObject(d *json.Decoder) (value any, ok bool) {
	members := object{}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		name, isName := token.(string)
		if err != nil || !isName || seen[name] || !isUnicode(name) {
			return nil, false
		}
		seen[name] = true
		value, ok := readValue(d)
		if !ok {
			return nil, false
		}
		members = append(members, member{name, value})
	}
	slices.SortFunc(members, func(a, b member) int {
		return slices.Compare(utf16.Encode([]rune(a.name)), utf16.Encode([]rune(b.name)))
	})
	_, err := d.Token()
	return members, err == nil
}

// isUnicode refuses the replacement character: the decoder puts it where half a surrogate pair was.
func isUnicode(s string) bool { return !strings.ContainsRune(s, utf8.RuneError) }

func appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case string:
		return appendString(b, v)
	case json.Number:
		return append(b, canonicalNumber(v.String())...)
	case []any:
		b = append(b, '[')
		for i, element := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, element)
		}
		return append(b, ']')
	case object:
		b = append(b, '{')
		for i, m := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, m.name), ':')
			b = appendValue(b, m.value)
		}
		return append(b, '}')
	}
	return b
}

// appendString escapes what RFC 8785, 3.2.2.2, escapes, in its spelling.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	short := map[byte]byte{'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}
	b = append(b, '"')
	for i := range len(s) {
		c := s[i]
		if letter, ok := short[c]; ok {
			b = append(b, '\\', letter)
		} else if c < ' ' {
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// canonicalNumber leaves a number alone whose exponent is beyond reason.
func canonicalNumber(text string) string {
	rest, negative := strings.CutPrefix(text, "-")
	mantissa, exponent := rest, 0
	if at := strings.IndexAny(rest, "eE"); at >= 0 {
		n, err := strconv.ParseInt(rest[at+1:], 10, 32)
		if err != nil {
			return text
		}
		mantissa, exponent = rest[:at], int(n)
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	exponent -= len(fraction)
	significant := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(significant)
	if significant == "" {
		return "0"
	}
	if negative {
		significant = "-" + significant
	}
	if exponent == 0 {
		return significant
	}
	return significant + "e" + strconv.Itoa(exponent)
}
