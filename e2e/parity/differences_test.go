package parity

// What differs, and why, is told in docs/migrating-from-debezium.md. The test notices when one of these changes.
var (
	// A column that the table lacks: Debezium drops each event, or ends; walrelay does not start.
	missing = []difference{{"1", none, none}, {"2", none, none}, {"3", none, none}}

	// Without a topic the task ends, and walrelay has an event that cannot be delivered.
	unrouted = []difference{{"no route", none, none}}

	// Payload and key of other types are their text when they are raw.
	rawTyped = []difference{
		{"clock3/0", "key=11045678", "key=03:04:05.678"},
		{"clock3/0", "partition 1", "partition 0"},
		{"flag/0", "value=true", "value=t"},
		{"flag/1", "value=false", "value=f"},
	}

	// The task ends at these, and walrelay sends a string.
	expanding = []difference{
		{"[1,2]", none, "[1,2]"},
		{`[{"a":1}]`, none, "value="},
		{`{"a":12345678901234567890}`, none, "value="},
		{`{"a":[12345678901234567890]}`, none, "value="},
		{`{"a":[{"b":1},{"b":"c"}]}`, none, "value="},
		{`{"a":[{"b":1},{"b":1.5}]}`, none, "value="},
		{`{"a":[[1],["x"]]}`, none, "value="},
		{`{"a":"\ud83d"}`, `\uD83D`, "\ufffd"}, // half a character
	}

	inHeaders = []difference{
		{"double/6", "9.999999999999999E22", "1.0E23"}, // both are the same number
		{"bit1/0", "bit1=true", "bit1=1"},
		{"bits/0", "bits=gQI=", "bits=1010000001"},
		{"vbits/0", "vbits=BQ==", "vbits=101"},
		{"cash/0", "cash=12.34", "cash=$12.34"},
		{"dict/0", `dict={"b":"2"}`, `dict="b"=>"2"`},
		{"dict/1", "dict={}", "dict="},
		{"nm/0", "nm null", "nm=n"},
		{"spot/0", "spot=" + point, "spot=(1,2.5)"},
	}

	inEnvelopes = []difference{
		{"double/6", "9.999999999999999E22", "1.0E23"},
		{"bit1/0", `"bit1":true`, `"bit1":"1"`},
		{"bits/0", `"bits":"gQI="`, `"bits":"1010000001"`},
		{"vbits/0", `"vbits":"BQ=="`, `"vbits":"101"`},
		{"cash/0", `"cash":"BNI="`, `"cash":"$12.34"`},
		{"dict/0", `"dict":"{\"b\":\"2\"}"`, `"dict":"\"b\"=>\"2\""`},
		{"dict/1", `"dict":"{}"`, `"dict":""`},
		{"nm/0", `"nm":null`, `"nm":"n"`},
		{"spot/0", `"spot":` + point, `"spot":"(1,2.5)"`},
	}

	inSchemas = []difference{
		{
			"", `,"name":"io.debezium.data.Enum","version":1,"parameters":{"allowed":"fine,so so"},"field":"mood"`,
			`,"field":"mood"`,
		},
		{"", `,"name":"io.debezium.data.Json","version":1,"field":"dict"`, `,"field":"dict"`},
		{"", `{"type":"boolean","optional":true,"field":"bit1"}`, `{"type":"string","optional":true,"field":"bit1"}`},
		{"", bits + `"field":"bits"`, `{"type":"string","optional":true,"field":"bits"`},
		{"", bits + `"field":"vbits"`, `{"type":"string","optional":true,"field":"vbits"`},
		{
			"", `{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,` +
				`"parameters":{"scale":"2"},"field":"cash"`, `{"type":"string","optional":true,"field":"cash"`,
		},
		{
			"", `{"type":"struct","fields":[{"type":"double","optional":false,"field":"x"},` +
				`{"type":"double","optional":false,"field":"y"},{"type":"bytes","optional":true,"field":"wkb"},` +
				`{"type":"int32","optional":true,"field":"srid"}],"optional":true,` +
				`"name":"io.debezium.data.geometry.Point","version":1,"doc":"Geometry (POINT)"`,
			`{"type":"string","optional":true`,
		},
		{"", `,"default":"some"`, ""},
		{"invoice", "outbox_types.orders.Value", "outbox_types.invoices.Value"}, // Debezium keeps the first event's
	}
)

const (
	point = `{"x":1.0,"y":2.5,"wkb":"AQEAAAAAAAAAAADwPwAAAAAAAARA","srid":null}`
	bits  = `{"type":"bytes","optional":true,"name":"io.debezium.data.Bits","version":1,"parameters":{"length":"10"},`
)
