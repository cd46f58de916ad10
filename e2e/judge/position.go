package judge

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"regexp"
	"strings"
)

// position is the header walrelay-position: epoch, timeline, commit LSN and index, each big-endian, so
// that bytes compare as positions do. The zero value is no position.
type position [20]byte

// positionText is the text's fixed form.
var positionText = regexp.MustCompile(`^[0-9A-F]{8}-[0-9A-F]{8}-[0-9A-F]{16}-[0-9A-F]{8}$`)

func parsePosition(text string) (p position, ok bool) {
	if !positionText.MatchString(text) {
		return p, false
	}
	_, err := hex.Decode(p[:], []byte(strings.ReplaceAll(text, "-", "")))
	return p, err == nil
}

func (p position) less(o position) bool { return bytes.Compare(p[:], o[:]) < 0 }

func (p position) epoch() uint32 { return binary.BigEndian.Uint32(p[:]) }

func (p position) timeline() uint32 { return binary.BigEndian.Uint32(p[4:]) }

// commit is timeline and commit LSN, which are the same for all events of a transaction.
func (p position) commit() (c commit) {
	copy(c[:], p[4:])
	return c
}

type commit [12]byte
