package outbox_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/outbox"
	"github.com/walrelay/walrelay/testenv"
)

// emitted reads what a relay would.
func emitted(t *testing.T, db *testenv.Database, slot, prefix string) (contents []string) {
	t.Helper()
	rows, err := db.Conn.Query(t.Context(), `SELECT data FROM pg_logical_slot_get_binary_changes($1, NULL, NULL,
		'proto_version', '1', 'publication_names', 'walrelay', 'messages', 'true')`, slot)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	require.NoError(t, err)
	for _, data := range all {
		// kind, flags, LSN, prefix and its zero, length
		if text, ok := strings.CutPrefix(string(data[min(10, len(data)):]), prefix+"\x00"); ok && data[0] == 'M' {
			require.Equal(t, byte(1), data[1], "transactional")
			contents = append(contents, text[4:])
		}
	}
	return contents
}

func TestEmit(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		db := database(t, major)
		slot := db.Slot(t)
		db.Exec(t, `SELECT pg_create_logical_replication_slot('`+slot+`', 'pgoutput')`)
		var ids []string
		require.NoError(t, pgx.BeginFunc(t.Context(), db.Conn, func(q pgx.Tx) (err error) {
			ids, err = outbox.Emit(t.Context(), q, "shop",
				outbox.Event{
					AggregateType: "order", AggregateID: "Straße <1>", Type: "paid",
					Payload: json.RawMessage(`{ "n": 9007199254740993, "s": "<&>" }`), Headers: map[string]string{"tenant": "a"},
				},
				outbox.Event{AggregateType: "order", AggregateID: "2", Type: "gone"})
			return err
		}))
		gone, err := db.Conn.Begin(t.Context())
		require.NoError(t, err)
		_, err = outbox.Emit(t.Context(), gone, "shop", outbox.Event{AggregateType: "a", AggregateID: "b", Type: "c"})
		require.NoError(t, err)
		require.NoError(t, gone.Rollback(t.Context()))

		contents := emitted(t, db, slot, "shop")
		require.Len(t, contents, 2, "not what was rolled back")
		require.Contains(t, contents[0], `"payload":{ "n": 9007199254740993, "s": "<&>" }}`, "byte for byte")
		require.JSONEq(t, `{"id":"`+ids[0]+`","aggregatetype":"order","aggregateid":"Straße <1>","type":"paid",
			"headers":{"tenant":"a"},"payload":{"n":9007199254740993,"s":"<&>"}}`, contents[0])
		require.JSONEq(t, `{"id":"`+ids[1]+`","aggregatetype":"order","aggregateid":"2","type":"gone","payload":null}`,
			contents[1])
	})
}

func TestEmit_BatchKeepsOrder(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	slot := db.Slot(t)
	db.Exec(t, `SELECT pg_create_logical_replication_slot('`+slot+`', 'pgoutput')`)
	events := make([]outbox.Event, 1000)
	for i := range events {
		events[i] = outbox.Event{AggregateType: "a", AggregateID: "1", Type: "t"}
	}
	ids, err := outbox.Emit(t.Context(), db.Conn, "p", events...)
	require.NoError(t, err)
	var got []string
	for _, content := range emitted(t, db, slot, "p") {
		var e struct{ ID string }
		require.NoError(t, json.Unmarshal([]byte(content), &e))
		got = append(got, e.ID)
	}
	require.Equal(t, ids, got)
}

// The binary envelope takes a payload of any bytes, and tells an empty one from none.
func TestEmit_Binary(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	slot := db.Slot(t)
	db.Exec(t, `SELECT pg_create_logical_replication_slot('`+slot+`', 'pgoutput')`)
	event := outbox.Event{ID: "i", AggregateType: "a", AggregateID: "k", Type: "t"}
	with := func(payload []byte, headers map[string]string) outbox.Event {
		e := event
		e.Payload, e.Headers = payload, headers
		return e
	}
	ids, err := outbox.Outbox{Binary: true}.Emit(t.Context(), db.Conn, "b", event, with([]byte{}, nil),
		with([]byte("\xff\x00"), map[string]string{"x": "1", "a": ""}))
	require.NoError(t, err)
	require.Equal(t, []string{"i", "i", "i"}, ids)
	const (
		head = "\x01\x00\x00\x00\x01i\x00\x01\x00\x00\x00\x0daggregatetype\x00\x00\x00\x01a" +
			"\x00\x00\x00\x01k\x00\x00\x00\x01t"
		null   = "\xff\xff\xff\xff"
		none   = "\x00\x00"
		filled = "\x00\x02\x00\x00\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x01x\x00\x00\x00\x011"
	)
	require.Equal(t, []string{
		head + null + none + null, head + null + none + "\x00\x00\x00\x00", head + null + filled + "\x00\x00\x00\x02\xff\x00",
	}, emitted(t, db, slot, "b"))

	_, err = outbox.Emit(t.Context(), db.Conn, "b", with([]byte("\xff"), nil))
	require.ErrorIs(t, err, outbox.ErrEncoding)
	_, err = outbox.Outbox{Binary: true}.Write(t.Context(), db.Conn, with([]byte("\xff"), nil))
	require.ErrorIs(t, err, outbox.ErrEncoding, "a row has no envelope")
}
