package checkpoint

import (
	"crypto/sha256"

	"github.com/jackc/pglogrepl"
)

// RowPosition stands for the position of a row that was not read from the log: of epoch 0, which no event has, and
// always the same for a table, as decoder.Mapping.Name has it, and an id. It names the row, and has no order.
func RowPosition(table, id string) Position {
	sum := sha256.Sum256([]byte(table + "\x00" + id))
	return Position{
		Timeline: uint32(bigEndian(sum[0:4])),
		LSN:      pglogrepl.LSN(bigEndian(sum[4:12])),
		Index:    uint32(bigEndian(sum[12:16])),
	}
}
