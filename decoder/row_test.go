package decoder_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// A row is the same event whether it was read from the log or from the table.
func TestRows_MapAsInserts(t *testing.T) {
	t.Parallel()
	columns := outboxColumns()
	names := make([]decoder.Column, len(columns))
	for i, c := range columns {
		names[i] = decoder.Column{Name: c.name, Type: c.typ}
	}
	for name, row := range map[string][]any{
		"all":        {"1", "order", "k", "T", "p"},
		"null":       {"1", "order", nil, nil, nil},
		"empty":      {"", "", "", "", ""},
		"null id":    {nil, "order", "k", "T", "p"},
		"null route": {"1", nil, "k", "T", "p"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDecoder()
			feed(t, d, begin(commitLSN, committed, 1), outboxRelation(), insert(outboxOID, row...))
			want := *d.Event()

			values := make([][]byte, len(row))
			for i, v := range row {
				if text, ok := v.(string); ok {
					values[i] = []byte(text)
				}
			}
			got := *decoder.NewRows(want.Mapping, names).Event(values)
			require.Equal(t, want.Relation.Table, got.Relation.Table)
			got.Position, got.CommitTime, got.Relation = want.Position, want.CommitTime, want.Relation
			require.Equal(t, want, got)
		})
	}
}

func TestRows_FaultsAreARowsOwn(t *testing.T) {
	t.Parallel()
	m := &decoder.Mapping{Schema: "public", Table: "outbox", ID: "id", Payload: "payload"}
	rows := decoder.NewRows(m, []decoder.Column{{Name: "id"}, {Name: "payload", Type: 17}})
	ev := rows.Event([][]byte{nil, []byte(`\x00ff`)})
	require.EqualError(t, ev.Fault, "column id of public.outbox is NULL")
	require.Equal(t, checkpoint.Position{}, ev.Position)
	require.Equal(t, []byte{0, 0xff}, ev.Payload)

	require.NoError(t, rows.Event([][]byte{[]byte("1"), nil}).Fault)
	lacking := decoder.NewRows(m, []decoder.Column{{Name: "id"}})
	require.EqualError(t, lacking.Event([][]byte{[]byte("1")}).Fault, "column payload of public.outbox is missing")
}
