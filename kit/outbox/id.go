package outbox

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// newID returns a UUID of version 7 (RFC 9562): 48 bits of milliseconds since 1970, then random bits.
// Such ids fill the primary key's index at its end instead of all over.
func newID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails: https://pkg.go.dev/crypto/rand#Read
	var stamp [8]byte
	binary.BigEndian.PutUint64(stamp[:], uint64(time.Now().UnixMilli()))
	copy(u[:6], stamp[2:])
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	h := hex.EncodeToString(u[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
