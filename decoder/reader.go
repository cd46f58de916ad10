package decoder

import (
	"bytes"
	"encoding/binary"
	"strconv"
)

// reader reads the fields of one message, each checked against the bytes that are left.
//
// The first failure sticks: it moves the reader to the end, where every further read finds too few
// bytes and returns a zero value. A decoder therefore reads a whole structure and looks at err once,
// except where it is about to allocate or to loop by a number that it has just read.
type reader struct {
	buf []byte
	off int
	err *Error
}

// fail records the first failure; at is an offset into the message.
func (r *reader) fail(at int, reason string) {
	if r.err == nil {
		r.err = &Error{Offset: at, Reason: reason}
		if len(r.buf) > 0 {
			r.err.Message = r.buf[0]
		}
	}
	r.off = len(r.buf)
}

// short is apart from the reads so that these stay small enough to be inlined.
func (r *reader) short(want int) {
	r.fail(r.off, "want "+strconv.Itoa(want)+" bytes, have "+strconv.Itoa(r.left()))
}

// left is the number of unread bytes.
func (r *reader) left() int { return len(r.buf) - r.off }

func (r *reader) byte() byte {
	if r.left() < 1 {
		r.short(1)
		return 0
	}
	v := r.buf[r.off]
	r.off++
	return v
}

func (r *reader) uint16() uint16 {
	if r.left() < 2 {
		r.short(2)
		return 0
	}
	v := binary.BigEndian.Uint16(r.buf[r.off:])
	r.off += 2
	return v
}

func (r *reader) uint32() uint32 {
	if r.left() < 4 {
		r.short(4)
		return 0
	}
	v := binary.BigEndian.Uint32(r.buf[r.off:])
	r.off += 4
	return v
}

func (r *reader) uint64() uint64 {
	if r.left() < 8 {
		r.short(8)
		return 0
	}
	v := binary.BigEndian.Uint64(r.buf[r.off:])
	r.off += 8
	return v
}

// value reads a 32 bit length and as many bytes. They alias the message; they are nil only after a
// failure, and their capacity ends with them.
func (r *reader) value() []byte {
	n := r.uint32()
	if r.err != nil {
		return nil
	}
	if int64(n) > int64(r.left()) {
		r.fail(r.off-4, "length "+strconv.FormatUint(uint64(n), 10)+" exceeds the "+
			strconv.Itoa(r.left())+" bytes that are left")
		return nil
	}
	end := r.off + int(n)
	v := r.buf[r.off:end:end]
	r.off = end
	return v
}

// string reads the bytes before the next NUL, and the NUL.
func (r *reader) string() string {
	n := bytes.IndexByte(r.buf[r.off:], 0)
	if n < 0 {
		r.fail(r.off, "string without its end")
		return ""
	}
	v := string(r.buf[r.off : r.off+n])
	r.off += n + 1
	return v
}

// stringLike is string without an allocation when the text is last's, as prefixes come in runs.
func (r *reader) stringLike(last string) string {
	n := bytes.IndexByte(r.buf[r.off:], 0)
	if n != len(last) || string(r.buf[r.off:r.off+n]) != last {
		return r.string()
	}
	r.off += n + 1
	return last
}

// count accepts n elements of at least size bytes each only if the bytes that are left can hold
// them, so that no allocation is sized by a number that the message does not bear out.
func (r *reader) count(n uint32, size int) int {
	if int64(n)*int64(size) > int64(r.left()) {
		r.fail(r.off, strconv.FormatUint(uint64(n), 10)+" elements exceed the "+
			strconv.Itoa(r.left())+" bytes that are left")
		return 0
	}
	return int(n)
}

// finish fails when bytes are left over.
func (r *reader) finish() {
	if n := r.left(); n > 0 {
		r.fail(r.off, strconv.Itoa(n)+" trailing bytes")
	}
}
