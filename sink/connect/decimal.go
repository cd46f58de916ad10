package connect

import (
	"bytes"
	"encoding/base64"
	"math/big"
	"strconv"
)

// decimal is a number as java.math.BigDecimal holds it: unscaled / 10^scale.
type decimal struct {
	unscaled big.Int
	scale    int
}

// parseDecimal reads a numeric as PostgreSQL prints it, without an exponent.
func parseDecimal(text []byte) (decimal, error) {
	whole, fraction, _ := bytes.Cut(text, []byte{'.'})
	d := decimal{scale: len(fraction)}
	if _, ok := d.unscaled.SetString(string(whole)+string(fraction), 10); !ok {
		return d, ErrValue
	}
	return d, nil
}

// appendFreeDecimal appends a numeric without a scale of its own: the fewest digits, and their scale.
func appendFreeDecimal(dst, text []byte) ([]byte, error) {
	d, err := parseDecimal(text)
	if err != nil {
		return dst, err
	}
	d.strip()
	dst = strconv.AppendInt(append(dst, `{"scale":`...), int64(d.scale), 10)
	return append(d.appendBase64(append(dst, `,"value":"`...)), `"}`...), nil
}

// strip drops the zeros at the end of a fraction.
func (d *decimal) strip() {
	ten, rest := big.NewInt(10), new(big.Int)
	for d.scale > 0 {
		quotient := new(big.Int)
		if quotient.QuoRem(&d.unscaled, ten, rest); rest.Sign() != 0 {
			return
		}
		d.unscaled.Set(quotient)
		d.scale--
	}
}

// appendBase64 appends the unscaled value as BigInteger.toByteArray has it: the fewest bytes in two's complement, the
// highest first.
func (d *decimal) appendBase64(dst []byte) []byte {
	size := new(big.Int).Not(&d.unscaled).BitLen()/8 + 1
	if d.unscaled.Sign() >= 0 {
		size = d.unscaled.BitLen()/8 + 1
	}
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(size)*8)
	raw := new(big.Int).Mod(&d.unscaled, modulus).FillBytes(make([]byte, size))
	return base64.StdEncoding.AppendEncode(dst, raw)
}

// appendText appends what BigDecimal.toString prints: with an exponent below 10^-6.
func (d *decimal) appendText(dst []byte) []byte {
	digits := d.unscaled.Text(10)
	if digits[0] == '-' {
		dst, digits = append(dst, '-'), digits[1:]
	}
	exponent := len(digits) - 1 - d.scale
	switch {
	case d.scale == 0:
		return append(dst, digits...)
	case exponent < -6 || d.scale < 0:
		dst = append(dst, digits[0])
		if len(digits) > 1 {
			dst = append(append(dst, '.'), digits[1:]...)
		}
		if dst = append(dst, 'E'); exponent > 0 {
			dst = append(dst, '+')
		}
		return strconv.AppendInt(dst, int64(exponent), 10)
	}
	for len(digits) <= d.scale {
		digits = "0" + digits
	}
	point := len(digits) - d.scale
	return append(append(append(dst, digits[:point]...), '.'), digits[point:]...)
}
