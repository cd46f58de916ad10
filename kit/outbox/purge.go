package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/walrelay/walrelay/kit/tx"
)

// Purge deletes rows whose created_at is older than age, at most limit of them, and returns how many. Call
// it again while it returns limit. Rows that another transaction holds are passed over.
//
// walrelay reads the write-ahead log, so rows are not needed for delivery. They are worth keeping for as long
// as a step may be repeated, since only a row refuses its duplicate, and for as long as it may take
// to notice a lost replication slot, after which rows are what is left to send.
func (o Outbox) Purge(ctx context.Context, t tx.Tx, age time.Duration, limit int) (deleted int64, err error) {
	if age < 0 || limit < 1 {
		return 0, errors.New("purge outbox: age must not be negative, and limit at least 1")
	}
	tag, err := t.Exec(ctx, `DELETE FROM `+o.table()+` WHERE id IN (
		SELECT id FROM `+o.table()+` WHERE created_at < now() - $1::interval LIMIT $2 FOR UPDATE SKIP LOCKED)`,
		age, limit)
	if err != nil {
		return 0, fmt.Errorf("purge outbox: %w", err)
	}
	return tag.RowsAffected(), nil
}
