package connect

import (
	"unicode/utf16"
	"unicode/utf8"
)

// AppendString appends text as a JSON string the way Jackson's UTF-8 generator does: quotes, backslashes and control
// characters are escaped and what is beyond the basic plane is a pair of \u escapes; everything else is left alone.
func AppendString(dst, text []byte) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			dst = appendASCII(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		if r > 0xFFFF {
			high, low := utf16.EncodeRune(r)
			dst = appendEscape(appendEscape(dst, high), low)
		} else {
			dst = append(dst, text[i:i+n]...)
		}
		i += n
	}
	return append(dst, '"')
}

func appendASCII(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	if c < ' ' {
		return appendEscape(dst, rune(c))
	}
	return append(dst, c)
}

func appendEscape(dst []byte, unit rune) []byte {
	const digits = "0123456789ABCDEF"
	return append(dst, '\\', 'u', digits[unit>>12&15], digits[unit>>8&15], digits[unit>>4&15], digits[unit&15])
}
