package decoder_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/decoder"
)

// A domain is what it is over, which the server names in front of the relation, whatever is between.
func TestRelation_Domains(t *testing.T) {
	t.Parallel()
	const digest, own = 20001, 20002
	cols := outboxColumns()
	cols[2].typ, cols[3].typ, cols[4].typ = digest, own, digest
	row := insert(outboxOID, "1", "order", `\x41`, "T", `\x42`)
	d := newDecoder()
	feed(t, d, begin(commitLSN, committed, 1), typeMessage(digest, "", "bytea"), typeMessage(own, "public", "bytea"),
		relation(outboxOID, "public", "outbox", cols...), row)
	require.NoError(t, d.Event().Fault)
	require.Equal(t, "A=B", string(d.Event().Key)+"="+string(d.Event().Payload))
	require.EqualValues(t, byteaOID, d.Event().Relation.Columns[4].Type)
	require.EqualValues(t, own, d.Event().Relation.Columns[3].Type, "it has only the name of a built-in type")

	// The OID has come to be another type's.
	feed(t, d, typeMessage(digest, "", "text"), relation(outboxOID, "public", "outbox", cols...), row)
	require.Equal(t, `\x41=\x42`, string(d.Event().Key)+"="+string(d.Event().Payload))
	require.EqualValues(t, digest, d.Event().Relation.Columns[4].Type)
}

func TestRelation_DomainsOverEveryKind(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"bool", "bytea", "int8", "int2", "int4", "json", "float4", "float8", "date", "timestamp", "timestamptz", "uuid",
		"jsonb",
	} {
		d := newDecoder()
		feed(t, d, typeMessage(20001, "", name), relation(1, "public", "other", col{name: "c", typ: 20001}))
		known, ok := pgtype.NewMap().TypeForName(name)
		require.True(t, ok, name)
		require.Equal(t, known.OID, d.Relation().Columns[0].Type, name)
	}
}

// What is put into the middle of a text has to be one.
func TestRelation_RouteOfBytea(t *testing.T) {
	t.Parallel()
	cols := outboxColumns()
	cols[1].typ = byteaOID
	d := newDecoder()
	feed(t, d, begin(commitLSN, committed, 1), relation(outboxOID, "public", "outbox", cols...),
		insert(outboxOID, "1", `\x41`, "k", "T", "p"))
	require.EqualError(t, d.Event().Fault,
		"column aggregatetype of public.outbox is of type bytea, and a part of a topic must be text")
	require.False(t, d.Event().Partial)
}

func TestMapping_Fault(t *testing.T) {
	t.Parallel()
	table := &decoder.Mapping{Schema: "public", Table: "Out box"}
	require.EqualError(t, table.Fault("Key", "is odd"), `column "Key" of public."Out box" is odd`)
	for _, m := range []*decoder.Mapping{decoder.MessageMapping("a.b", nil), decoder.BinaryMapping("a.b", nil)} {
		require.EqualError(t, m.Fault(m.Key, "is odd"), `member aggregateid of a message "a.b" is odd`)
	}
}
