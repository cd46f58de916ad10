package decoder_test

import (
	"encoding/binary"

	"github.com/jackc/pglogrepl"
)

// wire builds messages as pgoutput does, so that tests do not depend on recorded ones.
type wire []byte

func message(kind byte) wire { return wire{kind} }

func (w wire) u8(v byte) wire     { return append(w, v) }
func (w wire) u16(v int) wire     { return binary.BigEndian.AppendUint16(w, uint16(v)) }
func (w wire) u32(v uint32) wire  { return binary.BigEndian.AppendUint32(w, v) }
func (w wire) u64(v uint64) wire  { return binary.BigEndian.AppendUint64(w, v) }
func (w wire) str(s string) wire  { return append(append(w, s...), 0) }
func (w wire) text(s string) wire { return append(w.u8('t').u32(uint32(len(s))), s...) }

// tuple writes a row; nil is NULL, a byte stands for itself as the kind of a value without text.
func (w wire) tuple(values ...any) wire {
	w = w.u16(len(values))
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			w = w.u8('n')
		case byte:
			w = w.u8(v)
		case string:
			w = w.text(v)
		}
	}
	return w
}

func begin(lsn pglogrepl.LSN, micros int64, xid uint32) wire {
	return message('B').u64(uint64(lsn)).u64(uint64(micros)).u32(xid)
}

func commit(lsn, end pglogrepl.LSN, micros int64) wire {
	return message('C').u8(0).u64(uint64(lsn)).u64(uint64(end)).u64(uint64(micros))
}

// col is a column of a relation; typ 0 means text.
type col struct {
	name string
	typ  uint32
}

const (
	textOID  = 25
	byteaOID = 17
)

func relation(oid uint32, schema, table string, cols ...col) wire {
	w := message('R').u32(oid).str(schema).str(table).u8('d').u16(len(cols))
	for i, c := range cols {
		if c.typ == 0 {
			c.typ = textOID
		}
		flags := byte(0)
		if i == 0 {
			flags = 1
		}
		w = w.u8(flags).str(c.name).u32(c.typ).u32(0xffffffff)
	}
	return w
}

func insert(oid uint32, values ...any) wire {
	return message('I').u32(oid).u8('N').tuple(values...)
}

func update(oid uint32, oldPart byte, old []any, values ...any) wire {
	w := message('U').u32(oid)
	if oldPart != 0 {
		w = w.u8(oldPart).tuple(old...)
	}
	return w.u8('N').tuple(values...)
}

func deletion(oid uint32, oldPart byte, values ...any) wire {
	return message('D').u32(oid).u8(oldPart).tuple(values...)
}

func truncate(options byte, oids ...uint32) wire {
	w := message('T').u32(uint32(len(oids))).u8(options)
	for _, oid := range oids {
		w = w.u32(oid)
	}
	return w
}

func typeMessage(oid uint32, schema, name string) wire {
	return message('Y').u32(oid).str(schema).str(name)
}

func origin(lsn pglogrepl.LSN, name string) wire {
	return message('O').u64(uint64(lsn)).str(name)
}

func logical(flags byte, lsn pglogrepl.LSN, prefix, content string) wire {
	w := message('M').u8(flags).u64(uint64(lsn)).str(prefix).u32(uint32(len(content)))
	return append(w, content...)
}
