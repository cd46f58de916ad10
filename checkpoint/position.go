package checkpoint

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
)

// Position names one event of a stream. Positions are totally ordered and grow along the
// stream, across restarts and database failover.
type Position struct {
	// Epoch is raised whenever the order before it can no longer be compared with the order after it.
	Epoch uint32
	// Timeline is the PostgreSQL timeline on which the commit record was written.
	Timeline uint32
	// LSN is the start of the transaction's commit record (Begin's final LSN), not its end.
	LSN pglogrepl.LSN
	// Index counts the inserts (and accepted logical messages) of the transaction from 0, poison included.
	Index uint32
}

// PositionLen is the length of a position's text: 8-8-16-8 hex digits and three dashes.
const PositionLen = 8 + 1 + 8 + 1 + 16 + 1 + 8

// ErrPosition is returned by ParsePosition for anything but the 43 byte text of a position.
var ErrPosition = errors.New(
	"not a position: want EEEEEEEE-TTTTTTTT-LLLLLLLLLLLLLLLL-NNNNNNNN in hex, as the header walrelay-position has it")

// Append appends the fixed-width upper-case hex text of p, whose byte order is stream order.
func (p Position) Append(dst []byte) []byte {
	dst = appendHex(dst, uint64(p.Epoch), 8)
	dst = append(dst, '-')
	dst = p.AppendTransaction(dst)
	dst = append(dst, '-')
	return appendHex(dst, uint64(p.Index), 8)
}

// AppendTransaction appends the part of p's text that all events of a transaction share and no epoch changes:
// TTTTTTTT-LLLLLLLLLLLLLLLL.
func (p Position) AppendTransaction(dst []byte) []byte {
	dst = appendHex(dst, uint64(p.Timeline), 8)
	dst = append(dst, '-')
	return appendHex(dst, uint64(p.LSN), 16)
}

// String returns the text that Append writes.
func (p Position) String() string { return string(p.Append(make([]byte, 0, PositionLen))) }

// IsZero reports whether p is the zero position, which no event has.
func (p Position) IsZero() bool { return p == Position{} }

// Compare orders positions along the stream: -1 when p comes first, +1 when q does, 0 when equal.
func (p Position) Compare(q Position) int {
	return cmp.Or(
		cmp.Compare(p.Epoch, q.Epoch),
		cmp.Compare(p.Timeline, q.Timeline),
		cmp.Compare(p.LSN, q.LSN),
		cmp.Compare(p.Index, q.Index),
	)
}

// ParsePosition reads the text of a position, in either case. The error wraps ErrPosition.
func ParsePosition(s string) (Position, error) {
	if len(s) != PositionLen || s[8] != '-' || s[17] != '-' || s[34] != '-' {
		return Position{}, fmt.Errorf("%q: %w", s, ErrPosition)
	}
	var raw [20]byte
	if _, err := hex.Decode(raw[:], []byte(s[0:8]+s[9:17]+s[18:34]+s[35:43])); err != nil {
		return Position{}, fmt.Errorf("%q: %w", s, ErrPosition)
	}
	return Position{
		Epoch:    uint32(bigEndian(raw[0:4])),
		Timeline: uint32(bigEndian(raw[4:8])),
		LSN:      pglogrepl.LSN(bigEndian(raw[8:16])),
		Index:    uint32(bigEndian(raw[16:20])),
	}, nil
}

func bigEndian(b []byte) (v uint64) {
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

func appendHex(dst []byte, v uint64, digits int) []byte {
	const hexDigits = "0123456789ABCDEF"
	for shift := (digits - 1) * 4; shift >= 0; shift -= 4 {
		dst = append(dst, hexDigits[v>>shift&0xf])
	}
	return dst
}
