package cdc

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pglogrepl"
)

// postgresEpoch is 2000-01-01 in microseconds since 1970: PostgreSQL's timestamps count from there.
const postgresEpoch = 946684800 * 1000000

// standbyStatus is the message by which we confirm: Standby status update (F) of
// https://www.postgresql.org/docs/current/protocol-replication.html. For a logical slot only the
// flush position counts: the server may drop what lies before it. All three are always set, since
// an unset one must never come to mean "everything".
type standbyStatus struct {
	received  pglogrepl.LSN // "written": what has arrived, whatever became of it
	confirmed pglogrepl.LSN // "flushed" and "applied"
	reply     bool          // ask for an answer at once
}

// encode returns the whole CopyData message.
func (s standbyStatus) encode(at time.Time) []byte {
	const body = 1 + 8 + 8 + 8 + 8 + 1
	b := make([]byte, 0, 5+body)
	b = append(b, 'd')
	b = binary.BigEndian.AppendUint32(b, 4+body)
	b = append(b, 'r')
	b = binary.BigEndian.AppendUint64(b, uint64(max(s.received, s.confirmed)))
	b = binary.BigEndian.AppendUint64(b, uint64(s.confirmed))
	b = binary.BigEndian.AppendUint64(b, uint64(s.confirmed))
	b = binary.BigEndian.AppendUint64(b, uint64(at.UnixMicro()-postgresEpoch))
	if s.reply {
		return append(b, 1)
	}
	return append(b, 0)
}

// send writes the message. A peer that takes nothing any more is an error within timeout.
func (s standbyStatus) send(conn net.Conn, at time.Time, timeout time.Duration) error {
	if s.confirmed == 0 {
		return nil // nothing is known yet, and 0 is not a position
	}
	if err := conn.SetWriteDeadline(at.Add(timeout)); err != nil {
		return fmt.Errorf("send status: %w", err)
	}
	if _, err := conn.Write(s.encode(at)); err != nil {
		return fmt.Errorf("send status: %w", err)
	}
	return nil
}
