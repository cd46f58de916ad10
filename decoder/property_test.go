package decoder_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/walrelay/walrelay/decoder"
)

// TestRelation_ColumnsByName describes tables with any of the mapped columns and others between them,
// in any order, several times in one transaction, and looks each value up by its column's name.
func TestRelation_ColumnsByName(t *testing.T) {
	t.Parallel()
	names := []string{
		"id", "aggregateid", "payload", "type", "headers", "created_at", "traceparent", "aggregatetype",
		"note", "ID", "payload2",
	}
	rapid.Check(t, func(t *rapid.T) {
		d := newDecoder()
		mustDecode(t, d, begin(commitLSN, committed, 1))
		index := uint32(0)
		for range rapid.IntRange(1, 3).Draw(t, "descriptions") {
			table := rapid.Permutation(names).Draw(t, "order")
			table = table[:rapid.IntRange(0, len(table)).Draw(t, "columns")]
			cols := make([]col, len(table))
			for i, name := range table {
				cols[i].name = name
			}
			mustDecode(t, d, relation(outboxOID, "public", "outbox", cols...))
			for range rapid.IntRange(1, 3).Draw(t, "rows") {
				row := map[string]any{}
				tuple := make([]any, len(table))
				for i, name := range table {
					if !rapid.Bool().Draw(t, "null") {
						tuple[i] = rapid.StringN(0, 8, 32).Draw(t, name)
						row[name] = tuple[i]
					}
				}
				require.Equal(t, decoder.KindEvent, mustDecode(t, d, insert(outboxOID, tuple...)))
				require.Equal(t, index, d.Event().Position.Index)
				requireRow(t, row, table, d.Event())
				index++
			}
		}
	})
}

func mustDecode(t *rapid.T, d *decoder.Decoder, wal wire) decoder.Kind {
	kind, err := d.Decode(wal)
	require.NoError(t, err)
	return kind
}

func requireRow(t *rapid.T, row map[string]any, table []string, ev *decoder.Event) {
	got := map[string][]byte{
		"id": ev.ID, "aggregateid": ev.Key, "payload": ev.Payload, "type": ev.Type, "headers": ev.Headers,
		"created_at": ev.Timestamp, "traceparent": ev.TraceParent, "aggregatetype": ev.Route[0],
	}
	for name, value := range got {
		if want, ok := row[name]; ok {
			require.NotNil(t, value, name)
			require.Equal(t, want, string(value), name)
		} else {
			require.Nil(t, value, name)
		}
	}
	present := map[string]bool{}
	for _, name := range table {
		present[name] = true
	}
	fault := row["id"] == nil || row["aggregatetype"] == nil || !present["aggregateid"] || !present["payload"]
	require.Equal(t, fault, ev.Fault != nil, "%v", ev.Fault)
}
