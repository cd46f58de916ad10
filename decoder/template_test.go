package decoder_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/decoder"
)

// A key of several columns is made alike of a row of the log and of one of the table. What cannot be a part of it
// is a fault that names the column.
func TestKeyTemplate(t *testing.T) {
	t.Parallel()
	template, err := decoder.ParseTemplate("{tenant}:{kind}/{tenant}")
	require.NoError(t, err)
	m := decoder.Mapping{
		Schema: "public", Table: "outbox", ID: "id", KeyTemplate: template, Payload: "kind", Route: []string{"kind"},
	}
	columns := []col{{name: "kind", typ: 25}, {name: "id", typ: 25}, {name: "tenant", typ: 25}}
	digest := []col{columns[0], columns[1], {name: "tenant", typ: 17}}
	for name, test := range map[string]struct {
		columns []col
		row     []any
		key     any // nil: null
		fault   string
	}{
		"all":     {columns, []any{"K", "1", "T"}, "T:K/T", ""},
		"empty":   {columns, []any{"", "1", ""}, ":/", ""},
		"null":    {columns, []any{"K", "1", nil}, nil, "column tenant of public.outbox is NULL"},
		"null id": {columns, []any{"K", nil, "T"}, "T:K/T", "column id of public.outbox is NULL"},
		"missing": {columns[:2], []any{"K", "1"}, nil, "column tenant of public.outbox is missing"},
		"bytea": {
			digest,
			[]any{"K", "1", `\x41`},
			`\x41:K/\x41`,
			"column tenant of public.outbox is of type bytea, and a part of a key must be text",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDecoder(m)
			feed(t, d, begin(commitLSN, committed, 1), relation(outboxOID, "public", "outbox", test.columns...),
				insert(outboxOID, test.row...))
			logged := *d.Event()
			if test.fault == "" {
				require.NoError(t, logged.Fault)
			} else {
				require.EqualError(t, logged.Fault, test.fault)
			}
			if test.key == nil {
				require.Nil(t, logged.Key)
			} else {
				require.Equal(t, test.key, string(logged.Key))
			}
			require.Equal(t, test.fault != "" && name != "null id", logged.Partial)

			values := make([][]byte, len(test.row))
			names := make([]decoder.Column, len(test.row))
			for i, v := range test.row {
				names[i] = decoder.Column{Name: test.columns[i].name, Type: test.columns[i].typ}
				if text, ok := v.(string); ok {
					values[i] = []byte(text)
				}
			}
			read := *decoder.NewRows(logged.Mapping, names).Event(values)
			read.Position, read.CommitTime, read.Relation = logged.Position, logged.CommitTime, logged.Relation
			require.Equal(t, logged, read)
		})
	}
}

// An empty key is none that is NULL, and the key of a row is not that of the one before.
func TestKeyTemplate_OfOneColumn(t *testing.T) {
	template, err := decoder.ParseTemplate("{k}")
	require.NoError(t, err)
	m := &decoder.Mapping{Schema: "s", Table: "t", ID: "id", KeyTemplate: template, Payload: "k"}
	rows := decoder.NewRows(m, []decoder.Column{{Name: "id"}, {Name: "k"}})
	for _, key := range []string{"", "long", "s", ""} {
		ev := rows.Event([][]byte{[]byte("1"), []byte(key)})
		require.NoError(t, ev.Fault)
		require.NotNil(t, ev.Key)
		require.Equal(t, key, string(ev.Key))
	}
	require.Nil(t, rows.Event([][]byte{[]byte("1"), nil}).Key)
	values := [][]byte{[]byte("1"), []byte("k")}
	require.Zero(t, testing.AllocsPerRun(100, func() { rows.Event(values) }))
}
