package outbox

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"sync/atomic"
	"time"
)

// lastTick is the time in the newest id of this process.
var lastTick atomic.Uint64 //nolint:gochecknoglobals // ids grow within a process, whoever makes them

// NewID returns a UUID of version 7 (RFC 9562): 48 bits of milliseconds since 1970, 12 bits that divide
// the millisecond (its method 3), 62 random bits. Such ids fill the primary key's index at its end instead
// of all over. Within a process each is greater than all before it, also when the clock goes back.
func NewID() string {
	now := time.Now().UnixNano()
	tick := uint64(now/1e6)<<12 | uint64(now%1e6)*4096/1e6
	for {
		last := lastTick.Load()
		tick = max(tick, last+1)
		if lastTick.CompareAndSwap(last, tick) {
			break
		}
	}
	var u [16]byte
	_, _ = rand.Read(u[8:]) // never fails: https://pkg.go.dev/crypto/rand#Read
	binary.BigEndian.PutUint64(u[:], tick>>12<<16|tick&0xfff)
	return format(u, 7)
}

// format sets version and variant and returns the UUID's text.
func format(u [16]byte, version byte) string {
	u[6] = u[6]&0x0f | version<<4
	u[8] = u[8]&0x3f | 0x80
	h := hex.EncodeToString(u[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
