package consumer

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
)

// Position is where an event stands in its stream. Positions grow per stream, topic and partition, across
// restarts of walrelay and failovers of its database. The zero Position is before all others.
type Position struct {
	Epoch    uint32 // raised when the order before it cannot be compared with the order after it
	Timeline uint32 // PostgreSQL's timeline on which the commit was written
	LSN      uint64 // of the commit record in the write-ahead log
	Index    uint32 // of the event in its transaction, from 0
}

// ErrPosition is returned for what is no position.
var ErrPosition = errors.New("not a position: want EEEEEEEE-TTTTTTTT-LLLLLLLLLLLLLLLL-NNNNNNNN in hex")

const positionLen = 8 + 1 + 8 + 1 + 16 + 1 + 8

// Compare is -1 when p comes first, +1 when q does, 0 when they are the same.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Epoch, q.Epoch), cmp.Compare(p.Timeline, q.Timeline),
		cmp.Compare(p.LSN, q.LSN), cmp.Compare(p.Index, q.Index))
}

// IsZero reports that p is no event's position.
func (p Position) IsZero() bool { return p == Position{} }

// String is the text of the header: fixed width, so that comparing bytes compares positions.
func (p Position) String() string {
	return fmt.Sprintf("%08X-%08X-%016X-%08X", p.Epoch, p.Timeline, p.LSN, p.Index)
}

// ParsePosition reads the text of a position, in either case. The error wraps ErrPosition.
func ParsePosition(s string) (Position, error) {
	if len(s) != positionLen || s[8] != '-' || s[17] != '-' || s[34] != '-' {
		return Position{}, fmt.Errorf("%d bytes: %w", len(s), ErrPosition)
	}
	digits := s[:8] + s[9:17] + s[18:34] + s[35:]
	if _, err := hex.DecodeString(digits); err != nil {
		return Position{}, ErrPosition
	}
	part := func(from, to int) uint64 {
		v, _ := strconv.ParseUint(digits[from:to], 16, 64) // hex digits, as just seen
		return v
	}
	return Position{
		Epoch: uint32(part(0, 8)), Timeline: uint32(part(8, 16)), LSN: part(16, 32), Index: uint32(part(32, 40)),
	}, nil
}
