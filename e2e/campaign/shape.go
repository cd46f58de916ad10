package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/e2e/judge"
)

// shape is how an application writes its events, and what walrelay is told to make of them. Whatever the shape, there
// are the tables outbox and outbox_parts, of which the latter is partitioned, and an event becomes one record, in the
// topic of its kind.
type shape struct {
	name, about string

	// tables is SQL that creates them, when walrelay's role is there.
	tables string
	// byPart publishes rows under the names of partitions.
	byPart bool
	// part is SQL that adds a partition to outbox_parts; %[1]d stands for its bucket. Empty: the command
	// "partitions create" does it, with an hour for each bucket.
	part string
	// places are SQL statements, one for each place that a transaction may write its events to; see withEvents.
	places   []string
	settings map[string]string // of walrelay
	form     judge.Form        // of records
	// remark is SQL for a line in the log in the end: what walrelay has done beside delivering. Empty: nothing.
	remark string
}

// withEvents precedes the statements of places: e has a row for each event, in their order.
const withEvents = `WITH e AS (SELECT *, $5::int AS bucket
	FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[]) AS event (id, kind, key, value)) `

// shapes lists them; the first is the default.
func shapes() []*shape {
	return []*shape{rows(), messages(), binaries(), formats(), cloudEvents()}
}

func selectShape(name string) (*shape, error) {
	var names []string
	for _, s := range shapes() {
		if s.name == name {
			return s, nil
		}
		names = append(names, s.name)
	}
	return nil, fmt.Errorf("no shape is called %q, but %s", name, strings.Join(names, ", "))
}

// insert writes events to a place, in this order.
func (s *shape) insert(ctx context.Context, conn *pgx.Conn, place int, bucket int32, events []judge.Event) error {
	ids, kinds, keys, values := make([]string, len(events)), make([]string, len(events)),
		make([]*string, len(events)), make([][]byte, len(events))
	for i, e := range events {
		ids[i], kinds[i], values[i] = e.ID, strings.TrimPrefix(e.Topic, prefix), e.Value
		if e.Key != nil {
			key := string(e.Key)
			keys[i] = &key
		}
	}
	_, err := conn.Exec(ctx, withEvents+s.places[place], ids, kinds, keys, values, bucket)
	return err
}

// rows are rows with a payload of text.
func rows() *shape {
	return &shape{
		name: "rows", about: "rows of tables, as they are",
		tables: outboxSQL("text"), part: listPart, places: insertSQL("kind", "'happened'", asText),
		settings: map[string]string{"WALRELAY_TOPIC": prefix + "{aggregatetype}"},
	}
}

// outboxSQL creates the tables with a type of payload. Keys may be NULL.
func outboxSQL(payload string) string {
	return strings.ReplaceAll(`
		CREATE TABLE outbox (
			id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text, type text NOT NULL, payload PAYLOAD
		);
		CREATE TABLE outbox_parts (
			id uuid, aggregatetype text NOT NULL, aggregateid text, type text NOT NULL, payload PAYLOAD, bucket int,
			PRIMARY KEY (id, bucket)
		) PARTITION BY LIST (bucket);`, "PAYLOAD", payload)
}

const listPart = "CREATE TABLE IF NOT EXISTS outbox_part_%[1]d PARTITION OF outbox_parts FOR VALUES IN (%[1]d)"

// insertSQL has a statement for each table of outboxSQL.
func insertSQL(aggregatetype, kind, payload string) []string {
	values := aggregatetype + ", key, " + kind + ", " + payload
	return []string{
		"INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) SELECT id, " + values + " FROM e",
		"INSERT INTO outbox_parts (bucket, id, aggregatetype, aggregateid, type, payload) SELECT bucket, id, " + values +
			" FROM e",
	}
}

const asText = "convert_from(value, 'UTF8')"

// messages are mixed with rows. No event comes to its topic but by one of the rules.
func messages() *shape {
	const (
		envelope = "'id', id, 'aggregatetype', " + ruledKind + ", 'aggregateid', key, 'type', " + ruledType +
			", 'payload', " + asText + "::json"
		emit = "pg_logical_emit_message(true, 'campaign.json', json_build_object(" + envelope + ")::text)"
	)
	return &shape{
		name: "messages", about: "rows, and messages with a JSON envelope; topic rules; transaction headers",
		tables: outboxSQL("text"), part: listPart,
		places: append(insertSQL(ruledKind, ruledType, asText), emitSQL("campaign.json", emit)),
		form:   judge.Form{Transactions: true},
		settings: map[string]string{
			"WALRELAY_MESSAGE_PREFIX":      "campaign.json",
			"WALRELAY_TRANSACTION_HEADERS": "true",
			"WALRELAY_TOPIC":               "{aggregatetype}",
			"WALRELAY_TOPIC_REGEX":         "shop (.*)",
			"WALRELAY_TOPIC_REPLACEMENT":   prefix + "$1",
			"WALRELAY_TOPIC_MAP":           prefix + "bills=" + prefix + "payments",
			"WALRELAY_TOPIC_BY_TYPE":       "audited=" + prefix + "audits",
			"WALRELAY_TOPIC_INVALID":       "replace",
		},
	}
}

// What the rules make topics of.
const (
	ruledType = "CASE kind WHEN 'audits' THEN 'audited' ELSE 'happened' END"
	ruledKind = "CASE kind WHEN 'audits' THEN 'nowhere' WHEN 'payments' THEN 'shop bills' " +
		"ELSE 'shop ' || replace(kind, '_', ' ') END"
)

// emitSQL emits messages of a prefix. Behind them comes one that keeps the rows of another savepoint in their place
// (docs/guarantees.md), and before them, now and then, one that must not arrive.
func emitSQL(prefix, emit string) string {
	stray := `{"id": "stray", "aggregatetype": "shop orders", "type": "happened", "aggregateid": "k", "payload": {}}`
	return "SELECT pg_logical_emit_message(false, '" + prefix + "', '" + stray + "')::text WHERE random() < 0.05 " +
		"UNION ALL SELECT " + emit + "::text FROM e " +
		"UNION ALL SELECT pg_logical_emit_message(true, 'campaign.apart', '')::text"
}
