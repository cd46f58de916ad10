package cdc

import (
	"io"
	"net"
	"syscall"
	"time"
)

// burst reads the replication connection in large pieces.
//
// The server sends each message with a system call of its own, and each one wakes a waiting reader;
// on a busy stream that costs both sides most of their time. So while the stream is busy, burst lets
// a few milliseconds of messages gather before it reads, and raises SO_RCVLOWAT meanwhile, since
// the runtime's poller would be woken by every segment even though nobody waits. An idle stream is
// read at once. Longer pauses fill the socket's buffer and make the server wait.
//
// Unix sockets are read without pauses: the server is faster there and the buffer small.
type burst struct {
	r io.Reader
	// before is called whenever the next read will touch the socket: everything received so far has
	// been handled. It sets the read's deadline.
	before func(busy bool) error

	raw   syscall.RawConn // of a TCP connection; nil otherwise
	timer *time.Timer

	buf    []byte
	rd, wr int

	last time.Time // of the last byte

	busy        bool
	windowStart time.Time
	windowBytes int
}

const (
	burstBuffer   = 256 << 10
	burstPause    = 4 * time.Millisecond
	burstLowWater = 1 << 20 // more than a pause brings; the kernel clamps it to half the largest buffer

	// A stream is busy when a pause's time brings so many bytes, about fifty small events; it stays
	// busy while pauses bring half of that.
	busyBytes = 16 << 10
)

func newBurst(r io.Reader) *burst {
	return &burst{r: r, buf: make([]byte, burstBuffer), last: time.Now()}
}

// pausable says that conn is what the bytes come from in the end: pauses need its socket.
func (b *burst) pausable(conn net.Conn) {
	if tls, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = tls.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		b.raw, b.timer = raw, time.NewTimer(time.Hour)
	}
}

// Read implements io.Reader for the protocol's framing.
func (b *burst) Read(p []byte) (int, error) {
	if b.rd == b.wr {
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.buf[b.rd:b.wr])
	b.rd += n
	return n, nil
}

func (b *burst) fill() error {
	if b.before != nil {
		if err := b.before(b.busy); err != nil {
			return err
		}
	}
	if b.busy && b.wr < len(b.buf) { // a read that filled the buffer left something behind
		b.gather()
	}
	n, err := b.r.Read(b.buf)
	b.rd, b.wr = 0, n
	at := time.Now()
	if n > 0 {
		b.last = at
	}
	if b.raw != nil {
		b.judge(n, at)
	}
	if n > 0 {
		return nil // an error comes again with the next read
	}
	return err
}

// gather waits for a pause while the kernel collects.
func (b *burst) gather() {
	b.lowWater(burstLowWater)
	b.timer.Reset(burstPause)
	<-b.timer.C
	b.lowWater(1) // the last bytes must not wait for more
}

// judge decides whether the stream is busy, by the rate of arrival.
func (b *burst) judge(n int, at time.Time) {
	if b.busy {
		b.busy = n >= busyBytes/2
		b.windowStart, b.windowBytes = time.Time{}, 0
		return
	}
	b.windowBytes += n
	elapsed := at.Sub(b.windowStart)
	if elapsed < burstPause {
		return
	}
	b.busy = int64(b.windowBytes)*int64(burstPause) >= busyBytes*int64(elapsed)
	b.windowStart, b.windowBytes = at, 0
}

func (b *burst) lowWater(bytes int) {
	_ = b.raw.Control(func(fd uintptr) { setLowWater(fd, bytes) }) // without it there are more wake-ups, nothing worse
}
