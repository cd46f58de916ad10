package retention

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// fence is where the last record of the server's log ends: everything that is visible now was committed before.
// A commit record is inserted before its transaction becomes visible, and written later if synchronous_commit is
// off: so this is about the insert position, not about the write position.
func fence(ctx context.Context, db *pgx.Conn) (pglogrepl.LSN, error) {
	var insert pglogrepl.LSN
	var page, segment uint64
	err := db.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text, current_setting('wal_block_size')::int8,
		(SELECT setting::int8 FROM pg_settings WHERE name = 'wal_segment_size')`).Scan(&insert, &page, &segment)
	if err != nil {
		return 0, fmt.Errorf("read position: %w", err)
	}
	return endOf(insert, page, segment), nil
}

// Sizes of a page's header, the longer one on a segment's first page: src/include/access/xlog_internal.h.
const (
	pageHeader      = 24
	firstPageHeader = 40
)

// endOf is where the last record before the insert position ends. That position is where the next record will
// begin, and so behind the header of a page that has no record yet; no stream comes to there before one is
// written, and on an idle server that may take its time. What goes on from the page before ends later.
func endOf(insert pglogrepl.LSN, page, segment uint64) pglogrepl.LSN {
	at := uint64(insert)
	switch {
	case at%segment == firstPageHeader:
		return insert - firstPageHeader
	case at%segment > page && at%page == pageHeader:
		return insert - pageHeader
	}
	return insert
}
