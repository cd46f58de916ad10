package fence_test

import (
	"bytes"
	"cmp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/walrelay/walrelay/kit/fence"
)

func TestToken_FormsKeepOrder(t *testing.T) {
	t.Parallel()
	token := rapid.Custom(func(t *rapid.T) fence.Token {
		token, err := fence.NewToken(
			rapid.Uint64Range(0, 1<<23-1).Draw(t, "term"), rapid.Uint64Range(1, 1<<40-1).Draw(t, "counter"))
		require.NoError(t, err)
		return token
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := token.Draw(t, "a"), token.Draw(t, "b")
		want := cmp.Or(cmp.Compare(a.Term(), b.Term()), cmp.Compare(a.Counter(), b.Counter()))
		require.Equal(t, want, cmp.Compare(a, b))
		require.Equal(t, want, strings.Compare(a.String(), b.String()))
		require.Equal(t, want, bytes.Compare(a.Bytes(), b.Bytes()))
		again, err := fence.ParseToken(strings.ToLower(a.String()))
		require.NoError(t, err)
		require.Equal(t, a, again)
		again, err = fence.TokenFromBytes(a.Bytes())
		require.NoError(t, err)
		require.Equal(t, a, again)
	})
}

func TestToken_Text(t *testing.T) {
	t.Parallel()
	token, err := fence.NewToken(3, 255)
	require.NoError(t, err)
	require.Equal(t, "000003-00000000FF", token.String())
	require.Len(t, token.String(), fence.TokenLen)
	for _, text := range []string{
		"", "000003-00000000F", "000003-00000000FFF", "000003 00000000FF", "00000g-00000000FF", "000000-0000000000",
		"800000-0000000000", "+00003-00000000FF", "000003-+0000000FF",
	} {
		_, err := fence.ParseToken(text)
		require.ErrorIs(t, err, fence.ErrToken, text)
	}
	for _, b := range [][]byte{nil, make([]byte, 7), make([]byte, 8), bytes.Repeat([]byte{0xff}, 8)} {
		_, err := fence.TokenFromBytes(b)
		require.ErrorIs(t, err, fence.ErrToken)
	}
	for _, parts := range [][2]uint64{{0, 0}, {1 << 23, 0}, {0, 1 << 40}} {
		_, err := fence.NewToken(parts[0], parts[1])
		require.ErrorIs(t, err, fence.ErrToken)
	}
}
