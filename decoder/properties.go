package decoder

import (
	"bytes"
	"errors"
	"unicode/utf16"
	"unicode/utf8"
)

// errProperties says that a text is not one of java.util.Properties. It quotes nothing of it.
var errProperties = errors.New(`the text is no java.util.Properties: \u without four hexadecimal digits`)

// ParseProperties reads a text of java.util.Properties, as Debezium has the span context in one column, and
// yields its pairs in order; of a key that comes twice the last value counts, in the place of the first. Key and
// value are valid during the call. An error of yield ends it and is returned. The format is that of
// https://docs.oracle.com/en/java/javase/21/docs/api/java.base/java/util/Properties.html#load(java.io.Reader).
func ParseProperties(text []byte, yield func(key, value []byte) error) error {
	type pair struct{ key, value []byte }
	var pairs []pair
	at := map[string]int{} // the pair's index, by key
	for len(text) > 0 {
		var line []byte
		line, text = logicalLine(text)
		if line = bytes.TrimLeft(line, blanks); len(line) == 0 {
			continue
		}
		end := keyEnd(line)
		key, err := unescape(line[:end])
		if err != nil {
			return err
		}
		value, err := unescape(afterSeparator(line[end:]))
		if err != nil {
			return err
		}
		if i, known := at[string(key)]; known {
			pairs[i].value = value
			continue
		}
		at[string(key)] = len(pairs)
		pairs = append(pairs, pair{key, value})
	}
	for _, p := range pairs {
		if err := yield(p.key, p.value); err != nil {
			return err
		}
	}
	return nil
}

const blanks = " \t\f"

// logicalLine cuts off the first line, with those that it is continued by; a comment is empty.
func logicalLine(text []byte) (line, rest []byte) {
	natural, rest := naturalLine(text)
	if start := bytes.TrimLeft(natural, blanks); len(start) > 0 && (start[0] == '#' || start[0] == '!') {
		return nil, rest
	}
	for continued(natural) {
		line = append(line, natural[:len(natural)-1]...)
		natural, rest = naturalLine(rest)
		natural = bytes.TrimLeft(natural, blanks)
	}
	return append(line, natural...), rest
}

func naturalLine(text []byte) (line, rest []byte) {
	end := bytes.IndexAny(text, "\r\n")
	if end < 0 {
		return text, nil
	}
	rest = text[end+1:]
	if text[end] == '\r' && len(rest) > 0 && rest[0] == '\n' {
		rest = rest[1:]
	}
	return text[:end], rest
}

// continued reports whether a line ends with an odd number of backslashes.
func continued(line []byte) bool {
	return (len(line)-len(bytes.TrimRight(line, `\`)))%2 == 1
}

func keyEnd(line []byte) int {
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '=', ':', ' ', '\t', '\f':
			return i
		}
	}
	return len(line)
}

func afterSeparator(rest []byte) []byte {
	rest = bytes.TrimLeft(rest, blanks)
	if len(rest) > 0 && (rest[0] == '=' || rest[0] == ':') {
		rest = bytes.TrimLeft(rest[1:], blanks)
	}
	return rest
}

// unescape returns text without its escapes, never nil.
func unescape(text []byte) ([]byte, error) {
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			plain = append(plain, text[i])
			continue
		}
		i++
		switch text[i] {
		case 't':
			plain = append(plain, '\t')
		case 'n':
			plain = append(plain, '\n')
		case 'r':
			plain = append(plain, '\r')
		case 'f':
			plain = append(plain, '\f')
		case 'u':
			unit, ok := codeUnit(text[i+1:])
			if !ok {
				return nil, errProperties
			}
			i += 4
			if utf16.IsSurrogate(unit) && bytes.HasPrefix(text[i+1:], []byte(`\u`)) {
				if low, ok := codeUnit(text[i+3:]); ok && utf16.DecodeRune(unit, low) != utf8.RuneError {
					unit = utf16.DecodeRune(unit, low)
					i += 6
				}
			}
			plain = utf8.AppendRune(plain, unit) // half a pair becomes U+FFFD
		default:
			plain = append(plain, text[i])
		}
	}
	return plain, nil
}

// codeUnit reads the four digits of a UTF-16 code unit.
func codeUnit(text []byte) (unit rune, ok bool) {
	if len(text) < 4 {
		return 0, false
	}
	for _, c := range text[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		unit = unit<<4 | rune(c)
	}
	return unit, true
}
