package e2e

import (
	"encoding/hex"
)

// badInput is one event that cannot be delivered, written by SQL, and what is said of it. Its id is its name.
type badInput struct {
	id, sql, reason string
	stays           string // why its letter is not redriven to a topic that is named; empty: it is
	lasts           bool   // the row is as bad when it is read from its table
}

// badShape is a way in which events are written and made records of, with everything that can be wrong there.
type badShape struct {
	name   string
	env    map[string]string // PREFIX is that of the topics
	good   string            // writes a good event, %s is its id
	inputs []badInput
}

const (
	badTable = `CREATE TABLE outbox (id text PRIMARY KEY, aggregatetype text, aggregateid text, type text DEFAULT 't',
		payload jsonb DEFAULT '{"secret": 1}', headers json);
		CREATE PUBLICATION walrelay FOR TABLE outbox WITH (publish = 'insert')`
	badRow    = `INSERT INTO outbox (id, aggregatetype, aggregateid) VALUES ('%s', 'orders', 'secret')`
	badHeader = `INSERT INTO outbox (id, aggregatetype, aggregateid, headers)
		VALUES ('headers', 'orders', 'secret h', '[1]')`

	notWhole    = "the letter has bytes of the row or message, and not the key and value of a record"
	noObject    = "headers are not a JSON object"
	noTopic     = "the topic name has a character other than"
	noCloudText = "cloudevents: the key has control characters, or is not UTF-8"
)

// keyOfType is a row that was inserted while the key column was of another type.
func keyOfType(kind, value string) string {
	return `ALTER TABLE outbox ALTER aggregateid TYPE ` + kind + ` USING NULL;
		INSERT INTO outbox (id, aggregatetype, aggregateid) VALUES ('key', 'orders', '` + value + `');
		ALTER TABLE outbox ALTER aggregateid TYPE text USING 'secret ' || id`
}

// badRows are inputs of a table. A key of bytes may be one.
func badRows(key ...badInput) []badInput {
	return append([]badInput{
		{
			id: "missing", reason: "column payload of public.outbox is missing", stays: notWhole,
			sql: `ALTER TABLE outbox DROP payload; INSERT INTO outbox VALUES ('missing', 'orders', 'secret m');
				ALTER TABLE outbox ADD payload jsonb DEFAULT '{"secret": 1}'`,
		},
		{
			id: "null", reason: "column aggregatetype of public.outbox is NULL", lasts: true,
			sql: `INSERT INTO outbox (id, aggregateid) VALUES ('null', 'secret n')`,
		},
		{id: "headers", sql: badHeader, reason: noObject, stays: noObject, lasts: true},
		{
			id: "topic", reason: noTopic, lasts: true,
			sql: `INSERT INTO outbox (id, aggregatetype, aggregateid) VALUES ('topic', 'no topic', 'secret t')`,
		},
	}, key...)
}

// formatted are inputs that are to be given a format: nothing is redriven without.
func formatted(inputs []badInput) []badInput {
	for i := range inputs {
		if inputs[i].id != "topic" { // which has its format
			inputs[i].stays = notWhole
		}
	}
	return inputs
}

func emitted(prefix, content string) string {
	return `SELECT pg_logical_emit_message(true, '` + prefix + `', '\x` + hex.EncodeToString([]byte(content)) + `'::bytea)`
}

// badJSON are inputs of the JSON envelope.
func badJSON() badShape {
	emit := func(content string) string { return emitted("app.outbox", content) }
	const about = ` of a message "app.outbox" `
	return badShape{
		name: "JSON messages", env: map[string]string{"WALRELAY_MESSAGE_PREFIX": "app.outbox"},
		good: `SELECT pg_logical_emit_message(true, 'app.outbox',
			'{"id":"%s","aggregatetype":"orders","aggregateid":"secret","payload":{"secret":1}}')`,
		inputs: []badInput{
			{
				id: "missing", reason: "member payload" + about + "is missing", stays: notWhole,
				sql: emit(`{"id":"missing","aggregatetype":"orders","aggregateid":"secret m"}`),
			},
			{
				id: "null", reason: "member aggregatetype" + about + "is null", stays: notWhole,
				sql: emit(`{"id":"null","aggregatetype":null,"aggregateid":"secret n","payload":{}}`),
			},
			{
				id: "headers", reason: noObject, stays: noObject,
				sql: emit(`{"id":"headers","aggregatetype":"orders","aggregateid":"secret h","payload":{},"headers":[1]}`),
			},
			{
				id: "topic", reason: noTopic,
				sql: emit(`{"id":"topic","aggregatetype":"no topic","aggregateid":"secret t","payload":{}}`),
			},
			{
				id: "number", reason: "member aggregateid" + about + "is not a string", stays: notWhole,
				sql: emit(`{"id":"number","aggregatetype":"orders","aggregateid":7,"payload":{}}`),
			},
			{
				id: "object", reason: "member aggregateid" + about + "is not a string", stays: notWhole,
				sql: emit(`{"id":"object","aggregatetype":"orders","aggregateid":{"secret":1},"payload":{}}`),
			},
		},
	}
}

// badBinary are inputs of the binary envelope, whose key may be any bytes unless a format or CloudEvents make text of
// it.
func badBinary(name, variable, value string, key badInput) badShape {
	const null = "\xff\xff\xff\xff"
	v := func(text string) string { return "\x00\x00\x00" + string(rune(len(text))) + text }
	route := func(value string) string { return "\x00\x01" + v("aggregatetype") + value }
	envelope := func(id, route, key, rest string) string {
		return "\x01" + id + route + key + v("t") + null + rest
	}
	rest := "\x00\x00" + v(`{"secret":1}`)
	const about = ` of a message "app.binary" `
	emit := func(content string) string { return emitted("app.binary", content) }
	key.id, key.sql = "key", emit(envelope(v("key"), route(v("orders")), v("\xff\x00"), rest))
	return badShape{
		name: name, env: map[string]string{"WALRELAY_MESSAGE_BINARY_PREFIX": "app.binary", variable: value},
		good: `SELECT walrelay_kit.emit('app.binary', '{"aggregatetype": "orders"}', 'secret', 't', '{"secret":1}'::bytea,
			id => '%s')`,
		inputs: []badInput{
			{
				id: "missing", reason: "member payload" + about + "is cut off", stays: notWhole,
				sql: emit(envelope(v("missing"), route(v("orders")), v("secret m"), "\x00\x00")),
			},
			{
				id: "null", reason: "member aggregatetype" + about + "is null", stays: notWhole,
				sql: emit(envelope(v("null"), route(null), v("secret n"), rest)),
			},
			{
				id: "headers", reason: "member headers" + about + "has a name that is null", stays: notWhole,
				sql: emit(envelope(v("headers"), route(v("orders")), v("secret h"), "\x00\x01"+null+v("x")+v("{}"))),
			},
			{
				id: "topic", reason: noTopic,
				sql: emit(envelope(v("topic"), route(v("no topic")), v("secret t"), rest)),
			},
			key,
		},
	}
}

func badShapes() []badShape {
	table := func(name string, env map[string]string, inputs []badInput) badShape {
		return badShape{name: name, env: env, good: badRow, inputs: inputs}
	}
	formats := map[string]string{"WALRELAY_KEY_FORMAT": "json", "WALRELAY_VALUE_FORMAT": "json-schema"}
	enveloped := map[string]string{
		"WALRELAY_VALUE_FORMAT": "json", "WALRELAY_ADDITIONAL_COLUMNS": "aggregateid:envelope:about",
	}
	nested := badInput{
		id: "key", sql: keyOfType("int[]", "{{1},{2}}"),
		reason: "column aggregateid of public.outbox holds a value that Kafka Connect has no form for",
	}
	bytes := badInput{id: "key", sql: keyOfType("bytea", `\xff00`), reason: noCloudText, stays: noCloudText}
	part := badInput{
		id: "key", sql: keyOfType("bytea", `\xff00`), stays: notWhole,
		reason: "column aggregateid of public.outbox is of type bytea, and a part of a key must be text",
	}
	routed := badInput{
		id: "key", sql: keyOfType("bytea", `\xff00`),
		reason: "column aggregateid of public.outbox is of type bytea, and a part of a topic must be text",
	}
	return []badShape{
		table("raw", nil, badRows()),
		table("a key in the topic", map[string]string{
			"WALRELAY_TOPIC_REGEX": "(.*)-.*", "WALRELAY_TOPIC_REPLACEMENT": "$1",
			"WALRELAY_TOPIC": "PREFIX{aggregatetype}-{aggregateid}",
		}, badRows(routed)),
		table("formats", formats, formatted(badRows(nested))),
		table("envelope", enveloped, formatted(badRows(nested))),
		table("CloudEvents binary", map[string]string{"WALRELAY_FORMAT": "cloudevents-binary"}, badRows(bytes)),
		table("CloudEvents structured", map[string]string{"WALRELAY_FORMAT": "cloudevents-structured"}, badRows(bytes)),
		table("templates", map[string]string{
			"WALRELAY_TOPIC":         "unused",
			"WALRELAY_TABLE_COLUMNS": "outbox: key_template={type}:{aggregateid}, topic=PREFIX{aggregatetype}",
		}, badRows(part)),
		badJSON(),
		badBinary("binary messages", "WALRELAY_KEY_FORMAT", "json",
			badInput{reason: `member aggregateid of a message "app.binary" is not UTF-8`, stays: notWhole}),
		badBinary("binary messages as CloudEvents", "WALRELAY_FORMAT", "cloudevents-binary",
			badInput{reason: noCloudText, stays: noCloudText}),
	}
}
