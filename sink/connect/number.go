package connect

import (
	"math"
	"strconv"
	"strings"
)

// appendDouble appends a number as Java's Double.toString prints it (Float.toString, for 32 bits): the shortest
// digits that tell it from its neighbours, with an exponent below 10^-3 and from 10^7 on. What is no number is
// quoted, as Jackson does.
func appendDouble(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	abs := math.Abs(f)
	if abs == 0 || abs >= 1e-3 && abs < 1e7 {
		s := strconv.FormatFloat(f, 'f', -1, bits)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return append(dst, s...)
	}
	text := strconv.FormatFloat(f, 'e', -1, bits)
	if !strings.Contains(text, ".") {
		text = strconv.FormatFloat(f, 'e', 1, bits) // of two digits Java takes the nearest, too: 4.9E-324
	}
	mantissa, exponent, _ := strings.Cut(text, "e")
	sign := ""
	if exponent[0] == '-' {
		sign = "-"
	}
	return append(dst, mantissa+"E"+sign+strings.TrimLeft(exponent, "+-0")...)
}
