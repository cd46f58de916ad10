package decoder_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/decoder"
)

// TestRelation_ChangesInMidTransaction moves, adds and drops columns between the rows of one transaction.
func TestRelation_ChangesInMidTransaction(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	feed(t, d, begin(commitLSN, committed, 1), outboxRelation(), insert(outboxOID, "1", "order", "k", "T", "p1"))
	require.Equal(t, "p1", string(d.Event().Payload))

	wider := append([]col{{name: "note"}, {name: "created_at"}}, outboxColumns()...)
	feed(t, d, relation(outboxOID, "public", "outbox", wider...),
		insert(outboxOID, "n", "2026-01-02", "2", "order", "k", "T", "p2"))
	require.Equal(t, "2", string(d.Event().ID))
	require.Equal(t, "p2", string(d.Event().Payload))
	require.Equal(t, "2026-01-02", string(d.Event().Timestamp))

	narrower := []col{{name: "payload"}, {name: "id"}, {name: "aggregatetype"}, {name: "aggregateid"}}
	feed(t, d, relation(outboxOID, "public", "outbox", narrower...),
		insert(outboxOID, "p3", "3", "order", "k"))
	require.Equal(t, "3", string(d.Event().ID))
	require.Equal(t, "p3", string(d.Event().Payload))
	require.Equal(t, "order", string(d.Event().Route[0]))
	require.Nil(t, d.Event().Type, "an optional column that is gone")
	require.Nil(t, d.Event().Timestamp)
	require.NoError(t, d.Event().Fault)
	require.EqualValues(t, 2, d.Event().Position.Index)
}

func TestRelation_MissingColumn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"id", "aggregatetype", "aggregateid", "payload"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cols []col
			var row []any
			for _, c := range outboxColumns() {
				if c.name != name {
					cols, row = append(cols, c), append(row, "v")
				}
			}
			d := newDecoder()
			kind := feed(t, d, begin(commitLSN, committed, 1),
				relation(outboxOID, "public", "outbox", cols...), insert(outboxOID, row...))
			require.Equal(t, decoder.KindEvent, kind)
			require.EqualError(t, d.Event().Fault, "column "+name+" of public.outbox is missing")
			var fault *decoder.ColumnError
			require.ErrorAs(t, d.Event().Fault, &fault)
			require.Equal(t, &decoder.ColumnError{Table: "public.outbox", Column: name, Reason: "is missing"}, fault)
			require.Equal(t, "v", string(d.Event().Type), "the rest of the row is there")
			require.Equal(t, name == "aggregateid" || name == "payload", d.Event().Partial)

			feed(t, d, outboxRelation(), insert(outboxOID, "v", "v", "v", "v", "v"))
			require.NoError(t, d.Event().Fault, "once the column is back")
		})
	}
}

// TestRelation_PartitionRoot follows what the server sends with publish_via_partition_root: the root's
// and the leaf's description, then rows with the root's OID.
func TestRelation_PartitionRoot(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	feed(t, d, begin(commitLSN, committed, 1), outboxRelation(),
		relation(77, "public", "outbox_2026", append([]col{{name: "extra"}}, outboxColumns()...)...))
	require.Nil(t, d.Relation().Mapping)
	require.NoError(t, d.Ignore(77))
	require.Equal(t, decoder.KindEvent, feed(t, d, insert(outboxOID, "1", "order", "k", "T", "p")))
	require.Equal(t, "1", string(d.Event().ID))
	require.Equal(t, "outbox", d.Relation().Table)
}

func TestDecoder_Bind(t *testing.T) {
	t.Parallel()
	other := decoder.Mapping{Schema: "public", Table: "other", ID: "id", Key: "absent", Payload: "extra"}
	mappings := []decoder.Mapping{outboxMapping(), other}
	d := newDecoder(mappings...)
	leaf := relation(77, "public", "Leaf", append([]col{{name: "extra"}}, outboxColumns()...)...)
	row := insert(77, "x", "1", "order", "k", "T", "p")

	require.EqualError(t, d.Bind(77, &mappings[0]), "bind relation 77: not described")
	require.EqualError(t, d.Ignore(77), "ignore relation 77: not described")

	feed(t, d, begin(commitLSN, committed, 1), leaf)
	require.NoError(t, d.Ignore(77))
	require.Equal(t, decoder.KindForeignInsert, feed(t, d, row))
	require.NoError(t, d.Bind(77, &mappings[0]))
	require.Equal(t, decoder.KindEvent, feed(t, d, row))
	require.Same(t, &mappings[0], d.Event().Mapping)
	require.Same(t, &mappings[0], d.Relation().Mapping)
	require.Equal(t, "1", string(d.Event().ID))
	feed(t, d, insert(77, "x", "1", nil, "k", "T", "p"))
	require.EqualError(t, d.Event().Fault, `column aggregatetype of public."Leaf" is NULL`)
	require.NoError(t, d.Bind(77, &mappings[1]))
	feed(t, d, row)
	require.EqualError(t, d.Event().Fault, `column absent of public."Leaf" is missing`)
	require.Equal(t, "x", string(d.Event().Payload))
	require.Empty(t, d.Event().Route)
	require.NoError(t, d.Bind(77, &mappings[0]))
	feed(t, d, row)
	require.NoError(t, d.Event().Fault, "only the last mapping counts")
	require.NoError(t, d.Ignore(77))
	require.Nil(t, d.Relation().Mapping)
	require.Equal(t, decoder.KindForeignInsert, feed(t, d, row))

	feed(t, d, leaf)
	require.Contains(t, refuse(t, d, row).Reason, "neither an outbox table nor ignored",
		"described again, to be decided again")
}

func TestRelation_NamesAreExact(t *testing.T) {
	t.Parallel()
	for _, name := range [][2]string{
		{"public", "Outbox"}, {"Public", "outbox"}, {"public", "outbox2"}, {"", "outbox"},
	} {
		d := newDecoder()
		feed(t, d, relation(outboxOID, name[0], name[1], outboxColumns()...))
		require.Nil(t, d.Relation().Mapping, name)
	}
	d := newDecoder(decoder.Mapping{Schema: "pg_catalog", Table: "outbox"})
	feed(t, d, relation(outboxOID, "", "outbox"))
	require.Equal(t, "pg_catalog", d.Relation().Schema)
	require.NotNil(t, d.Relation().Mapping)
}

func TestRelation_SeveralTables(t *testing.T) {
	t.Parallel()
	second := decoder.Mapping{
		Schema: "billing", Table: "events", ID: "id", Key: "id", Payload: "body", Type: "kind",
		Route: []string{"kind", "tenant", "kind"},
	}
	mappings := []decoder.Mapping{outboxMapping(), second}
	d := newDecoder(mappings...)
	feed(t, d, begin(commitLSN, committed, 1), outboxRelation(),
		relation(20, "billing", "events", col{name: "tenant"}, col{name: "kind"}, col{name: "body"}, col{name: "id"}))
	for i := range 3 {
		feed(t, d, insert(outboxOID, "1", "order", "k", "T", "p"))
		require.Same(t, &mappings[0], d.Event().Mapping)
		require.Equal(t, [][]byte{[]byte("order")}, d.Event().Route)

		feed(t, d, insert(20, "acme", "paid", "b", "9"))
		ev := d.Event()
		require.Same(t, &mappings[1], ev.Mapping)
		require.Equal(t, [][]byte{[]byte("paid"), []byte("acme"), []byte("paid")}, ev.Route, "a column may be used twice")
		require.Equal(t, "9", string(ev.ID))
		require.Equal(t, "9", string(ev.Key))
		require.Equal(t, "paid", string(ev.Type))
		require.EqualValues(t, 2*i+1, ev.Position.Index)
	}
}

// TestRelation_ReusedOutboxName covers an outbox that was dropped and made anew under its name.
func TestRelation_ReusedOutboxName(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	feed(t, d, begin(commitLSN, committed, 1), outboxRelation(),
		relation(outboxOID+1, "public", "outbox", outboxColumns()...))
	require.Equal(t, decoder.KindEvent, feed(t, d, insert(outboxOID, "1", "order", "k", "T", "p")))
	require.Equal(t, decoder.KindEvent, feed(t, d, insert(outboxOID+1, "1", "order", "k", "T", "p")))
}
