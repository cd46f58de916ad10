// Package outbox writes events into the outbox table in the application's own transaction, so that
// the event is committed with the business change, or not at all. walrelay does the rest.
//
//	tx, err := pool.Begin(ctx)
//	…
//	_, err = tx.Exec(ctx, "UPDATE orders SET state = 'paid' WHERE id = $1", id)
//	…
//	err = outbox.Write(ctx, tx, outbox.Event{
//		AggregateType: "order", AggregateID: id, Type: "order_paid", Payload: payload,
//	})
//	…
//	err = tx.Commit(ctx)
package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Event is one row of the table that `walrelay migrate` creates.
type Event struct {
	// ID is a UUID. Empty: a new one of version 7, which grows with time. Use one of your own when the
	// same event may be written twice: the primary key then refuses the second.
	ID string
	// AggregateType decides about the topic. Required.
	AggregateType string
	// AggregateID is the record's key: events of one key stay in order. Required.
	AggregateID string
	// Type goes into the header eventType. Required.
	Type string
	// Payload is a JSON document, published byte for byte as jsonb prints it. Nil: NULL, a tombstone.
	Payload json.RawMessage
	// Headers become headers of the record. The names id, eventType and walrelay-* are reserved.
	Headers map[string]string
}

// Tx is a transaction: a pgx.Tx, or a pgx.Conn or pool for an event on its own.
type Tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Write inserts events in the given order, which is the order of delivery within a key. It returns
// the events' ids. After an error the transaction has to be rolled back, as with any other statement.
func Write(ctx context.Context, tx Tx, events ...Event) (ids []string, err error) {
	for i, e := range events {
		if e.AggregateType == "" || e.AggregateID == "" || e.Type == "" {
			return nil, fmt.Errorf("write event %d: %w", i, ErrIncomplete)
		}
		if e.ID == "" {
			e.ID = newID()
		}
		headers, err := encode(e.Headers)
		if err != nil {
			return nil, fmt.Errorf("write event %d: %w", i, err)
		}
		var payload any
		if e.Payload != nil {
			payload = string(e.Payload)
		}
		_, err = tx.Exec(ctx, `INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload, headers)
			VALUES ($1, $2, $3, $4, $5::text::jsonb, $6::text::jsonb)`,
			e.ID, e.AggregateType, e.AggregateID, e.Type, payload, headers)
		if err != nil {
			return nil, fmt.Errorf("write event %d: %w", i, err)
		}
		ids = append(ids, e.ID)
	}
	return ids, nil
}

// ErrIncomplete is returned for an event without aggregate type, aggregate id or type.
var ErrIncomplete = errors.New("an event needs AggregateType, AggregateID and Type")

// encode returns headers as JSON, or nil when there are none.
func encode(headers map[string]string) (any, error) {
	if len(headers) == 0 {
		return nil, nil //nolint:nilnil // NULL
	}
	text, err := json.Marshal(headers)
	if err != nil {
		return nil, fmt.Errorf("encode headers: %w", err)
	}
	return string(text), nil
}
