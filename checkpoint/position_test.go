package checkpoint_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/walrelay/walrelay/checkpoint"
)

func TestPosition_Text(t *testing.T) {
	t.Parallel()
	p := checkpoint.Position{Epoch: 1, Timeline: 0x2A, LSN: 0x16_B374D848, Index: 0xFFFFFFFF}
	require.Equal(t, "00000001-0000002A-00000016B374D848-FFFFFFFF", p.String())
	require.Equal(t, "at "+p.String(), string(p.Append([]byte("at "))))
	require.False(t, p.IsZero())
	require.True(t, checkpoint.Position{}.IsZero())
}

func anyPosition() *rapid.Generator[checkpoint.Position] {
	// Small values make neighbours that differ in one field only; large ones every digit.
	u32 := rapid.OneOf(rapid.Uint32Range(0, 2), rapid.Uint32())
	lsn := rapid.OneOf(rapid.Uint64Range(0, 2), rapid.Uint64())
	return rapid.Custom(func(t *rapid.T) checkpoint.Position {
		return checkpoint.Position{
			Epoch:    u32.Draw(t, "epoch"),
			Timeline: u32.Draw(t, "timeline"),
			LSN:      pglogrepl.LSN(lsn.Draw(t, "lsn")),
			Index:    u32.Draw(t, "index"),
		}
	})
}

func TestPosition_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := anyPosition().Draw(t, "position")
		text := p.String()
		require.Len(t, text, checkpoint.PositionLen)
		for _, s := range []string{text, strings.ToLower(text)} {
			got, err := checkpoint.ParsePosition(s)
			require.NoError(t, err)
			require.Equal(t, p, got)
		}
	})
}

func TestPosition_ByteOrderIsStreamOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, q := anyPosition().Draw(t, "p"), anyPosition().Draw(t, "q")
		require.Equal(t, p.Compare(q), cmp.Compare(p.String(), q.String()))
		require.Equal(t, p.Compare(q), -q.Compare(p))
	})
}

// The order of the fields is the order of their weight, whatever the generator happens to draw.
func TestPosition_Compare(t *testing.T) {
	t.Parallel()
	ascending := []checkpoint.Position{
		{},
		{Index: 1},
		{LSN: 1},
		{LSN: 1, Index: 1},
		{Timeline: 1},
		{Timeline: 1, LSN: 0xFFFFFFFF, Index: 9},
		{Timeline: 1, LSN: 0x1_00000000},
		{Timeline: 2},
		{Epoch: 1},
		{Epoch: 1, Timeline: 1},
		{Epoch: 2},
	}
	for i, p := range ascending {
		for j, q := range ascending {
			require.Equal(t, cmp.Compare(i, j), p.Compare(q), "%s with %s", p, q)
		}
	}
}

func TestParsePosition_Rejects(t *testing.T) {
	t.Parallel()
	const good = "00000001-00000002-0000000000000003-00000004"
	_, err := checkpoint.ParsePosition(good)
	require.NoError(t, err)
	for name, s := range map[string]string{
		"empty":            "",
		"short":            good[1:],
		"long":             good + "0",
		"leading space":    " " + good[1:],
		"trailing newline": good[:len(good)-1] + "\n",
		"first dash gone":  strings.Replace(good, "-", "0", 1),
		"last dash gone":   good[:34] + "0" + good[35:],
		"dash moved":       "0000001-000000002-0000000000000003-00000004",
		"not hex":          strings.Replace(good, "3", "g", 1),
		"sign":             "+0000001" + good[8:],
		"prefix":           "0x000001" + good[8:],
		"underscore":       "0000_001" + good[8:],
		"LSN text":         "00000001-00000002-0/16B374D8-----0-00000004",
		"wide character":   "é000001" + good[8:],
	} {
		p, err := checkpoint.ParsePosition(s)
		require.ErrorIs(t, err, checkpoint.ErrPosition, name)
		require.Zero(t, p, name)
	}
}

func FuzzParsePosition(f *testing.F) {
	f.Add("00000001-00000002-0000000000000003-00000004")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := checkpoint.ParsePosition(s)
		if err != nil {
			require.ErrorIs(t, err, checkpoint.ErrPosition)
			return
		}
		require.True(t, strings.EqualFold(s, p.String()))
	})
}

func TestPosition_AppendAllocatesNothing(t *testing.T) {
	p := checkpoint.Position{Epoch: 1, Timeline: 1, LSN: 1, Index: 1}
	buf := make([]byte, 0, checkpoint.PositionLen)
	require.Zero(t, testing.AllocsPerRun(100, func() { buf = p.Append(buf[:0]) }))
}

func BenchmarkPosition_Append(b *testing.B) {
	p := checkpoint.Position{Epoch: 1, Timeline: 1, LSN: 0x16_B374D848}
	buf := make([]byte, 0, checkpoint.PositionLen)
	b.ReportAllocs()
	for b.Loop() {
		p.Index++
		buf = p.Append(buf[:0])
	}
}
