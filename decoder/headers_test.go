package decoder_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/decoder"
)

// header holds a nil value apart from an empty one.
type header struct {
	key   string
	value any
}

func parseHeaders(object []byte) (headers []header, err error) {
	err = decoder.ParseHeaders(object, func(key, value []byte) error {
		h := header{key: string(key)}
		if value != nil {
			h.value = string(value)
		}
		headers = append(headers, h)
		return nil
	})
	return headers, err
}

func TestParseHeaders(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		object string
		want   []header
	}{
		"empty":      {`{}`, nil},
		"empty wide": {" \t\r\n{ } ", nil},
		"null":       {` null `, nil},
		"string":     {`{"a":"b"}`, []header{{"a", "b"}}},
		"jsonb":      {`{"a": "b", "c": "d"}`, []header{{"a", "b"}, {"c", "d"}}},
		"wide":       {"{ \"a\"\n:\t1 , \"b\" : \"c\" }", []header{{"a", "1"}, {"b", "c"}}},
		"order":      {`{"b":"1","a":"2","b":"3"}`, []header{{"b", "1"}, {"a", "2"}, {"b", "3"}}},
		"null value": {`{"a":null,"b":""}`, []header{{"a", nil}, {"b", ""}}},
		"empty key":  {`{"":"x"}`, []header{{"", "x"}}},
		"numbers": {
			`{"a":9007199254740993,"b":1.10,"c":-0,"d":1E400}`,
			[]header{{"a", "9007199254740993"}, {"b", "1.10"}, {"c", "-0"}, {"d", "1E400"}},
		},
		"words": {`{"a":true,"b":false}`, []header{{"a", "true"}, {"b", "false"}}},
		"nested": {
			`{"a":[1, {"x":"]}\"" }],"b":{"y":[[]], "z":{}},"c":[]}`,
			[]header{{"a", `[1, {"x":"]}\"" }]`}, {"b", `{"y":[[]], "z":{}}`}, {"c", "[]"}},
		},
		"escapes": {
			`{"\"\\\/\b\f\n\r\t":"\u0041\u00e9\u20ac\ud83d\ude00z"}`, []header{{"\"\\/\b\f\n\r\t", "Aé€😀z"}},
		},
		"escape ends": {`{"a\\":"\\"}`, []header{{`a\`, `\`}}},
		"NUL":         {`{"a":"\u0000"}`, []header{{"a", "\x00"}}},
		"unicode":     {`{"ключ":"値"}`, []header{{"ключ", "値"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseHeaders([]byte(test.object))
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
	got, err := parseHeaders(nil)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestParseHeaders_Refuses(t *testing.T) {
	t.Parallel()
	for _, object := range []string{
		``, ` `, `{`, `}`, `[]`, `"secret"`, `1`, `true`, `nul`, `{}{}`, `{} x`, `{"a"}`, `{"a":}`, `{"a":1,}`,
		`{a:1}`, `{"a":01}`, `{"a":"\x"}`, `{"a":"` + "\n" + `"}`, `{"secret":"\ud800"}`, `{"a":"\udc00\ud800"}`,
		`{"a":"\ud800\n00"}`, `{"a":"\ud800\u0041"}`, `{"\ud800":"a"}`, `{"a":"\ud800xxxxxxx"}`,
		`{"a":` + strings.Repeat("[", 100_000),
	} {
		_, err := parseHeaders([]byte(object))
		require.ErrorIs(t, err, decoder.ErrHeaders, "%.40s", object)
		require.Equal(t, decoder.ErrHeaders.Error(), err.Error())
	}
}

func TestParseHeaders_YieldErrorEndsIt(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	calls := 0
	err := decoder.ParseHeaders([]byte(`{"a":1,"b":2}`), func(_, _ []byte) error {
		calls++
		return enough
	})
	require.Equal(t, enough, err)
	require.Equal(t, 1, calls)
}

// FuzzParseHeaders compares with the tokens of encoding/json.
func FuzzParseHeaders(f *testing.F) {
	for _, s := range []string{
		`{}`, `null`, `{"a":"b"}`, `{ "a" : [1,{"b":"]"}], "c":null}`, `{"\u00e9\ud83d\ude00":"\\\"\n"}`, `{"a":"\ud800"}`,
		`{"a":{"b":[{"c":{}},"\\"]},"d":-1.5e+9,"e":true}`, `[]`, `{"a":1,}`, "{\"a\":\"\xff\"}", "{\"\\n\xc3\":1}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		before := string(object)
		got, err := parseHeaders(object)
		require.Equal(t, before, string(object))
		if err != nil {
			require.Equal(t, decoder.ErrHeaders, err)
		}
		if !utf8.Valid(object) {
			return // encoding/json replaces what is not UTF-8; the server's encoding is pinned to it
		}
		want, isObject := tokens(object)
		switch {
		case !isObject:
			require.Empty(t, got)
			if string(bytes.Trim(object, " \t\r\n")) != "null" && len(object) > 0 {
				require.Error(t, err)
			}
		case err != nil:
			require.Regexp(t, `\\u[dD][89a-fA-F]`, string(object), "only a lone surrogate is refused")
		default:
			require.Equal(t, want, got)
		}
	})
}

// tokens parses an object by encoding/json.
func tokens(object []byte) (headers []header, isObject bool) {
	if !json.Valid(object) {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(object))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, false
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, false
		}
		h := header{key: key.(string)}
		switch raw[0] {
		case 'n':
		case '"':
			var s string
			if err := json.Unmarshal(raw, &s); err != nil {
				return nil, false
			}
			h.value = s
		default:
			h.value = string(raw)
		}
		headers = append(headers, h)
	}
	return headers, true
}
