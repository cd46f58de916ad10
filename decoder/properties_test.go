package decoder_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/decoder"
)

func TestParseProperties(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{" \n\t\r\n\f", nil},
		// As Properties.store writes it: a comment with the date, colons escaped.
		{
			"#Mon Jan 05 10:11:12 UTC 2026\ntraceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n" +
				"uber-trace-id=de4cb1c8b9e1a9f4\\:1f2\\:0\\:1\n",
			[]string{
				"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
				"uber-trace-id", "de4cb1c8b9e1a9f4:1f2:0:1",
			},
		},
		{"tracestate=a\\=1,b\\=2", []string{"tracestate", "a=1,b=2"}},
		{"tracestate=a=1,b=2", []string{"tracestate", "a=1,b=2"}},
		{"a:1\rb 2\r\nc \t=\t3 \n d\te\f", []string{"a", "1", "b", "2", "c", "3 ", "d", "e\f"}},
		{"a = : 1", []string{"a", ": 1"}},
		{"  ! c=1\n#\\\nkey", []string{"key", ""}},
		{"a\\ b\\:c\\=d=e", []string{"a b:c=d", "e"}},
		{"a=1,\\\n   2,\\\r\n\t3\nb=\\\\\nc=4", []string{"a", "1,2,3", "b", "\\", "c", "4"}},
		{"a=x\\\n#y", []string{"a", "x#y"}},
		{"a=\\t\\n\\r\\f\\q\\\"", []string{"a", "\t\n\r\fq\""}},
		{"\\u00e9=\\u20AC \\ud83d\\ude00 \\ud83d \\ud83d\\u0041 é", []string{"é", "€ 😀 \ufffd \ufffdA é"}},
		{"a=1\nb=2\na=3", []string{"a", "3", "b", "2"}},
		{"a=1\\", []string{"a", "1"}},
		{"=v", []string{"", "v"}},
	} {
		var got []string
		require.NoError(t, decoder.ParseProperties([]byte(c.text), func(key, value []byte) error {
			require.NotNil(t, value)
			got = append(got, string(key), string(value))
			return nil
		}), "%q", c.text)
		require.Equal(t, c.want, got, "%q", c.text)
	}
	for _, bad := range []string{`a=\u`, `a=\u12`, `a=\u12g4`, `\uzzzz=1`, `a=1` + "\n" + `b=\u00`} {
		err := decoder.ParseProperties([]byte(bad), func(_, _ []byte) error { return nil })
		require.ErrorContains(t, err, "java.util.Properties")
	}
	stop := errors.New("stop")
	require.ErrorIs(t, decoder.ParseProperties([]byte("a=1"), func(_, _ []byte) error { return stop }), stop)
}

func FuzzParseProperties(f *testing.F) {
	f.Add([]byte("#c\na=\\u0041\\\n b"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		_ = decoder.ParseProperties(text, func(_, _ []byte) error { return nil })
	})
}
