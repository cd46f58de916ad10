package inbox

import (
	"errors"
	"fmt"
)

// Position is the header walrelay-position: EEEEEEEE-TTTTTTTT-LLLLLLLLLLLLLLLL-NNNNNNNN in upper-case
// hexadecimal, 43 bytes, of which the order of bytes is the order of the stream.
type Position string

// noPosition is how a type for positions may print one that isn't there.
const noPosition Position = "00000000-00000000-0000000000000000-00000000"

// None reports that there is no position: no text, or all zeros, which no event has.
func (p Position) None() bool { return p == "" || p == noPosition }

// ErrPosition is returned for what is not a position.
var ErrPosition = errors.New("not a position: want EEEEEEEE-TTTTTTTT-LLLLLLLLLLLLLLLL-NNNNNNNN in upper-case hex")

// Validate reports whether p is the text of a position. Anything else would compare wrongly.
func (p Position) Validate() error {
	const form = "xxxxxxxx-xxxxxxxx-xxxxxxxxxxxxxxxx-xxxxxxxx"
	if len(p) != len(form) {
		return fmt.Errorf("%d bytes: %w", len(p), ErrPosition)
	}
	for i := range len(form) {
		c := p[i]
		hex := '0' <= c && c <= '9' || 'A' <= c && c <= 'F'
		if form[i] == '-' && c != '-' || form[i] == 'x' && !hex {
			return fmt.Errorf("byte %d: %w", i, ErrPosition)
		}
	}
	return nil
}
