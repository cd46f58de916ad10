package decoder_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/decoder"
)

// FuzzDecode decodes any bytes, once at the start of a stream and once inside a transaction, and
// compares with pglogrepl: what we accept it reads alike, and what it reads we accept, provided that
// the message is well formed (writing it again gives the same bytes) and comes where it may.
func FuzzDecode(f *testing.F) {
	for _, script := range scripts() {
		for _, m := range script {
			f.Add([]byte(m))
		}
	}
	f.Fuzz(func(t *testing.T, wal []byte) {
		before := bytes.Clone(wal)
		fresh, inside := newDecoder(), newDecoder()
		feed(t, inside, begin(commitLSN, committed, 1), outboxRelation())
		for _, d := range []*decoder.Decoder{fresh, inside} {
			if kind, err := d.Decode(wal); err == nil {
				agree(t, d, kind, wal, oracle(wal))
			} else {
				requireTyped(t, err, wal)
			}
		}
		if parsed := oracle(wal); parsed != nil && bytes.Equal(rewrite(parsed), wal) {
			if d := prepare(t, parsed); d != nil {
				kind, err := d.Decode(wal)
				require.NoError(t, err, "pglogrepl reads it")
				agree(t, d, kind, wal, parsed)
			}
		}
		require.Equal(t, before, wal, "the input is left as it is")
	})
}

func requireTyped(t *testing.T, err error, wal []byte) {
	t.Helper()
	var e *decoder.Error
	require.ErrorAs(t, err, &e)
	require.NotEmpty(t, e.Reason)
	require.GreaterOrEqual(t, e.Offset, 0)
	require.LessOrEqual(t, e.Offset, len(wal))
	if len(wal) > 0 {
		require.Equal(t, wal[0], e.Message)
	}
}

// oracle parses by pglogrepl; nil when that fails, or panics as it does on truncated input.
func oracle(wal []byte) (m pglogrepl.Message) {
	if len(wal) == 0 || allocatesByCount(wal) {
		return nil
	}
	defer func() {
		if recover() != nil {
			m = nil
		}
	}()
	m, err := pglogrepl.Parse(wal)
	if err != nil {
		return nil
	}
	return m
}

// allocatesByCount reports whether pglogrepl might allocate gigabytes for a length that the message
// does not bear out.
func allocatesByCount(wal []byte) bool {
	switch wal[0] {
	case 'T':
		return len(wal) >= 5 && binary.BigEndian.Uint32(wal[1:]) > 1<<16
	case 'I', 'U', 'D':
		for i := 1; i+4 < len(wal); i++ {
			if (wal[i] == 't' || wal[i] == 'b') && binary.BigEndian.Uint32(wal[i+1:]) > 1<<20 {
				return true
			}
		}
	}
	return false
}

// rewrite encodes a parsed message; nil for those that the server does not send.
func rewrite(m pglogrepl.Message) wire {
	switch m := m.(type) {
	case *pglogrepl.BeginMessage:
		return begin(m.FinalLSN, micros(m.CommitTime), m.Xid)
	case *pglogrepl.CommitMessage:
		return commit(m.CommitLSN, m.TransactionEndLSN, micros(m.CommitTime))
	case *pglogrepl.OriginMessage:
		return origin(m.CommitLSN, m.Name)
	case *pglogrepl.TypeMessage:
		return typeMessage(m.DataType, m.Namespace, m.Name)
	case *pglogrepl.RelationMessage:
		w := message('R').u32(m.RelationID).str(m.Namespace).str(m.RelationName).u8(m.ReplicaIdentity).u16(len(m.Columns))
		for _, c := range m.Columns {
			w = w.u8(c.Flags).str(c.Name).u32(c.DataType).u32(uint32(c.TypeModifier))
		}
		return w
	case *pglogrepl.InsertMessage:
		return insert(m.RelationID, values(m.Tuple)...)
	case *pglogrepl.UpdateMessage:
		return update(m.RelationID, m.OldTupleType, values(m.OldTuple), values(m.NewTuple)...)
	case *pglogrepl.DeleteMessage:
		return deletion(m.RelationID, m.OldTupleType, values(m.OldTuple)...)
	case *pglogrepl.TruncateMessage:
		return truncate(m.Option, m.RelationIDs...)
	case *pglogrepl.LogicalDecodingMessage:
		flags := byte(0)
		if m.Transactional {
			flags = 1
		}
		return logical(flags, m.LSN, m.Prefix, string(m.Content))
	}
	return nil
}

// micros is the wire's form of a time; pglogrepl's times overflow after 292 years, which rewriting shows.
func micros(t time.Time) int64 { return t.UnixMicro() - 946_684_800_000_000 }

// values turns a tuple into what the encoder takes; kinds of value that do not exist vanish.
func values(tuple *pglogrepl.TupleData) (row []any) {
	if tuple == nil {
		return nil
	}
	for _, c := range tuple.Columns {
		switch c.DataType {
		case 't':
			row = append(row, string(c.Data))
		case 'n':
			row = append(row, nil)
		case 'u':
			row = append(row, byte('u'))
		}
	}
	return row
}

// prepare returns a decoder at a point of a stream where m may come; nil when there is none.
func prepare(t *testing.T, m pglogrepl.Message) *decoder.Decoder {
	t.Helper()
	d := newDecoder()
	opened := begin(commitLSN, committed, 1)
	switch m := m.(type) {
	case *pglogrepl.BeginMessage:
		if m.FinalLSN == 0 {
			return nil
		}
	case *pglogrepl.CommitMessage:
		if m.CommitLSN == 0 || m.TransactionEndLSN < m.CommitLSN {
			return nil
		}
		feed(t, d, begin(m.CommitLSN, committed, 1))
	case *pglogrepl.InsertMessage:
		feed(t, d, opened, anyTable(m.RelationID, m.Tuple))
	case *pglogrepl.UpdateMessage:
		if m.OldTuple != nil && m.OldTuple.ColumnNum != m.NewTuple.ColumnNum {
			return nil
		}
		feed(t, d, opened, anyTable(m.RelationID, m.NewTuple))
	case *pglogrepl.DeleteMessage:
		feed(t, d, opened, anyTable(m.RelationID, m.OldTuple))
	case *pglogrepl.TruncateMessage:
		feed(t, d, opened)
		for _, oid := range m.RelationIDs {
			feed(t, d, anyTable(oid, nil))
		}
	default:
		feed(t, d, opened)
	}
	return d
}

// anyTable describes the outbox with as many columns as the tuple has: its own first.
func anyTable(oid uint32, tuple *pglogrepl.TupleData) wire {
	var cols []col
	if tuple != nil {
		cols = make([]col, len(tuple.Columns))
	}
	copy(cols, outboxColumns())
	return relation(oid, "public", "outbox", cols...)
}

// agree requires that the decoder read from wal what pglogrepl did.
func agree(t *testing.T, d *decoder.Decoder, kind decoder.Kind, wal []byte, parsed pglogrepl.Message) {
	t.Helper()
	if parsed == nil {
		// It also wants a column in every inserted row and a relation in every truncate.
		bare := kind == decoder.KindEvent && len(wal) == 8 || kind == decoder.KindTruncate && len(wal) == 6
		require.True(t, bare || allocatesByCount(wal), "pglogrepl does not read it")
		return
	}
	switch m := parsed.(type) {
	case *pglogrepl.BeginMessage:
		require.Equal(t, decoder.KindBegin, kind)
		require.Equal(t, m.FinalLSN, d.Begin().FinalLSN)
		require.Equal(t, m.Xid, d.Begin().XID)
		requireTime(t, m.CommitTime, d.Begin().CommitTime)
	case *pglogrepl.CommitMessage:
		require.Equal(t, decoder.KindCommit, kind)
		require.Equal(t, m.CommitLSN, d.Commit().LSN)
		require.Equal(t, m.TransactionEndLSN, d.Commit().EndLSN)
		requireTime(t, m.CommitTime, d.Commit().CommitTime)
	case *pglogrepl.RelationMessage:
		require.Equal(t, decoder.KindRelation, kind)
		agreeRelation(t, m, d.Relation())
	case *pglogrepl.InsertMessage:
		require.Equal(t, decoder.KindEvent, kind)
		require.Equal(t, m.RelationID, d.Relation().OID)
		agreeEvent(t, m.Tuple, d.Event())
	case *pglogrepl.UpdateMessage:
		require.Equal(t, decoder.KindUpdate, kind)
		require.Equal(t, m.RelationID, d.Relation().OID)
	case *pglogrepl.DeleteMessage:
		require.Equal(t, decoder.KindDelete, kind)
		require.Equal(t, m.RelationID, d.Relation().OID)
	case *pglogrepl.TruncateMessage:
		require.Equal(t, decoder.KindTruncate, kind)
	case *pglogrepl.TypeMessage:
		require.Equal(t, decoder.KindType, kind)
	case *pglogrepl.OriginMessage:
		require.Equal(t, decoder.KindOrigin, kind)
	case *pglogrepl.LogicalDecodingMessage:
		require.Equal(t, decoder.KindMessage, kind)
		require.Equal(t, decoder.Message{LSN: m.LSN, Transactional: m.Transactional, Prefix: m.Prefix, Content: m.Content},
			d.Message())
	default:
		t.Fatalf("a message that pglogrepl reads as %T", parsed)
	}
	again := rewrite(parsed)
	if kind != decoder.KindBegin && kind != decoder.KindCommit { // times may overflow there
		require.Equal(t, []byte(again), wal, "the whole message was consumed")
	}
	require.Len(t, wal, len(again))
}

// requireTime leaves out the times that pglogrepl cannot hold.
func requireTime(t *testing.T, want, got time.Time) {
	t.Helper()
	if got.Year() > 1700 && got.Year() < 2260 {
		require.True(t, want.Equal(got), "%v, not %v", got, want)
	}
}

func agreeRelation(t *testing.T, m *pglogrepl.RelationMessage, rel *decoder.Relation) {
	t.Helper()
	require.Equal(t, m.RelationID, rel.OID)
	require.Equal(t, m.RelationName, rel.Table)
	if m.Namespace == "" {
		require.Equal(t, "pg_catalog", rel.Schema)
	} else {
		require.Equal(t, m.Namespace, rel.Schema)
	}
	require.Len(t, rel.Columns, len(m.Columns))
	for i, c := range m.Columns {
		require.Equal(t, decoder.Column{Name: c.Name, Type: c.DataType, Modifier: c.TypeModifier}, rel.Columns[i])
	}
	require.Equal(t, rel.Schema == "public" && rel.Table == "outbox", rel.Mapping != nil)
}

// agreeEvent knows that the relation has outboxColumns, or fewer, or further ones behind them.
func agreeEvent(t *testing.T, tuple *pglogrepl.TupleData, ev *decoder.Event) {
	t.Helper()
	fault := false
	for i, got := range [][]byte{ev.ID, ev.Route[0], ev.Key, ev.Type, ev.Payload} {
		switch {
		case i >= len(tuple.Columns):
			require.Nil(t, got)
			fault = fault || i != 3
		case tuple.Columns[i].DataType == 't':
			require.NotNil(t, got)
			require.Equal(t, string(tuple.Columns[i].Data), string(got))
		default:
			require.Nil(t, got)
			fault = fault || i < 2 || tuple.Columns[i].DataType == 'u'
		}
	}
	require.Equal(t, fault, ev.Fault != nil)
}
