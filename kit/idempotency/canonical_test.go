package idempotency_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/walrelay/walrelay/kit/idempotency"
)

func TestCanonicalJSON(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		` { "b" : [ 1 , true, null ], "a" : {} } `: `{"a":{},"b":[1,true,null]}`,
		`"A\/\u000a\u001f\""`:                      `"A/\n\u001f\""`,
		`"\ud83d\ude00é\u007f"`:                    "\"\U0001F600\u00e9\x7f\"",
		// The order of RFC 8785, 3.2.3: by UTF-16 code units, which puts U+1F600 before U+FB33.
		`{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}`: "" +
			"{\"\\r\":2,\"1\":4,\"\u0080\":6,\"\u00f6\":7,\"\u20ac\":1,\"\U0001F600\":5,\"\ufb33\":3}",
		`[1, 1.0, 10e-1, 0.1E+1, 100e-2]`:      `[1,1,1,1,1]`,
		`[0, -0, 0.000, -0e7]`:                 `[0,0,0,0]`,
		`[1200, -12e2, 0.0012, 1.5]`:           `[12e2,-12e2,12e-4,15e-1]`,
		`[9007199254740992, 9007199254740993]`: `[9007199254740992,9007199254740993]`,
		`1e99999999999`:                        `1e99999999999`,
		`""`:                                   `""`,
	} {
		got, ok := idempotency.CanonicalJSON([]byte(document))
		require.True(t, ok, document)
		require.Equal(t, want, string(got))
	}
	for _, document := range []string{
		``, `{`, `{} {}`, `01`, `{"a":1,"a":1}`, `{"a":1,"\u0061":2}`, `"\ud800"`, "\"\xff\"", "\ufeff1", `NaN`,
		strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20),
	} {
		_, ok := idempotency.CanonicalJSON([]byte(document))
		require.False(t, ok, "%.40s", document)
	}
}

// The canonical form says the same, is JSON, and is its own canonical form; another spelling has it too.
func TestCanonicalJSON_Properties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		document := map[string]any{}
		for range rapid.IntRange(0, 5).Draw(t, "members") {
			document[rapid.String().Draw(t, "name")] = rapid.OneOf(
				rapid.Map(rapid.String(), func(s string) any { return s }),
				rapid.Map(rapid.Float64(), func(f float64) any { return f }),
				rapid.Map(rapid.SliceOf(rapid.Int64()), func(n []int64) any { return n }),
			).Draw(t, "value")
		}
		plain, err := json.Marshal(document)
		require.NoError(t, err)
		spaced, err := json.MarshalIndent(document, "", "\t")
		require.NoError(t, err)
		canonical, ok := idempotency.CanonicalJSON(plain)
		if !ok {
			require.Contains(t, string(plain), "\ufffd")
			return
		}
		again, ok := idempotency.CanonicalJSON(canonical)
		require.True(t, ok)
		require.Equal(t, string(canonical), string(again))
		other, ok := idempotency.CanonicalJSON(spaced)
		require.True(t, ok)
		require.Equal(t, string(canonical), string(other))
		var before, after any
		require.NoError(t, json.Unmarshal(plain, &before))
		require.NoError(t, json.Unmarshal(canonical, &after))
		require.Equal(t, before, after)
	})
}

func TestHashRequest(t *testing.T) {
	t.Parallel()
	hash := idempotency.HashRequest
	a := hash("application/json", []byte(`{"a":1,"b":2}`), "POST", "/pay")
	require.Equal(t, a, hash("application/JSON; charset=utf-8", []byte(`{ "b":2.0, "a":1 }`), "POST", "/pay"))
	require.NotEqual(t, a, hash("application/json", []byte(`{"a":1,"b":3}`), "POST", "/pay"))
	require.NotEqual(t, a, hash("application/json", []byte(`{"a":1,"b":2}`), "POST", "/refund"))
	require.NotEqual(t, a, hash("text/plain", []byte(`{"a":1,"b":2}`), "POST", "/pay"))
	require.NotEqual(t, hash("", nil, "ab", "c"), hash("", nil, "a", "bc"))
	require.Equal(t, hash("a/problem+json", []byte(`[1]`)), hash("a/problem+json", []byte(`[ 1 ]`)))
	require.NotEqual(t, hash("text/plain", []byte(`[1]`)), hash("text/plain", []byte(`[ 1 ]`)))
	twice := func(body string) [32]byte { return hash("application/json", []byte(body)) }
	require.NotEqual(t, twice(`{"a":1,"a":2}`), twice(`{"a":2,"a":1}`))
}

// The parts stay the caller's: the room behind them is not written to.
func TestHashRequest_LeavesPartsAlone(t *testing.T) {
	t.Parallel()
	parts := []string{"POST", "/pay", "query"}
	idempotency.HashRequest("text/plain", nil, parts[:2]...)
	require.Equal(t, []string{"POST", "/pay", "query"}, parts)
}
