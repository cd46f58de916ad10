package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/walrelay/walrelay/kit/tx"
)

// Emit records events as logical messages, see Outbox.Emit.
func Emit(ctx context.Context, t tx.Tx, prefix string, events ...Event) (ids []string, err error) {
	return Outbox{}.Emit(ctx, t, prefix, events...)
}

// Emit records events as transactional logical messages (pg_logical_emit_message) in one statement, in the
// given order, and returns their ids. walrelay delivers those of the prefix in WALRELAY_MESSAGE_PREFIX. They
// share the transaction's fate as a row does, but lie in the write-ahead log alone: nothing is left to
// delete, and nothing refuses a duplicate; a consumer knows it by its id. A slot that is created later,
// or that was lost, never sees them, and they can't be sent again, while rows can, as long as they are there.
//
// The content is the envelope that docs/wire-format.md describes, the binary one with Outbox.Binary.
func (o Outbox) Emit(ctx context.Context, t tx.Tx, prefix string, events ...Event) (ids []string, err error) {
	if len(events) == 0 {
		return nil, nil
	}
	var contents [][]byte
	for i := range events {
		e, err := o.complete(ctx, events[i])
		if err != nil {
			return nil, fmt.Errorf("emit event %d: %w", i, err)
		}
		encode := envelope
		if o.Binary {
			encode = binaryEnvelope
		}
		content, err := encode(&e)
		if err != nil {
			return nil, fmt.Errorf("emit event %d: %w", i, err)
		}
		ids = append(ids, e.ID)
		contents = append(contents, content)
	}
	// The function is volatile and so called after the sort. As bytea the content stays UTF-8 whatever
	// the database's encoding.
	_, err = t.Exec(ctx, `SELECT pg_logical_emit_message(true, $1::text, content)
		FROM unnest($2::bytea[]) WITH ORDINALITY AS e (content, n) ORDER BY n`, prefix, contents)
	if err != nil {
		return nil, fmt.Errorf("emit events: %w", err)
	}
	return ids, nil
}

// envelope writes the payload as it is; encoding/json would rewrite it.
func envelope(e *Event) ([]byte, error) {
	payload := e.Payload
	if payload == nil {
		payload = json.RawMessage("null")
	}
	if !json.Valid(payload) { // the server would not mind
		return nil, ErrEncoding
	}
	head, err := json.Marshal(struct {
		ID            string            `json:"id"`
		AggregateType string            `json:"aggregatetype"`
		AggregateID   string            `json:"aggregateid"`
		Type          string            `json:"type"`
		Headers       map[string]string `json:"headers,omitempty"`
	}{e.ID, e.AggregateType, e.AggregateID, e.Type, e.Headers})
	if err != nil {
		return nil, fmt.Errorf("encode envelope: %w", err)
	}
	return bytes.Join([][]byte{head[:len(head)-1], []byte(`,"payload":`), payload, []byte("}")}, nil), nil
}
