package e2e

import (
	"bytes"
	"context"
	"testing"

	"github.com/IBM/sarama"
	kafkaevents "github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// cloudEvent reads a record as the official SDK does.
func cloudEvent(t *testing.T, r *kgo.Record) *event.Event {
	t.Helper()
	m := &sarama.ConsumerMessage{Topic: r.Topic, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, &sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
	}
	ev, err := binding.ToEvent(context.Background(), kafkaevents.NewMessageFromConsumerMessage(m))
	require.NoError(t, err)
	require.NoError(t, ev.Validate())
	return ev
}

// Rows, logical messages, replays and dead letters that were redriven are events of CloudEvents.
func TestCloudEvents(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"cloudevents-binary", "cloudevents-structured"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := withMessages(newPoisoned(t, testenv.Postgres(t, lastMajor()), "dead-letter"))
			s.set("WALRELAY_COLUMN_TIMESTAMP", "")
			s.set("WALRELAY_FORMAT", format)
			s.set("WALRELAY_CLOUDEVENTS_SOURCE", "//shop.example/orders")
			relay := s.relay()
			consumer, letters := s.consume(s.topic), s.consume(s.dead())
			const payload = `{"n": 12345678901234567890}`
			check := func(r *kgo.Record, n int) *event.Event {
				t.Helper()
				ev := cloudEvent(t, r)
				require.Equal(t, []string{eventID(n), "//shop.example/orders", "created", "k", "application/json"},
					[]string{ev.ID(), ev.Source(), ev.Type(), ev.Subject(), ev.DataContentType()})
				require.Equal(t, payload, string(ev.Data()))
				require.Equal(t, "k", string(r.Key))
				require.Equal(t, eventID(n), judge.Header(r, "id"))
				if format == "cloudevents-binary" {
					require.Equal(t, payload, string(r.Value))
				}
				return ev
			}
			s.insert(1, "k", payload)
			record := consumer.WaitFor(t, 1, wait)[0]
			committed := check(record, 1).Time().Format("2006-01-02T15:04:05.000000Z")
			require.Equal(t, judge.Header(record, "walrelay-commit-time"), committed)
			s.emit(2, "k", payload)
			check(consumer.WaitFor(t, 1, wait)[0], 2)

			// A message without a type cannot be one: its letter is what it was, and comes back once it may be raw.
			s.emitRaw(`{"id":"untyped","aggregatetype":"orders","aggregateid":"k","payload":{"raw":1}}`)
			letter := letters.WaitFor(t, 1, wait)[0]
			require.Equal(t, `{"raw":1}`, string(letter.Value))
			require.Contains(t, judge.Header(letter, "walrelay-dead-letter-reason"), "cloudevents: the type is missing")
			require.Empty(t, judge.Header(letter, "ce_id"))
			s.caughtUp()

			s.run("replay", "--id", eventID(1))
			replayed := consumer.WaitFor(t, 1, wait)[0]
			require.NotEmpty(t, judge.Header(replayed, "walrelay-replay"))
			check(replayed, 1)
			s.stop(relay)
			s.set("WALRELAY_FORMAT", "raw")
			s.run("deadletters", "redrive", "--all")
			require.Equal(t, letter.Value, consumer.WaitFor(t, 1, wait)[0].Value)
		})
	}
}

// Payloads that are encoded already, in the wire format of Confluent's serializers (a zero byte, the schema's id in
// four bytes, and for Protobuf the indexes of the message), arrive byte for byte, whatever they hold. Only structured
// mode would put them into a document: what its content type calls JSON is undeliverable then.
func TestConfluentWireFormat(t *testing.T) {
	t.Parallel()
	encoded := [][]byte{
		append([]byte{0, 0, 0, 0, 42}, 0x0e, 'o', 'r', 'd', 'e', 'r', '-', '1', 0x80, 0x01), // Avro
		append([]byte{0, 0, 0, 1, 0xff, 0}, 0x0a, 0x02, 'i', 'd', 0x10, 0xac, 0x02),         // Protobuf, first message
		append([]byte{0, 0x7f, 0xff, 0xff, 0xff, 4, 2, 0}, 0x08, 0x96, 0x01),                // Protobuf, nested message
		append([]byte{0, 0, 0, 0, 7}, `{"looks":"like JSON"}`...),                           // JSON Schema
		{0, 0, 0, 0, 0},
		bytes.Repeat([]byte{0, 0xff, '\\', 'x', '"', '{', 0x1a, 0x80}, 5000),
	}
	for _, format := range []string{"raw", "cloudevents-binary", "cloudevents-structured"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := newBare(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
			s.db.Exec(t, `CREATE TABLE outbox (id bigint PRIMARY KEY, aggregatetype text, aggregateid text, type text,
				payload bytea)`)
			s.db.Exec(t, `CREATE PUBLICATION walrelay FOR TABLE outbox WITH (publish = 'insert')`)
			s.db.Exec(t, `ALTER DATABASE `+s.db.Name+` SET bytea_output = escape`)
			s.run("migrate", "up")
			s.set("WALRELAY_FORMAT", format)
			if format == "cloudevents-binary" {
				s.set("WALRELAY_CLOUDEVENTS_CONTENT_TYPE", "application/avro")
			}
			s.relay()
			for i, value := range encoded {
				s.db.Exec(t, `INSERT INTO outbox VALUES ($1, 'orders', 'k', 'created', $2)`, i, value)
			}
			if format == "cloudevents-structured" {
				s.ready(503, "stuck", "cloudevents: the payload is not JSON, which its content type says that it is")
				return
			}
			for i, r := range s.consume(s.topic).WaitFor(t, len(encoded), wait) {
				require.Equal(t, encoded[i], r.Value, i)
				if format == "cloudevents-binary" {
					ev := cloudEvent(t, r)
					require.Equal(t, "application/avro", ev.DataContentType())
					require.Equal(t, encoded[i], ev.Data())
				}
			}
		})
	}
}
