package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
)

// formats are rows as Debezium's router and Kafka Connect's converters have them. One table has columns of other names;
// the other is partitioned by time, and walrelay drops partitions, as it deletes rows, soon after they are written.
func formats() *shape {
	const more = "size, shard"
	const values = "octet_length(value), hashtext(key) & 3 FROM e" // one of the partitions that a topic has at first
	return &shape{
		name: "formats", about: "schemas and payloads, envelopes, partitions by a column, tables with columns of their " +
			"own, partitions by time that come and go; transaction headers",
		tables: `
			GRANT CREATE ON SCHEMA public TO ` + relayUser + `;
			CREATE TABLE outbox (
				no uuid PRIMARY KEY, kind text NOT NULL, topic text NOT NULL, tenant text NOT NULL, entity text NOT NULL,
				body jsonb, size int, shard int, created_at timestamptz NOT NULL DEFAULT now()
			);
			CREATE INDEX ON outbox (created_at);
			GRANT DELETE, UPDATE (created_at) ON outbox TO ` + relayUser + `;
			SET ROLE ` + relayUser + `;
			CREATE TABLE outbox_parts (
				id uuid, kind text NOT NULL, aggregateid text, payload json, size int, shard int,
				created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (id, created_at)
			) PARTITION BY RANGE (created_at);
			DO $$ BEGIN
				FOR n IN 0..99 LOOP
					EXECUTE format('CREATE TABLE outbox_soon_%s PARTITION OF outbox_parts FOR VALUES FROM (%L) TO (%L)',
						n, now() + n * interval '10s', now() + (n + 1) * interval '10s');
				END LOOP;
			END $$;
			RESET ROLE;`,
		byPart: true,
		places: []string{
			"INSERT INTO outbox (no, kind, topic, tenant, entity, body, " + more + ") SELECT id, kind, '" + prefix +
				"' || kind, 't', coalesce(key, id::text), " + asText + "::jsonb, " + values,
			"INSERT INTO outbox_parts (id, kind, aggregateid, payload, created_at, " + more + ") SELECT id, kind, key, " +
				asText + "::json, now() + (random() < 0.3)::int * bucket * interval '1 hour', " + values,
		},
		form: judge.Form{Read: readFormats, Transactions: true},
		settings: map[string]string{
			"WALRELAY_TOPIC":               prefix + "{kind}",
			"WALRELAY_TABLE_COLUMNS":       "outbox: id=no, payload=body, key_template={tenant}/{entity}, topic={topic}",
			"WALRELAY_KEY_FORMAT":          "json-schema",
			"WALRELAY_VALUE_FORMAT":        "json-schema",
			"WALRELAY_EXPAND_JSON":         "true",
			"WALRELAY_TOMBSTONE_ON_EMPTY":  "true",
			"WALRELAY_ADDITIONAL_COLUMNS":  "shard:partition, shard:header, kind:envelope:what, size:envelope",
			"WALRELAY_TRANSACTION_HEADERS": "true",
			"WALRELAY_RETENTION":           "5s",
		},
		remark: `SELECT format('%s partitions were dropped, and of the rows only those of %s are left', count(*),
				(SELECT now() - min(created_at) FROM outbox))
			FROM generate_series(0, 99) AS n WHERE to_regclass('outbox_soon_' || n) IS NULL`,
	}
}

// readFormats reads a record by encoding/json alone.
func readFormats(r *kgo.Record) (e judge.Event, err error) {
	e = judge.Event{ID: judge.Header(r, "id"), Topic: r.Topic}
	if e.Key, err = readKey(r.Key, e.ID); err != nil {
		return e, fmt.Errorf("read key: %w", err)
	}
	shard := judge.Header(r, "shard")
	if (shard == "") != (e.Key == nil) || shard != "" && shard != strconv.Itoa(int(r.Partition)) {
		return e, fmt.Errorf("the shard is %q in partition %d", shard, r.Partition)
	}
	if r.Value == nil {
		return e, nil
	}
	if e.Value, err = readValue(r.Value, strings.TrimPrefix(e.Topic, prefix)); err != nil {
		return e, fmt.Errorf("read value: %w", err)
	}
	return e, nil
}

// readKey undoes what the tables make of keys: one adds a tenant, and takes the id where there is no key.
func readKey(text []byte, id string) ([]byte, error) {
	payload, err := readDocument(text)
	if err != nil {
		return nil, err
	}
	var key *string
	if err := json.Unmarshal(payload, &key); err != nil || key == nil {
		return nil, err
	}
	entity := strings.TrimPrefix(*key, "t/")
	if entity == id {
		return nil, nil
	}
	return []byte(entity), nil
}

// readValue takes the payload out of its envelope.
func readValue(text []byte, kind string) ([]byte, error) {
	payload, err := readDocument(text)
	if err != nil {
		return nil, err
	}
	var envelope struct {
		Payload json.RawMessage
		What    string
		Size    int
	}
	if err := json.Unmarshal(payload, &envelope); err != nil {
		return nil, err
	}
	value := []byte(envelope.Payload)
	if bytes.HasPrefix(value, []byte(`"`)) { // it could not be expanded
		var text string
		if err := json.Unmarshal(value, &text); err != nil {
			return nil, err
		}
		value = []byte(text)
	}
	if envelope.What != kind || envelope.Size != len(value) {
		return nil, fmt.Errorf("the envelope says %d bytes of %q, and holds %d", envelope.Size, envelope.What, len(value))
	}
	return value, nil
}

// schema is one of Kafka Connect, as its JsonConverter writes it.
type schema struct {
	Type     string
	Optional bool
	Field    string
	Fields   []schema
}

// readDocument returns the payload, which the schema has to describe.
func readDocument(text []byte) (json.RawMessage, error) {
	var document struct {
		Schema  schema
		Payload json.RawMessage
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	return document.Payload, document.Schema.describes(document.Payload)
}

func (s *schema) describes(value json.RawMessage) error {
	var err error
	switch {
	case string(value) == "null":
		if !s.Optional {
			err = errors.New("null, which its schema does not allow")
		}
	case s.Type == "struct":
		return s.describesFields(value)
	case s.Type == "string":
		err = json.Unmarshal(value, new(string))
	case s.Type == "int32":
		err = json.Unmarshal(value, new(int32))
	case s.Type == "int64":
		err = json.Unmarshal(value, new(int64))
	default:
		err = fmt.Errorf("%q is a type that no column has", s.Type)
	}
	if err != nil {
		return fmt.Errorf("member %q: %w", s.Field, err)
	}
	return nil
}

func (s *schema) describesFields(value json.RawMessage) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(value, &members); err != nil {
		return fmt.Errorf("member %q: %w", s.Field, err)
	}
	if len(members) != len(s.Fields) {
		return fmt.Errorf("member %q: %d members and %d fields", s.Field, len(members), len(s.Fields))
	}
	for i := range s.Fields {
		f := &s.Fields[i]
		member, found := members[f.Field]
		if !found {
			return fmt.Errorf("member %q is missing", f.Field)
		}
		if err := f.describes(member); err != nil {
			return err
		}
	}
	return nil
}
