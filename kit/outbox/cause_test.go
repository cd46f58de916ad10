package outbox_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/outbox"
	"github.com/walrelay/walrelay/testenv"
)

// step writes one event and returns its headers as a consumer gets them, the id among them.
func step(
	t *testing.T, ctx context.Context, db *testenv.Database, o outbox.Outbox, event outbox.Event,
) map[string]string {
	t.Helper()
	event.AggregateType, event.AggregateID, event.Type = "a", "1", "t"
	ids, err := o.Write(ctx, db.Conn, event)
	require.NoError(t, err)
	var text *string
	require.NoError(t, db.QueryRow(t, `SELECT headers::text FROM outbox WHERE id = $1::text::uuid`, ids[0]).Scan(&text))
	headers := map[string]string{}
	if text != nil {
		require.NoError(t, json.Unmarshal([]byte(*text), &headers))
	}
	headers["id"] = ids[0]
	return headers
}

func of(headers map[string]string) func(string) string {
	return func(name string) string { return headers[name] }
}

// Three services in a row.
func TestWithRecord_Chain(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	ctx := outbox.WithTrace(t.Context(), "00-a-b-01", "vendor=1")
	first := step(t, ctx, db, outbox.Outbox{}, outbox.Event{})
	require.Equal(t, map[string]string{"id": first["id"], "traceparent": "00-a-b-01", "tracestate": "vendor=1"}, first)

	second := step(t, outbox.WithRecord(t.Context(), of(first)), db, outbox.Outbox{}, outbox.Event{})
	require.Equal(t, map[string]string{
		"id": second["id"], "traceparent": "00-a-b-01", "tracestate": "vendor=1",
		"causation-id": first["id"], "correlation-id": first["id"],
	}, second)

	ctx = outbox.WithRecord(t.Context(), of(second))
	require.Equal(t, outbox.Cause{EventID: second["id"], CorrelationID: first["id"]}, outbox.CauseOf(ctx))
	third := step(t, outbox.WithTrace(ctx, "", ""), db, outbox.Outbox{}, outbox.Event{})
	require.Equal(t, map[string]string{
		"id": third["id"], "causation-id": second["id"], "correlation-id": first["id"],
	}, third)
}

func TestWithCause_RequestBeginsTheChain(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	ctx := outbox.WithCause(t.Context(), outbox.Cause{CorrelationID: "request-1"})
	headers := step(t, ctx, db, outbox.Outbox{}, outbox.Event{})
	require.Equal(t, map[string]string{"id": headers["id"], "correlation-id": "request-1"}, headers)
}

func TestOutbox_TraceAndOwnHeadersGoFirst(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	ctx := outbox.WithTrace(t.Context(), "unused", "unused")
	o := outbox.Outbox{Trace: func(context.Context) (traceparent, tracestate string) { return "tp", "ts" }}
	event := outbox.Event{Headers: map[string]string{"tracestate": "own"}}
	headers := step(t, ctx, db, o, event)
	require.Equal(t, map[string]string{"id": headers["id"], "traceparent": "tp", "tracestate": "own"}, headers)
	require.Equal(t, map[string]string{"tracestate": "own"}, event.Headers, "the caller's map is left alone")
}
