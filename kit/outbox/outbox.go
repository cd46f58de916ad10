package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walrelay/walrelay/kit/tx"
)

// Event is what the record in Kafka is made of.
type Event struct {
	// ID is a UUID. Empty: a new one, see NewID. Use one of a Namespace when the same event may be
	// recorded twice.
	ID string
	// AggregateType decides about the topic. Required.
	AggregateType string
	// AggregateID is the record's key: events of one key stay in order. Required.
	AggregateID string
	// Type goes into the header eventType. Required.
	Type string
	// Payload is a JSON document. A row's is published as jsonb prints it, a message's byte for byte. Nil:
	// a tombstone. The document null is a tombstone too in a message, but the text null from a row. With
	// Outbox.Binary the payload of a message may be any bytes, and nil alone is a tombstone.
	Payload json.RawMessage
	// Headers become headers of the record, and go before those that the context gives. The
	// names id, eventType and walrelay-* are reserved.
	Headers map[string]string
}

// Outbox says where events go and how. Its zero value is the table that `walrelay migrate` creates. It
// may be used by any number of goroutines.
type Outbox struct {
	// Table is the outbox table with its schema. Empty: public.outbox. It needs the columns id,
	// aggregatetype, aggregateid, type, payload and headers; id is a uuid or text, payload and headers are
	// jsonb, or json or text, which then hold what jsonb prints.
	Table pgx.Identifier
	// Binary makes Emit write the binary envelope, for the prefix in WALRELAY_MESSAGE_BINARY_PREFIX. Write
	// does not look at it.
	Binary bool
	// IgnoreDuplicates passes over events that a unique constraint of the table refuses, instead of
	// ErrDuplicate.
	IgnoreDuplicates bool
	// Trace takes the trace context out of the context, for whoever has a tracing library. It may return
	// empty strings. Nil: what WithTrace has put there.
	Trace func(ctx context.Context) (traceparent, tracestate string)
}

var (
	// ErrIncomplete is returned for an event without aggregate type, aggregate id or type.
	ErrIncomplete = errors.New("an event needs AggregateType, AggregateID and Type")
	// ErrReservedHeader is returned for a header with a name that walrelay gives itself. The relay could
	// not deliver such an event.
	ErrReservedHeader = errors.New("the header names id, eventType and walrelay-* are reserved")
	// ErrEncoding is returned for an event that is not UTF-8, and for a message's payload that is not JSON;
	// a row's is refused by the server.
	ErrEncoding = errors.New("the event is not JSON in UTF-8")
	// ErrDuplicate is returned when the table has an event of this id already. Like after every error of
	// a statement, the transaction can only be rolled back; for one that shall go on, use IgnoreDuplicates.
	ErrDuplicate = errors.New("the event was recorded already")
)

// Write writes events as rows of public.outbox, see Outbox.Write.
func Write(ctx context.Context, t tx.Tx, events ...Event) (ids []string, err error) {
	return Outbox{}.Write(ctx, t, events...)
}

// Write inserts events in one statement, in the given order, and returns the ids of those that were
// written: of all, unless duplicates are ignored. A duplicate that another transaction has written, but
// not committed, is waited for. After an error none is written, and the transaction has to be rolled
// back when it reached the server.
//
// Only inserts are published, so rows may be deleted at any time, also at once; see Purge.
func (o Outbox) Write(ctx context.Context, t tx.Tx, events ...Event) (ids []string, err error) {
	if len(events) == 0 {
		return nil, nil
	}
	o.Binary = false // a row has no envelope
	var c columns
	for i := range events {
		e, err := o.complete(ctx, events[i])
		if err != nil {
			return nil, fmt.Errorf("write event %d: %w", i, err)
		}
		c.add(&e)
	}
	query := `INSERT INTO ` + o.table() + ` (id, aggregatetype, aggregateid, type, payload, headers)
		SELECT id::uuid, aggregatetype, aggregateid, type, payload::jsonb, headers::jsonb
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
			WITH ORDINALITY AS e (id, aggregatetype, aggregateid, type, payload, headers, n)
		ORDER BY n`
	if o.IgnoreDuplicates {
		query += ` ON CONFLICT DO NOTHING`
	}
	rows, err := t.Query(ctx, query+` RETURNING id::text`,
		c.ids, c.aggregateTypes, c.aggregateIDs, c.types, c.payloads, c.headers)
	if err == nil {
		ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	// A unique_violation with a context is that of a trigger's statement, in another table perhaps.
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok && fault.Code == "23505" && fault.Where == "" {
		return nil, fmt.Errorf("write events: %w: %w", ErrDuplicate, err)
	}
	if err != nil {
		return nil, fmt.Errorf("write events: %w", err)
	}
	return ids, nil
}

func (o Outbox) table() string {
	if len(o.Table) == 0 {
		return "public.outbox"
	}
	return o.Table.Sanitize()
}

// columns are events as arrays, one for each column.
type columns struct {
	ids, aggregateTypes, aggregateIDs, types []string
	payloads, headers                        []*string
}

func (c *columns) add(e *Event) {
	c.ids = append(c.ids, e.ID)
	c.aggregateTypes = append(c.aggregateTypes, e.AggregateType)
	c.aggregateIDs = append(c.aggregateIDs, e.AggregateID)
	c.types = append(c.types, e.Type)
	c.payloads = append(c.payloads, text(e.Payload))
	c.headers = append(c.headers, text(encodeHeaders(e.Headers)))
}

// text returns nil, which is NULL, for a document that is not there.
func text(document json.RawMessage) *string {
	if document == nil {
		return nil
	}
	s := string(document)
	return &s
}
