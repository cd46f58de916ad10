package connect

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Expected texts are what Jackson and Java 17 print; package e2e/parity compares with the originals.
func TestAppendString(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                    `""`,
		"é\u2028\x7f/":        "\"é\u2028\x7f/\"",
		"😀":                   `"\uD83D\uDE00"`,
		"\"\\\b\f\n\r\t\x1f":  `"\"\\\b\f\n\r\t\u001F"`,
		"\x00\x01plain\u00a0": "\"\\u0000\\u0001plain\u00a0\"",
	} {
		require.Equal(t, want, string(AppendString(nil, []byte(text))))
	}
}

func TestAppendDouble(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]float64{
		"0.0": 0, "-0.0": math.Copysign(0, -1), "1.0": 1, "100.0": 100, "0.001": 1e-3, "9.99E-4": 9.99e-4,
		"9999999.999": 9999999.999, "1.0E7": 1e7, "1.23456789123E8": 123456789.123, "1.0E21": 1e21,
		"4.9E-324": math.SmallestNonzeroFloat64, "-2.5E-10": -2.5e-10,
		`"Infinity"`: math.Inf(1), `"-Infinity"`: math.Inf(-1), `"NaN"`: math.NaN(),
	} {
		require.Equal(t, want, string(appendDouble(nil, f, 64)))
	}
	require.Equal(t, "3.4028235E38", string(appendDouble(nil, math.MaxFloat32, 32)))
}

func TestKind_Values(t *testing.T) {
	t.Parallel()
	const id = "1bb5f9a1-26cc-4646-9088-4917aca05cdd"
	for _, c := range []struct {
		oid        uint32
		text       string
		json, bare string
	}{
		{25, `a"`, `"a\""`, `a"`},
		{2950, id, `"` + id + `"`, id},
		{16, "t", "true", "true"},
		{16, "f", "false", "false"},
		{20, "-7", "-7", "-7"},
		{701, "1e+21", "1.0E21", "1.0E21"},
		{701, "NaN", `"NaN"`, "NaN"},
		{17, `\x00ff`, `"AP8="`, "AP8="},
		{1082, "1969-12-31", "-1", "-1"},
		{1114, "2020-01-02 03:04:05.678901", "1577934245678901", "1577934245678901"},
		{1114, "1969-12-31 23:59:59.999999", "-1", "-1"},
		{1184, "2020-01-02 03:04:05+00", `"2020-01-02T03:04:05.000000Z"`, "2020-01-02T03:04:05.000000Z"},
	} {
		k := KindOf(c.oid)
		got, err := k.AppendJSON(nil, []byte(c.text), false)
		require.NoError(t, err)
		require.Equal(t, c.json, string(got))
		got, err = k.AppendText(nil, []byte(c.text), false)
		require.NoError(t, err)
		require.Equal(t, c.bare, string(got))
		got, err = k.AppendJSON(nil, nil, false)
		require.NoError(t, err)
		require.Equal(t, "null", string(got))
	}
	for k, text := range map[Kind]string{
		Timestamp: "infinity", Date: "0044-03-15 BC", Zoned: "-infinity", Bytes: "abc", Float64: "x",
	} {
		_, err := k.AppendJSON(nil, []byte(text), false)
		require.ErrorIs(t, err, ErrValue)
		require.NotContains(t, err.Error(), text)
	}
}

// What is not UTF-8 is no JSON; a header may be any bytes.
func TestKind_NotUTF8(t *testing.T) {
	t.Parallel()
	for _, k := range []Kind{Text, JSON, UUID} {
		_, err := k.AppendJSON(nil, []byte("{\xff}"), false)
		require.ErrorIs(t, err, ErrText)
		got, err := k.AppendText(nil, []byte("{\xff}"), false)
		require.NoError(t, err)
		require.Equal(t, "{\xff}", string(got))
	}
}

func TestExpansion(t *testing.T) {
	t.Parallel()
	const (
		text   = `{"type":"string","optional":true`
		number = `{"type":"int32","optional":true`
		object = `{"type":"struct","fields":[`
		array  = `{"type":"array","items":`
	)
	all := Expansion{Nulls: true, EmptyArrays: true}
	for _, c := range []struct {
		x                    Expansion
		text, schema, values string
	}{
		{Expansion{}, `{"a": 1, "b": null, "c": [], "d": "x"} rest`, object + number + `,"field":"a"},` + text +
			`,"field":"d"}],"optional":true,"name":"payload"`, `{"a":1,"d":"x"}`},
		{all, `{"b": null, "c": []}`, object + `{"type":"bytes","optional":true,"field":"b"},` + array +
			text + `},"optional":true,"field":"c"}],"optional":true,"name":"payload"`, `{"b":null,"c":[]}`},
		{Expansion{}, `{"g": [{"x": 1}, {"y": 2}]}`, object + array + object +
			number + `,"field":"x"},` + number + `,"field":"y"}],"optional":false,"name":"payload.g"},` +
			`"optional":true,"field":"g"}],` +
			`"optional":true,"name":"payload"`, `{"g":[{"x":1,"y":null},{"x":null,"y":2}]}`},
		{
			Expansion{},
			`{"a":1,"b":{"c":2},"a":3}`, object + number + `,"field":"a"},` + object +
				number + `,"field":"c"}],"optional":true,"name":"payload.b","field":"b"}],"optional":true,"name":"payload"`,
			`{"a":3,"b":{"c":2}}`,
		},
	} {
		schema, values, ok := c.x.Append(nil, nil, []byte(c.text), "payload")
		require.True(t, ok, c.text)
		require.Equal(t, c.schema, string(schema))
		require.Equal(t, c.values, string(values))
	}
	for _, text := range []string{
		"{\"a\":\"\xff\"}",
		``, ` {}`, `[1]`, `"s"`, `{"a"`, `{"a":[1,"x"]}`, `{"a":[1,2.0]}`, `{"a":[null]}`, `{"a":[[]]}`, `{"":1}`,
		`{"a":12345678901234567890}`, `{"a":[{"b":1},{"b":"c"}]}`, `{"a":[{"b":1},{"c":1},null]}`, `{"a":[[1],["x"]]}`,
	} {
		schema, values, ok := Expansion{}.Append([]byte("s"), []byte("v"), []byte(text), "payload")
		require.False(t, ok, text)
		require.Equal(t, "sv", string(schema)+string(values))
	}
}

// One row, by whomever it was written, must not take the process's stack, memory or time.
func TestExpansion_Bounded(t *testing.T) {
	t.Parallel()
	expands := func(text string) bool {
		_, _, ok := Expansion{}.Append(nil, nil, []byte(text), "payload")
		return ok
	}
	nested := func(name string, depth int) string {
		return strings.Repeat(`{"`+name+`":`, depth) + "1" + strings.Repeat("}", depth)
	}
	require.True(t, expands(nested("a", maxDepth)))
	require.False(t, expands(nested("a", maxDepth+1)))
	require.False(t, expands(`{"a":`+strings.Repeat("[", 1<<24)))
	require.False(t, expands(nested(strings.Repeat("n", 1000), maxDepth)), "half a gigabyte of names")

	zeros := strings.Repeat("0,", maxValues-2)
	require.True(t, expands(`{"a":[`+zeros[:len(zeros)-1]+`]}`))
	require.False(t, expands(`{"a":[`+zeros+`0]}`))

	var one, each bytes.Buffer
	for i := range 200_000 {
		fmt.Fprintf(&one, `,"m%d":1`, i)
		if i < 20_000 {
			fmt.Fprintf(&each, `,{"m%d":1}`, i)
		}
	}
	require.True(t, expands(`{"a":{`+one.String()[1:]+`}}`), "in time that grows with the members")
	require.False(t, expands(`{"a":[`+each.String()[1:]+`]}`), "gigabytes of nulls")
}
