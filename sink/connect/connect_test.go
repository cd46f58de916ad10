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

func TestType_Values(t *testing.T) {
	t.Parallel()
	const list = `["a","b c",null,"q\"\\","NULL","é"]`
	const id, decimal, none = "1bb5f9a1-26cc-4646-9088-4917aca05cdd", 10<<16 + 2 + 4, -1
	for _, c := range []struct {
		oid        uint32
		modifier   int32
		text       string
		json, bare string
	}{
		{25, none, `a"`, `"a\""`, `a"`},
		{2950, none, id, `"` + id + `"`, id},
		{16, none, "t", "true", "true"},
		{16, none, "f", "false", "false"},
		{20, none, "-7", "-7", "-7"},
		{701, none, "1e+21", "1.0E21", "1.0E21"},
		{701, none, "NaN", `"NaN"`, "NaN"},
		{17, none, `\x00ff`, `"AP8="`, "AP8="},
		{1082, none, "1969-12-31", "-1", "-1"},
		{1082, none, "0044-03-15 BC", "-735160", "-735160"},
		{1082, none, "infinity", "-2147472692", "-2147472692"},
		{1082, none, "12020-01-02", "3670688", "3670688"},
		{1114, none, "2020-01-02 03:04:05.678901", "1577934245678901", "1577934245678901"},
		{1114, none, "1969-12-31 23:59:59.999999", "-1", "-1"},
		{1114, none, "-infinity", "-9223372036832400000", "-9223372036832400000"},
		{1114, none, "0044-03-15 12:00:00 BC", "-63517780800000000", "-63517780800000000"},
		{1114, 3, "1969-12-31 23:59:59.999", "-1", "-1"},
		{1114, 0, "infinity", "9223372036825200", "9223372036825200"},
		{1114, 4, "2020-01-02 03:04:05.6789", "1577934245678900", "1577934245678900"},
		{1184, none, "2020-01-02 03:04:05+00", `"2020-01-02T03:04:05.000000Z"`, "2020-01-02T03:04:05.000000Z"},
		{1184, 0, "2020-01-02 03:04:05+00", `"2020-01-02T03:04:05Z"`, "2020-01-02T03:04:05Z"},
		{1184, 3, "2020-01-02 03:04:05.6+00", `"2020-01-02T03:04:05.600Z"`, "2020-01-02T03:04:05.600Z"},
		{1184, none, "0044-03-15 12:00:00+00 BC", `"-0043-03-15T12:00:00.000000Z"`, "-0043-03-15T12:00:00.000000Z"},
		{1184, none, "12020-01-02 03:04:05+00", `"+12020-01-02T03:04:05.000000Z"`, "+12020-01-02T03:04:05.000000Z"},
		{1184, none, "-infinity", `"-infinity"`, "-infinity"},
		{1083, none, "24:00:00", "86400000000", "86400000000"},
		{1083, none, "03:04:05.678901", "11045678901", "11045678901"},
		{1083, 3, "03:04:05.678", "11045678", "11045678"},
		{1266, none, "03:04:05.678901+02", `"01:04:05.678901Z"`, "01:04:05.678901Z"},
		{1266, none, "01:00:00.5+02:30", `"22:30:00.5Z"`, "22:30:00.5Z"},
		{1266, none, "24:00:00+00", `"00:00:00Z"`, "00:00:00Z"},
		{1186, none, "1 year 2 mons 3 days 04:05:06.789", "37091106789000", "37091106789000"},
		{1186, none, "-1 days -00:00:01.5", "-86401500000", "-86401500000"},
		{1700, decimal, "0.00", `"AA=="`, "0.00"},
		{1700, decimal, "-12345678.90", `"tmn9Lg=="`, "-12345678.90"},
		{1700, decimal, "1.28", `"AIA="`, "1.28"},
		{1700, decimal, "-1.28", `"gA=="`, "-1.28"},
		{1700, decimal, "-1.29", `"/38="`, "-1.29"},
		{1700, 20<<16 + 10 + 4, "0.0000000000", `"AA=="`, "0E-10"},
		{1700, 20<<16 + 10 + 4, "-0.0000000123", `"hQ=="`, "-1.23E-8"},
		{1700, none, "1.10", `{"scale":1,"value":"Cw=="}`, `{"scale":1,"value":"Cw=="}`},
		{1700, none, "100", `{"scale":0,"value":"ZA=="}`, `{"scale":0,"value":"ZA=="}`},
		{1009, none, `{a,"b c",NULL,"q\"\\","NULL",é}`, list, list},
		{1009, none, "{}", "[]", "[]"},
		{1009, none, `[2:3]={"",b}`, `["","b"]`, `["","b"]`},
		{1022, none, "{1,NaN,NULL}", `[1.0,"NaN",null]`, "[1.0,NaN,null]"},
		{1000, none, "{t,f}", "[true,false]", "[true,false]"},
		{1231, decimal, "{1.10}", `["bg=="]`, "[1.10]"},
	} {
		k := TypeOf(c.oid, c.modifier)
		got, err := k.AppendJSON(nil, []byte(c.text), false)
		require.NoError(t, err, c.text)
		require.Equal(t, c.json, string(got))
		got, err = k.AppendText(nil, []byte(c.text), false)
		require.NoError(t, err, c.text)
		require.Equal(t, c.bare, string(got))
		got, err = k.AppendJSON(nil, nil, false)
		require.NoError(t, err)
		require.Equal(t, "null", string(got))
	}
	for text, oid := range map[string]uint32{
		"x": 1114, "0044-03-15 b": 1082, "": 1184, "abc": 17, "1e": 701, "12": 1083, "03:04:05": 1266, "3 eons": 1186,
		"1x":        1700,
		"{{a},{b}}": 1009, "a": 1009, "ab:cd:ef": 1083, "1:2": 1186, "x days": 1186,
	} {
		_, err := TypeOf(oid, none).AppendJSON(nil, []byte(text), false)
		require.ErrorIs(t, err, ErrValue, text)
		if len(text) > 2 {
			require.NotContains(t, err.Error(), text)
		}
	}
	require.True(t, TypeOf(1700, none).IsNull([]byte("NaN")))
	require.True(t, TypeOf(1700, decimal).IsNull([]byte("-Infinity")))
	require.False(t, TypeOf(701, none).IsNull([]byte("NaN")))
}

// What is not UTF-8 is no JSON; a header may be any bytes.
func TestType_NotUTF8(t *testing.T) {
	t.Parallel()
	for _, k := range []Kind{Text, JSON, UUID} {
		_, err := Type{Kind: k}.AppendJSON(nil, []byte("{\xff}"), false)
		require.ErrorIs(t, err, ErrText)
		got, err := Type{Kind: k}.AppendText(nil, []byte("{\xff}"), false)
		require.NoError(t, err)
		require.Equal(t, "{\xff}", string(got))
	}
}

func TestType_Schema(t *testing.T) {
	t.Parallel()
	for want, k := range map[string]Type{
		`{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,` +
			`"parameters":{"scale":"2","connect.decimal.precision":"10"}`: TypeOf(1700, 10<<16+2+4),
		`{"type":"struct","fields":[{"type":"int32","optional":false,"field":"scale"},` +
			`{"type":"bytes","optional":false,"field":"value"}],"optional":true,` +
			`"name":"io.debezium.data.VariableScaleDecimal","version":1,"doc":"Variable scaled decimal"`: TypeOf(1700, -1),
		`{"type":"array","items":{"type":"int32","optional":true,"name":"io.debezium.time.Date","version":1},` +
			`"optional":true`: TypeOf(1182, -1),
	} {
		require.Equal(t, want, string(k.AppendSchema(nil, true)))
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
