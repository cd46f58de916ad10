package decoder

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReader_Reads(t *testing.T) {
	t.Parallel()
	r := reader{buf: []byte("\x01\x02\x03\x04\x05\x06\x07" + "\x00\x00\x00\x00\x00\x00\x00\x08" + "ab\x00\x00" +
		"\x00\x00\x00\x02xy" + "\x00\x00\x00\x00")}
	require.EqualValues(t, 0x01, r.byte())
	require.EqualValues(t, 0x0203, r.uint16())
	require.EqualValues(t, 0x04050607, r.uint32())
	require.EqualValues(t, 8, r.uint64())
	require.Equal(t, "ab", r.string())
	require.Empty(t, r.string())
	require.Equal(t, []byte("xy"), r.value())
	require.Equal(t, []byte{}, r.value())
	require.Zero(t, r.left())
	r.finish()
	require.Nil(t, r.err)
}

func TestReader_FirstErrorSticks(t *testing.T) {
	t.Parallel()
	reads := map[string]func(*reader) any{
		"byte":   func(r *reader) any { return r.byte() },
		"uint16": func(r *reader) any { return r.uint16() },
		"uint32": func(r *reader) any { return r.uint32() },
		"uint64": func(r *reader) any { return r.uint64() },
		"value":  func(r *reader) any { return r.value() },
		"string": func(r *reader) any { return r.string() },
	}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := reader{buf: []byte("I\x01\x02\x03\x00"), off: 1}
			r.fail(1, "first")
			require.Zero(t, read(&r))
			require.Zero(t, r.left())
			r.finish()
			require.Equal(t, &Error{Message: 'I', Offset: 1, Reason: "first"}, r.err)
		})
		t.Run("short "+name, func(t *testing.T) {
			t.Parallel()
			r := reader{}
			require.Zero(t, read(&r))
			require.NotNil(t, r.err)
			first := r.err
			r.uint64()
			require.Same(t, first, r.err)
		})
	}
}

func TestReader_Bounds(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		buf    string
		read   func(*reader)
		offset int
		reason string
	}{
		"byte":   {"", func(r *reader) { r.byte() }, 0, "want 1 bytes, have 0"},
		"uint16": {"a", func(r *reader) { r.uint16() }, 0, "want 2 bytes, have 1"},
		"uint32": {"abc", func(r *reader) { r.uint32() }, 0, "want 4 bytes, have 3"},
		"uint64": {"abcdefg", func(r *reader) { r.uint64() }, 0, "want 8 bytes, have 7"},
		"string": {"abc", func(r *reader) { r.string() }, 0, "string without its end"},
		"length": {
			"\x00\x00\x00\x03ab", func(r *reader) { r.value() }, 0, "length 3 exceeds the 2 bytes that are left",
		},
		"big length": {
			"\xff\xff\xff\xffab", func(r *reader) { r.value() }, 0, "length 4294967295 exceeds the 2 bytes that are left",
		},
		"count": {
			"abcdef", func(r *reader) { r.byte(); r.count(2, 3) }, 1, "2 elements exceed the 5 bytes that are left",
		},
		"big count": {
			"abcdef", func(r *reader) { r.count(0xffffffff, 4) }, 0, "4294967295 elements exceed the 6 bytes that are left",
		},
		"rest": {"abc", func(r *reader) { r.byte() }, 1, "2 trailing bytes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := reader{buf: []byte(test.buf)}
			test.read(&r)
			r.finish()
			require.NotNil(t, r.err)
			require.Equal(t, test.reason, r.err.Reason)
			require.Equal(t, test.offset, r.err.Offset)
		})
	}
	r := reader{buf: []byte("abcdef")}
	require.Equal(t, 2, r.count(2, 3))
}
