package parity

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/walrelay/walrelay/testenv"
)

// tables hold what a case reads. Their columns are those of Debezium's documentation, and some of other types.
const tables = `
	CREATE EXTENSION citext; CREATE EXTENSION hstore;
	CREATE TYPE mood AS ENUM ('fine', 'so so');
	CREATE TABLE outbox_json (id uuid PRIMARY KEY, aggregatetype varchar(255), aggregateid varchar(255),
		type varchar(255) NOT NULL, payload jsonb, ref uuid);
	CREATE TABLE outbox_text (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, 
		aggregateid varchar(255) NOT NULL, type text, payload text, n int NOT NULL, at timestamp,
		tracingspancontext varchar(256));
	CREATE TABLE outbox_more (LIKE outbox_text INCLUDING ALL);
	CREATE TABLE outbox_before (LIKE outbox_text INCLUDING ALL);
	CREATE TABLE outbox_fatal (LIKE outbox_text INCLUDING ALL);
	CREATE TABLE outbox_none (LIKE outbox_text INCLUDING ALL);
	CREATE TABLE outbox_bytea (id bigint PRIMARY KEY, aggregatetype text NOT NULL, aggregateid bigint, type text,
		payload bytea NOT NULL, at timestamp(3));
	CREATE TABLE outbox_expand (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text,
		type text, payload text);
	CREATE DOMAIN digest AS bytea; CREATE DOMAIN digest_of AS digest; CREATE DOMAIN document AS jsonb;
	CREATE DOMAIN amount AS int NOT NULL; CREATE DOMAIN label AS varchar(40); CREATE DOMAIN moment AS timestamptz;
	CREATE DOMAIN ratio AS double precision; CREATE DOMAIN identity AS uuid; CREATE DOMAIN flag AS bool;
	CREATE DOMAIN stamp AS timestamp; CREATE DOMAIN calendar AS date;
	CREATE TABLE outbox_domain (id identity PRIMARY KEY, aggregatetype label NOT NULL, aggregateid digest_of, type label,
		payload document, n amount, zoned moment, double ratio, ref identity, bin digest, flag flag, at stamp,
		day calendar);
	CREATE TABLE outbox_types (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255),
		type varchar(255) NOT NULL, payload jsonb`

const publication = `
	CREATE PUBLICATION dbz_publication FOR TABLE outbox_json, outbox_text, outbox_more, outbox_bytea, outbox_expand,
		outbox_types, outbox_domain, outbox_before, outbox_fatal, outbox_none`

// columns are those of outbox_types that come in headers and envelopes, and texts of their values: each has a row.
var columns = []struct {
	name, kind string
	values     []string
}{
	{"n", "int NOT NULL", nil},
	{"at", "timestamp", []string{
		"2020-01-02 03:04:05.678901", "1969-12-31 23:59:59.999999", "infinity", "-infinity", "0044-03-15 12:00:00 BC",
		"12020-01-02 03:04:05", "0001-01-01 00:00:00",
	}},
	{"at0", "timestamp(0)", []string{"2020-01-02 03:04:05", "1969-12-31 23:59:59", "infinity"}},
	{"at3", "timestamp(3)", []string{"2020-01-02 03:04:05.678", "1969-12-31 23:59:59.999", "-infinity"}},
	{"at4", "timestamp(4)", []string{"2020-01-02 03:04:05.6789"}},
	{"zoned", "timestamptz", []string{
		"2020-01-02 05:04:05.5+02", "0044-01-01 00:00:00+00", "infinity", "-infinity", "0044-03-15 12:00:00+00 BC",
		"12020-01-02 03:04:05+00",
	}},
	{"zoned0", "timestamptz(0)", []string{"2020-01-02 05:04:05+02"}},
	{"zoned3", "timestamptz(3)", []string{"2020-01-02 05:04:05.67+02", "2020-01-02 05:04:05+02"}},
	{"day", "date", []string{
		"1969-12-31", "2020-02-29", "infinity", "-infinity", "0044-03-15 BC", "12020-01-02", "1582-10-10",
	}},
	{"clock", "time", []string{"03:04:05.678901", "24:00:00", "00:00:00"}},
	{"clock0", "time(0)", []string{"03:04:05", "24:00:00"}},
	{"clock3", "time(3)", []string{"03:04:05.678"}},
	{"clockz", "timetz", []string{"03:04:05.678901+02", "03:04:05+00", "01:00:00.5+02:30", "24:00:00+00"}},
	{"span", "interval", []string{
		"1 year 2 mons 3 days 04:05:06.789", "-1 mons", "-00:00:00.000001", "1 day", "-1 day -00:00:01.5", "100 years",
	}},
	{"num", "numeric", []string{
		"0", "1.10", "100", "-123456789012345678901234567890.123", "1e20", "1e-20", "NaN", "Infinity",
	}},
	{"num2", "numeric(10,2)", []string{
		"0", "1.1", "-12345678.9", "0.01", "-0.01", "1.27", "1.28", "-1.28", "-1.29", "NaN",
	}},
	{"num0", "numeric(20)", []string{"0", "255", "-256", "12345678901234567890"}},
	{"big", "bigint", []string{"1234567890123", "-1"}},
	{"small", "smallint", []string{"-7", "32767"}},
	{"flag", "bool", []string{"t", "f"}},
	{"double", "double precision", []string{"1e21", "0.1", "NaN", "Infinity", "-Infinity", "-0", "1e23", "2e-3"}},
	{"single", "real", []string{"1.25", "3.4028235e38", "1e-45", "NaN"}},
	{"bin", "bytea", []string{`\x00ff`, `\x`}},
	{"doc", "json", []string{`{"z" :  1}`, "null"}},
	{"ref", "uuid", []string{"1bb5f9a1-26cc-4646-9088-4917aca05cdd"}},
	{"code", "char(5)", []string{"ab", ""}},
	{"label", "varchar(10)", []string{"ab ", ""}},
	{"mood", "mood", []string{"so so"}},
	{"ci", "citext", []string{"AbC"}},
	{"dict", "hstore", []string{`"b"=>"2"`, ""}},
	{"tags", "text[]", []string{`{a,"b c",NULL,"q\"\\","NULL","é😀"}`, "{}", "[2:3]={a,b}"}},
	{"codes", "varchar(5)[]", []string{"{a,b}"}},
	{"nums", "int[]", []string{"{1,-2,NULL}"}},
	{"bigs", "bigint[]", []string{"{1,-2}"}},
	{"smalls", "smallint[]", []string{"{1,-2}"}},
	{"flags", "bool[]", []string{"{t,f,NULL}"}},
	{"doubles", "float8[]", []string{"{1,1e21,NaN}"}},
	{"refs", "uuid[]", []string{"{1bb5f9a1-26cc-4646-9088-4917aca05cdd}"}},
	{"amounts", "numeric(10,2)[]", []string{"{1.10,-2}"}},
	{"days", "date[]", []string{"{2020-02-29}"}},
	{"ats", "timestamp[]", []string{"{2020-01-02 03:04:05.678901}"}},
	{"zones", "timestamptz[]", []string{"{2020-01-02 03:04:05.678901+00}"}},
	{"docs", "jsonb[]", []string{`{"{\"a\": 1}"}`}},
	{"bins", "bytea[]", []string{`{"\\x00ff"}`}},
	{"ip", "inet", []string{"10.0.0.1/8"}},
	{"oid", "oid", []string{"4294967295"}},
	{"bit1", "bit(1)", []string{"1"}},
	{"bits", "bit(10)", []string{"1010000001"}},
	{"vbits", "bit varying(10)", []string{"101"}},
	{"cash", "money", []string{"12.34"}},
	{"doc2", "xml", []string{"<a/>"}},
	{"nm", "name", []string{"n"}},
	{"ch", `"char"`, []string{"c"}},
	{"spot", "point", []string{"(1,2.5)"}},
	{"span4", "int4range", []string{"[1,5)"}},
	{"words", "tsvector", []string{"a b"}},
	{"usual", "text NOT NULL DEFAULT 'some'", nil},
}

// texts are payloads of outbox_text.
var texts = []any{
	`{"a": 1, "b": "é😀\u0001"}`, `plain "q" \ é 😀 / ` + "\x01\x1f\b\f\r\t\n\x7f\u2028",
	``, "  \t\n", nil, `null`, `0`, "\u00a0",
}

// expandable are payloads of outbox_expand. What Debezium has in a random order is not among them: objects
// of an array that differ in their members.
var expandable = []any{
	`{"a": 1, "b": [], "c": null, "d": {"e": 1.50, "f": [1,2]}, "g": [{"x":1},{"x":2}], "h": 12345678901, "i": 1e3}`,
	`{"a":1e10,"b":1.0E-5,"c":123456789.123,"d":-0.0,"e":0.1,"f":100.0,"g":1e7,"h":2147483648,"i":-2147483648,"j":2e-3}`,
	`{"a":1.234567890123456e22,"b":1e-3,"c":9999999.999,"d":1e400,"e":-1e400,"f":4.9e-324,"g":-0}`,
	`{"h":9223372036854775807,"i":-9223372036854775808}`,
	`{"s":"é😀\u0001/\"\\\u2028","t":true,"f":false,"e":""}`, `{}`, `{"a":{}}`, `{"a":[{}]}`,
	`{"a":{"b":{"c":[["x"],["y"]]}}}`,
	`{"a":1,"b":2,"a":3}`, `{"x.y":{"z":1}}`, `{"a":1} trailing`, ` {"a":1}`, `{"bad`, `{"a":[1,"x"]}`, `{"a":[1,2.5]}`,
	`{"a":[1,12345678901]}`, `{"":1}`, `"text"`, `12`, `true`, `plain`, ``, ` `, nil, `{"a":[{"b":1,"c":"d"},null]}`,
	`{"a":["x",null,"y"]}`, `{"a":[{"b":[{"c":1}]},{"b":[{"c":2}]}]}`, `{"a":[[{"b":1}]]}`,
	`{"a":[true,false],"n":[1.5,2.5]}`, `null`, `{"a":[null]}`, `{"a":[[]]}`, `{"a":[null,null],"b":1}`, `{"a":[[1],[]]}`,
	`{"a":{"b":null,"c":[]}}`, `{"a":[{"b":null},{"b":1}]}`, `{"a":[{"b":[]},{"b":[1]}]}`, `{"\u0061":1,"a":2}`,
	`{"a":1e-400}`, `{"a":0.10,"b":12345678901234567890.5,"c":1E+2}`, `{'a':1}`, `{a:1}`, `{"a":01}`, `{"a":1,}`,
	`{"a":NaN}`,
	`[`, `]`, `{`, `{"a":"` + "\x01" + `"}`, `{"a":"\ud83d"}`, `{"payload":{"payload":1}}`, `{"a b":1,"é":2,"1":3}`,
	`[]`, `[1,2]`, `[{"a":1}]`, `[1`, `{"a":12345678901234567890}`, `{"a":[{"b":1},{"b":"c"}]}`,
	`{"a":[12345678901234567890]}`, `{"a":[{"b":1},{"b":1.5}]}`, `{"a":[[1],["x"]]}`,
}

// messages are payloads of logical messages.
var messages = []string{
	`{"a": 1, "b": [1, 2], "c": null, "d": {"e": "x"}}`,
	`"text"`, `"{\"a\": 1}"`, `12`, `1.50`, `true`, `null`, `[1]`,
}

// documents are payloads of outbox_json and outbox_types.
var documents = []any{
	`{"bb": 1, "a": 9007199254740993, "a": 1.10, "n": null, "e": [], "o": {"q": [{"r": 1}]}}`, `[1]`, `"s"`, `12`, nil,
}

func createTables(t *testing.T, db *testenv.Database) {
	t.Helper()
	sql := tables
	for _, c := range columns {
		sql += ", " + c.name + " " + c.kind
	}
	db.Exec(t, sql+");"+publication)
}

// id is that of a row of this name.
func id(name string) string {
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// rows are the names of rows by their ids, by table.
type rows map[string]map[string]string

// insert writes a row. Its first column is the id.
func (r rows) insert(t *testing.T, db *testenv.Database, table, name, columns string, values ...any) {
	t.Helper()
	row := id(name)
	if table == "outbox_bytea" {
		row = name
	}
	if r[table] == nil {
		r[table] = map[string]string{}
	}
	r[table][row] = name
	places := "$1::text::uuid"
	if table == "outbox_bytea" {
		places = "$1::text::bigint"
	}
	for i := range values {
		places += fmt.Sprintf(", $%d", i+2)
	}
	db.Exec(t, "INSERT INTO "+table+" (id, "+columns+") VALUES ("+places+")", append([]any{row}, values...)...)
}

const router = "aggregatetype, aggregateid, type, payload"

// writeBefore fills the table that is read as it is found.
func (r rows) writeBefore(t *testing.T, db *testenv.Database) {
	t.Helper()
	for i, payload := range texts {
		at := time.Date(2020, 1, 2, 3, 4, i, 678901000, time.UTC)
		r.insert(t, db, "outbox_before", fmt.Sprint("before ", i), router+", n, at",
			"orders", fmt.Sprint(i), "made", payload, i, at)
	}
}

// update has an update behind the first row of outbox_fatal, which has been an event.
func (r rows) update(t *testing.T, db *testenv.Database, delivered *testenv.Consumer) {
	t.Helper()
	r.insert(t, db, "outbox_fatal", "before the update", router+", n", "orders", "1", "made", "{}", 1)
	delivered.WaitFor(t, 1, wait)
	db.Exec(t, "UPDATE outbox_fatal SET n = 2")
}

// write fills the tables, changes rows and deletes some, which no event is made of.
func (r rows) write(t *testing.T, db *testenv.Database) {
	t.Helper()
	kind := func(i int) string { return []string{"orders", "orders", "invoices"}[i%3] }
	for i, payload := range texts {
		at := time.Date(2020, 1, 2, 3+i, 4, 5, 678901000, time.UTC)
		for _, table := range []string{"outbox_text", "outbox_more"} {
			r.insert(t, db, table, fmt.Sprint(table, i), router+", n, at, tracingspancontext",
				kind(i), fmt.Sprint("key é ", i%4), []any{"made", nil}[i%2], payload, i%3, at,
				"traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		}
	}
	for i, payload := range expandable {
		r.insert(t, db, "outbox_expand", fmt.Sprint(payload), router,
			"orders", fmt.Sprint(i%5), []any{"made", nil}[i%2], payload)
	}
	for i, payload := range documents {
		r.insert(t, db, "outbox_json", fmt.Sprint("document ", i), router+", ref",
			"orders", fmt.Sprint(i), "made", payload, id("ref"))
		r.insert(t, db, "outbox_types", fmt.Sprint("document ", i), router+", n",
			"orders", fmt.Sprint(i), "made", payload, i)
	}
	r.insert(t, db, "outbox_json", "no key", "aggregatetype, type", "orders", "")
	r.insert(t, db, "outbox_json", "empty key", router, "orders", "", "made", "{}")
	r.insert(t, db, "outbox_json", "no route", router, nil, "1", "made", "{}")
	r.insert(t, db, "outbox_json", "empty route", router, "", "1", "made", "{}")
	r.insert(t, db, "outbox_types", "no key", "aggregatetype, type, n", "orders", "", 1)
	r.insert(t, db, "outbox_types", "invoice", router+", n", "invoices", "1", "made", "{}", 1)
	for _, c := range columns {
		for i, value := range c.values {
			at := strings.TrimSuffix(c.kind, " NOT NULL")
			row := fmt.Sprint(c.name, "/", i)
			if r["outbox_types"][id(row)] == "" {
				r["outbox_types"][id(row)] = row
			}
			db.Exec(t, "INSERT INTO outbox_types (id, aggregatetype, aggregateid, type, n, "+c.name+
				") VALUES ($1::text::uuid, 'orders', '1', 'made', 1, $2::text::"+at+")", id(row), value)
		}
	}
	const stamped = "aggregatetype, aggregateid, type, payload, at"
	r.insert(t, db, "outbox_bytea", "1", stamped, "orders", 1, "x", []byte{0, 0xff, 'A'}, "2020-01-02 03:04:05.9999")
	r.insert(t, db, "outbox_bytea", "2", stamped, "orders", -2, "x", []byte{}, "2020-01-02 03:04:05.678")
	r.insert(t, db, "outbox_bytea", "3", stamped, "invoices", nil, "x", []byte(`{}`), "1970-01-01 00:00:00.001")
	const domains = router + ", n, zoned, double, ref, bin, flag, at, day"
	r.insert(t, db, "outbox_domain", "domain 1", domains,
		"orders", []byte{0, 0xff, 'A'}, "made", `{"bb": 1, "a": 1.10}`, 7,
		"2020-01-02 05:04:05.5+02", 1e21, id("ref"), []byte{0, 0xff}, true, "2020-01-02 03:04:05.678901", "1969-12-31")
	r.insert(t, db, "outbox_domain", "domain 2", domains,
		"orders", []byte{}, nil, "[1]", -1, nil, nil, nil, nil, nil, nil, nil)
	r.insert(t, db, "outbox_domain", "domain 3", domains,
		"orders", nil, "", nil, 0, nil, 0.1, nil, []byte{}, false, nil, nil)
	for _, table := range []string{"outbox_json", "outbox_text", "outbox_bytea", "outbox_expand", "outbox_types"} {
		db.Exec(t, "UPDATE "+table+" SET type = 'changed'")
		db.Exec(t, "DELETE FROM "+table+" WHERE aggregatetype = 'invoices'")
	}
	db.Exec(t, "TRUNCATE outbox_bytea")
	r.insert(t, db, "outbox_fatal", "behind the update", router+", n", "orders", "1", "made", "{}", 1)
	r["outbox_none"] = map[string]string{}
	for i, payload := range messages {
		row := fmt.Sprint("message ", i)
		r["outbox_none"][id(row)] = row
		db.Exec(t, "SELECT pg_logical_emit_message(true, 'orders', $1::text)", fmt.Sprintf(
			`{"id": %q, "aggregatetype": "orders", "aggregateid": "%d", "payload": %s}`, id(row), i, payload))
	}
}

// placement is a list of columns in one place, as table.fields.additional.placement has it.
func placement(place string, aliases ...string) string {
	list := []string{"type:" + place + ":eventType"}
	for _, c := range columns {
		entry := c.name + ":" + place
		if i := slices.Index(aliases, c.name); i >= 0 {
			entry += ":" + aliases[i+1]
		}
		list = append(list, entry)
	}
	return strings.Join(list, ",")
}
