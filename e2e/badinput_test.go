package e2e

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
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
	infinite := badInput{
		id: "key", sql: keyOfType("timestamp", "infinity"),
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
		table("formats", formats, formatted(badRows(infinite))),
		table("envelope", enveloped, formatted(badRows(infinite))),
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

// What cannot be an event of its shape is a dead letter whose reason names the column or member, and nothing of what it
// holds; a tail shows it, its letter is only redriven if key and value are those of the event, and whoever reads
// the table tells the same. Nothing is in the way of what comes after it.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for _, shape := range badShapes() {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			s := newBare(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
			s.db.Exec(t, badTable)
			s.run("migrate", "up")
			s.run("migrate", "up", "--kit")
			s.cluster.CreateTopic(t, s.dead(), 1, nil)
			s.set("WALRELAY_DEAD_LETTER_TOPIC", s.dead())
			s.set("WALRELAY_ON_POISON", "dead-letter")
			for name, value := range shape.env {
				s.set(name, strings.ReplaceAll(value, "PREFIX", s.prefix))
			}
			relay := s.relay()
			tail := s.tail("--limit", fmt.Sprint(2*len(shape.inputs)))
			events, letters := s.consume(s.topic), s.consume(s.dead())
			var good []string
			for i, input := range shape.inputs {
				s.db.Exec(t, "BEGIN; "+input.sql+"; COMMIT")
				good = append(good, fmt.Sprint("good ", i))
				s.db.Exec(t, fmt.Sprintf(shape.good, good[i]))
			}
			require.Equal(t, good, delivered(events.WaitFor(t, len(good), wait)))
			for i, letter := range letters.WaitFor(t, len(shape.inputs), wait) {
				require.Equal(t, shape.inputs[i].id, judge.Header(letter, "id"))
				require.Contains(t, judge.Header(letter, "walrelay-dead-letter-reason"), shape.inputs[i].reason)
			}
			s.caughtUp()
			rows, err := s.db.Conn.Query(t.Context(), `SELECT event_id || ' ' || action || ': ' || reason
				FROM walrelay.dead_letters WHERE stream = $1 ORDER BY position`, s.slot)
			require.NoError(t, err)
			recorded, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			require.Len(t, recorded, len(shape.inputs))
			require.Equal(t, 0, tail.Wait(t, wait), tail.Log())
			shown := printed(t, tail, 2*len(shape.inputs))
			for i, input := range shape.inputs {
				require.Contains(t, recorded[i], input.id+" dead-lettered: "+input.reason)
				require.Contains(t, shown[2*i], " id="+input.id+" ")
				require.Contains(t, shown[2*i], " FAULT: "+input.reason)
				require.NotContains(t, shown[2*i+1], "FAULT")
			}
			s.redrives(shape.inputs)
			output := relay.Log() + tail.Stdout()
			if shape.good == badRow {
				output += s.readsBad(relay, shape.inputs)
			}
			require.NotContains(t, output, "secret")
		})
	}
}

// redrives expects that all letters are redriven but those that stay.
func (s *setup) redrives(inputs []badInput) {
	t := s.t
	t.Helper()
	output := s.fails(1, "deadletters", "redrive", "--all", "--to", s.topic)
	for _, input := range inputs {
		want := fmt.Sprintf("%q redriven", input.id)
		if input.stays != "" {
			want = fmt.Sprintf("%q stays: %s", input.id, input.stays)
		}
		require.Contains(t, output, want)
	}
}

// readsBad reads the rows of the table, by a replay and by the backfill of another stream, and returns what was said.
func (s *setup) readsBad(relay *testenv.Process, inputs []badInput) string {
	t := s.t
	t.Helper()
	output := s.fails(1, "replay", "--all", "--time-column", "")
	s.stop(relay)
	s.set("WALRELAY_SLOT", s.db.Slot(t))
	s.set("WALRELAY_BACKFILL", "true")
	log := s.relay().Log()
	lasting := 0
	for _, input := range inputs {
		if !input.lasts {
			require.NotContains(t, output, fmt.Sprintf("event %q", input.id))
			continue
		}
		lasting++
		require.Contains(t, output,
			fmt.Sprintf("event %q of table public.outbox cannot be delivered: %s", input.id, input.reason))
		require.Regexp(t, `left out.*"event_id":"`+input.id+`".*"reason":"`+input.reason, log)
	}
	require.Contains(t, output, fmt.Sprintf(" rows were published, %d cannot be delivered", lasting))
	require.Contains(t, log, fmt.Sprintf(`rows from before the slot were left out","stream":"%s","slot":"%[1]s","rows":%d`,
		s.env["WALRELAY_SLOT"], lasting))
	return output + log
}
