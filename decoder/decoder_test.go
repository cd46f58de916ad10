package decoder_test

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

const (
	commitLSN = pglogrepl.LSN(0x1_0000_2000)
	endLSN    = pglogrepl.LSN(0x1_0000_2030)
	outboxOID = uint32(16385)
	epoch     = 7
	timeline  = 3
)

// committed is a commit time in the wire's microseconds since 2000-01-01.
const committed = int64(820_670_645_123_456)

var commitTime = time.Date(2026, 1, 2, 12, 4, 5, 123_456_000, time.UTC)

func outboxMapping() decoder.Mapping {
	return decoder.Mapping{
		Schema: "public", Table: "outbox",
		ID: "id", Key: "aggregateid", Payload: "payload",
		Type: "type", Headers: "headers", Timestamp: "created_at", TraceParent: "traceparent",
		Route: []string{"aggregatetype"},
	}
}

func newDecoder(mappings ...decoder.Mapping) *decoder.Decoder {
	if mappings == nil {
		mappings = []decoder.Mapping{outboxMapping()}
	}
	return decoder.New(decoder.Config{
		Mappings: mappings,
		Epoch:    epoch,
		Timeline: func(pglogrepl.LSN) uint32 { return timeline },
	})
}

// outboxColumns are Debezium's, in the order of its documentation.
func outboxColumns() []col {
	return []col{{name: "id"}, {name: "aggregatetype"}, {name: "aggregateid"}, {name: "type"}, {name: "payload"}}
}

func outboxRelation() wire { return relation(outboxOID, "public", "outbox", outboxColumns()...) }

// feed decodes messages that must be accepted and returns the last one's kind.
func feed(t *testing.T, d *decoder.Decoder, messages ...wire) decoder.Kind {
	t.Helper()
	var kind decoder.Kind
	for i, m := range messages {
		var err error
		kind, err = d.Decode(m)
		require.NoErrorf(t, err, "message %d, %c", i, m[0])
	}
	return kind
}

// refuse decodes a message that must be refused.
func refuse(t *testing.T, d *decoder.Decoder, m []byte) *decoder.Error {
	t.Helper()
	kind, err := d.Decode(m)
	require.Error(t, err)
	require.Zero(t, kind)
	var e *decoder.Error
	require.ErrorAs(t, err, &e)
	require.LessOrEqual(t, e.Offset, len(m))
	return e
}

// TestDecode_Golden decodes bytes written by hand from the documentation of the message formats.
func TestDecode_Golden(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	golden := func(lines ...string) wire {
		raw, err := hex.DecodeString(strings.ReplaceAll(strings.Join(lines, ""), " ", ""))
		require.NoError(t, err)
		return raw
	}

	require.Equal(t, decoder.KindBegin, feed(t, d, golden(
		"42", "0000000100002000", "0002ea654647b980", "000002fd")))
	require.Equal(t, decoder.Begin{FinalLSN: commitLSN, CommitTime: commitTime, XID: 765}, d.Begin())
	require.True(t, d.InTransaction())

	require.Equal(t, decoder.KindOrigin, feed(t, d, golden("4f", "0000000000000001", "6e3100")))
	require.Equal(t, decoder.KindType, feed(t, d, golden("59", "00004002", "7075626c696300", "6d6f6f6400")))

	require.Equal(t, decoder.KindRelation, feed(t, d, golden(
		"52", "00004001", "7075626c696300", "6f7574626f7800", "64", "0005",
		"01", "696400", "00000b86", "ffffffff",
		"00", "61676772656761746574797065 00", "00000413", "00000103",
		"00", "6167677265676174656964 00", "00000413", "00000103",
		"00", "7479706500", "00000413", "00000103",
		"00", "7061796c6f616400", "00000eda", "ffffffff")))
	rel := d.Relation()
	require.Equal(t, outboxOID, rel.OID)
	require.Equal(t, "public", rel.Schema)
	require.Equal(t, "outbox", rel.Table)
	require.Equal(t, []decoder.Column{
		{Name: "id", Type: 2950, Modifier: -1},
		{Name: "aggregatetype", Type: 1043, Modifier: 255 + 4},
		{Name: "aggregateid", Type: 1043, Modifier: 255 + 4},
		{Name: "type", Type: 1043, Modifier: 255 + 4},
		{Name: "payload", Type: 3802, Modifier: -1},
	}, rel.Columns)
	require.Equal(t, outboxMapping(), *rel.Mapping)

	require.Equal(t, decoder.KindEvent, feed(t, d, golden(
		"49", "00004001", "4e", "0005",
		"74 00000002 3432", "74 00000005 6f72646572", "6e", "74 00000000", "74 00000002 7b7d")))
	require.Equal(t, &decoder.Event{
		Position:   checkpoint.Position{Epoch: epoch, Timeline: timeline, LSN: commitLSN},
		CommitTime: commitTime,
		Mapping:    rel.Mapping,
		ID:         []byte("42"), Key: nil, Payload: []byte("{}"), Type: []byte{},
		Route: [][]byte{[]byte("order")}, Extra: [][]byte{}, Relation: rel,
	}, d.Event())

	require.Equal(t, decoder.KindUpdate, feed(t, d, golden(
		"55", "00004001", "4b", "0005 74 00000001 31 6e6e6e6e", "4e", "0005 74 00000001 31 6e6e6e 75")))
	require.Same(t, rel, d.Relation())
	require.Equal(t, decoder.KindDelete, feed(t, d, golden("44", "00004001", "4b", "0005 74 00000001 31 6e6e6e6e")))
	require.Equal(t, decoder.KindTruncate, feed(t, d, golden("54", "00000001", "03", "00004001")))

	require.Equal(t, decoder.KindMessage, feed(t, d, golden("4d", "01", "0000000100001ff0", "7000", "00000002 4142")))
	require.Equal(t, decoder.Message{LSN: 0x1_0000_1ff0, Transactional: true, Prefix: "p", Content: []byte("AB")},
		d.Message())

	require.Equal(t, decoder.KindCommit, feed(t, d, golden(
		"43", "00", "0000000100002000", "0000000100002030", "0002ea654647b980")))
	require.Equal(t, decoder.Commit{LSN: commitLSN, EndLSN: endLSN, CommitTime: commitTime}, d.Commit())
	require.False(t, d.InTransaction())

	require.Equal(t, decoder.KindMessage, feed(t, d, golden("4d", "00", "0000000100003000", "00", "00000000")))
	require.Equal(t, decoder.Message{LSN: 0x1_0000_3000, Content: []byte{}}, d.Message())
}

func TestDecode_Refuses(t *testing.T) {
	t.Parallel()
	open := []wire{begin(commitLSN, committed, 1), outboxRelation()}
	foreign := append(slices.Clone(open), relation(9, "public", "Other", col{name: "id"}))
	tests := map[string]struct {
		before []wire
		bytes  wire
		offset int
		reason string
	}{
		"nothing":                {nil, wire{}, 0, "want 1 bytes, have 0"},
		"unknown message":        {nil, wire("?"), 0, "unknown message"},
		"stream start":           {open, message('S').u32(1).u8(1), 0, "protocol version 2"},
		"stream stop":            {open, message('E'), 0, "protocol version 2"},
		"stream commit":          {open, message('c'), 0, "protocol version 2"},
		"stream abort":           {open, message('A'), 0, "protocol version 2"},
		"begin prepare":          {nil, message('b'), 0, "protocol version 2"},
		"begin inside":           {open, begin(commitLSN, 0, 2), 0, "begin inside a transaction"},
		"begin without LSN":      {nil, begin(0, 0, 2), 1, "without a final LSN"},
		"begin with more":        {nil, begin(1, 0, 2).u8(0), 21, "1 trailing bytes"},
		"commit outside":         {nil, commit(1, 2, 0), 0, "outside a transaction"},
		"commit of another":      {open, commit(commitLSN+8, endLSN, 0), 2, "not the final LSN"},
		"commit that ends early": {open, commit(commitLSN, commitLSN-1, 0), 10, "before the commit LSN"},
		"commit with flags": {
			open, append(wire("C\x01"), commit(commitLSN, endLSN, 0)[2:]...), 1, "unknown flags",
		},
		"insert outside":        {nil, insert(outboxOID, "1"), 0, "outside a transaction"},
		"update outside":        {nil, update(outboxOID, 0, nil, "1"), 0, "outside a transaction"},
		"delete outside":        {nil, deletion(outboxOID, 'K', "1"), 0, "outside a transaction"},
		"truncate outside":      {nil, truncate(0, outboxOID), 0, "outside a transaction"},
		"message outside":       {nil, logical(1, 1, "p", "c"), 0, "outside a transaction"},
		"message with flags":    {open, logical(2, 1, "p", "c"), 1, "unknown flags"},
		"insert of undescribed": {open, insert(8, "1"), 1, "relation 8 was never described"},
		"insert of unbound": {
			foreign, insert(9, "1"), 1, `public."Other", which is neither an outbox table nor ignored`,
		},
		"update of undescribed":   {open, update(8, 0, nil, "1"), 1, "never described"},
		"truncate of undescribed": {open, truncate(0, outboxOID, 8), 10, "never described"},
		"insert of an old tuple":  {open, message('I').u32(outboxOID).u8('K').tuple(), 5, "without a new tuple"},
		"update of an old tuple only": {
			open, message('U').u32(outboxOID).u8('O').tuple(nil, nil, nil, nil, nil).u8('X'), 13, "without a new tuple",
		},
		"delete of no tuple":           {open, deletion(outboxOID, 'X', nil), 5, "without an old tuple"},
		"delete of a new tuple":        {open, deletion(outboxOID, 'N', nil), 5, "without an old tuple"},
		"fewer columns than described": {open, insert(outboxOID, "1"), 6, "differ in their number of columns"},
		"more columns than described": {
			open, insert(outboxOID, "1", "", "", "", "", ""), 6, "differ in their number of columns",
		},
		"binary value": {
			open, insert(outboxOID, "1", byte('b'), nil, nil, nil), 14, "binary column value",
		},
		"unknown kind of value": {open, insert(outboxOID, "1", byte('x'), nil, nil, nil), 14, "unknown kind"},
		"length beyond the message": {
			open, message('I').u32(outboxOID).u8('N').u16(5).u8('t').u32(0xfffffff0), 9, "length 4294967280 exceeds the 0 bytes",
		},
		"columns beyond the message": {
			open, message('R').u32(1).str("s").str("t").u8('d').u16(65535), 12, "65535 elements exceed the 0 bytes",
		},
		"relations beyond the message": {
			open, message('T').u32(0x40000000).u8(0).u32(1), 6, "1073741824 elements exceed the 4 bytes",
		},
		"insert with more": {
			open, insert(outboxOID, "1", nil, nil, nil, nil).u8('n'), 18, "1 trailing bytes",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDecoder()
			feed(t, d, test.before...)
			e := refuse(t, d, test.bytes)
			require.Contains(t, e.Reason, test.reason)
			require.Equal(t, test.offset, e.Offset)
			if len(test.bytes) > 0 {
				require.Equal(t, test.bytes[0], e.Message)
			}
		})
	}
}

func TestDecode_ErrorSticks(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	first := refuse(t, d, wire("?"))
	require.Same(t, first, refuse(t, d, begin(commitLSN, 0, 1)))
	require.Equal(t, `decode message '?' at byte 0: unknown message`, first.Error())
}

// TestDecode_EveryPrefix cuts each valid message at each byte.
func TestDecode_EveryPrefix(t *testing.T) {
	t.Parallel()
	for _, s := range scripts() {
		for i, m := range s {
			for n := range m {
				d := newDecoder()
				feed(t, d, s[:i]...)
				e := refuse(t, d, m[:n:n])
				require.LessOrEqualf(t, e.Offset, n, "%c cut to %d bytes", m[0], n)
			}
		}
	}
}

// scripts are streams with every kind of message.
func scripts() [][]wire {
	return [][]wire{
		{
			begin(commitLSN, committed, 765),
			origin(99, "elsewhere"),
			typeMessage(16386, "public", "mood"),
			outboxRelation(),
			insert(outboxOID, "42", "order", "7", "OrderPlaced", `{"total":1.10}`),
			insert(outboxOID, "43", "order", nil, "", nil),
			update(outboxOID, 0, nil, "42", "order", "7", byte('u'), byte('u')),
			update(outboxOID, 'K', []any{"42", nil, nil, nil, nil}, "44", "order", "7", nil, nil),
			update(outboxOID, 'O', []any{"42", "order", "7", nil, nil}, "44", "order", "7", nil, nil),
			deletion(outboxOID, 'K', "42", nil, nil, nil, nil),
			deletion(outboxOID, 'O', "42", "order", "7", nil, nil),
			truncate(3, outboxOID, outboxOID),
			logical(1, commitLSN-8, "prefix", "content"),
			commit(commitLSN, endLSN, committed),
			logical(0, endLSN, "", ""),
			begin(endLSN, committed, 766),
			commit(endLSN, endLSN+8, committed),
		},
		{relation(1, "", "pg_class")},
		{typeMessage(2, "", "")},
		{origin(0, "")},
	}
}

func TestDecode_Positions(t *testing.T) {
	t.Parallel()
	var asked []pglogrepl.LSN
	d := decoder.New(decoder.Config{
		Mappings: []decoder.Mapping{outboxMapping()},
		Epoch:    epoch,
		Timeline: func(lsn pglogrepl.LSN) uint32 {
			asked = append(asked, lsn)
			return uint32(len(asked))
		},
	})
	row := func() wire { return insert(outboxOID, "1", "order", nil, nil, nil) }
	faulty := insert(outboxOID, nil, "order", nil, nil, nil)
	position := func(timeline uint32, lsn pglogrepl.LSN, index uint32) checkpoint.Position {
		return checkpoint.Position{Epoch: epoch, Timeline: timeline, LSN: lsn, Index: index}
	}

	feed(t, d, begin(commitLSN, committed, 1), outboxRelation(), relation(9, "public", "other", col{name: "id"}))
	require.NoError(t, d.Ignore(9))
	feed(t, d, row())
	require.Equal(t, position(1, commitLSN, 0), d.Event().Position)
	feed(t, d, faulty)
	require.Error(t, d.Event().Fault)
	require.Equal(t, position(1, commitLSN, 1), d.Event().Position, "a faulty row has a position")
	require.Equal(t, decoder.KindForeignInsert, feed(t, d, insert(9, "1")))
	feed(t, d, update(outboxOID, 0, nil, nil, nil, nil, nil, nil), row())
	require.Equal(t, position(1, commitLSN, 2), d.Event().Position, "other changes have none")

	feed(t, d, commit(commitLSN, endLSN, committed), begin(endLSN+64, committed, 2), row())
	require.Equal(t, position(2, endLSN+64, 0), d.Event().Position)
	require.Equal(t, []pglogrepl.LSN{commitLSN, endLSN + 64}, asked)
}
