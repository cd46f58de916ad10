package fence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// Token is a fencing token: of two for the same resource the larger one is the newer authority. As an
// integer it fits PostgreSQL's bigint: 23 bits of term above 40 bits of counter. Tokens of other sources
// (a revision of etcd, a zxid of ZooKeeper) are taken as they are. The zero Token is none.
type Token int64

const (
	counterBits = 40
	maxTerm     = 1<<23 - 1
	maxCounter  = 1<<counterBits - 1

	// TokenLen is the length of a token's text.
	TokenLen = 6 + 1 + 10
)

// ErrToken is returned for what is no token.
var ErrToken = errors.New("not a fencing token: want TTTTTT-CCCCCCCCCC in hex, above zero")

// NewToken puts a token together, for sources of one's own that count in terms. The error wraps ErrToken
// when a part is too large: terms end at 8,388,607, counters at 1,099,511,627,775.
func NewToken(term, counter uint64) (Token, error) {
	if term > maxTerm || counter > maxCounter || term == 0 && counter == 0 {
		return 0, fmt.Errorf("term %d, counter %d: %w", term, counter, ErrToken)
	}
	return Token(term<<counterBits | counter), nil
}

// Term is the part that grows with each failover.
func (t Token) Term() uint64 { return uint64(t) >> counterBits }

// Counter is the part that grows with each token.
func (t Token) Counter() uint64 { return uint64(t) & maxCounter }

// String is the text for headers and logs: six hex digits of term, a dash, ten of counter. Fixed width,
// so that comparing bytes compares tokens.
func (t Token) String() string { return fmt.Sprintf("%06X-%010X", t.Term(), t.Counter()) }

// Bytes are eight bytes whose order is that of tokens, for stores without integers.
func (t Token) Bytes() []byte { return binary.BigEndian.AppendUint64(nil, uint64(t)) }

// ParseToken reads the text of a token, in either case. The error wraps ErrToken.
func ParseToken(s string) (Token, error) {
	if len(s) != TokenLen || s[6] != '-' {
		return 0, fmt.Errorf("%d bytes: %w", len(s), ErrToken)
	}
	v, err := strconv.ParseUint(s[:6]+s[7:], 16, 63)
	if err != nil || v == 0 {
		return 0, ErrToken
	}
	return Token(v), nil
}

// TokenFromBytes reads what Bytes returned. The error wraps ErrToken.
func TokenFromBytes(b []byte) (Token, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("%d bytes: %w", len(b), ErrToken)
	}
	t := Token(binary.BigEndian.Uint64(b))
	if t <= 0 {
		return 0, ErrToken
	}
	return t, nil
}
