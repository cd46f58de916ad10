package decoder

import (
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walrelay/walrelay/checkpoint"
)

// Begin opens a transaction. The server sends a transaction only once it has committed.
type Begin struct {
	// FinalLSN is the start of the transaction's commit record.
	FinalLSN pglogrepl.LSN
	// CommitTime is on the server's clock.
	CommitTime time.Time
	XID        uint32
}

// Commit closes a transaction.
type Commit struct {
	// LSN is the start of the commit record, as in Begin.
	LSN pglogrepl.LSN
	// EndLSN is the first byte after the commit record: what is confirmed, unchanged.
	EndLSN     pglogrepl.LSN
	CommitTime time.Time
}

func (d *Decoder) decodeBegin(r *reader) Kind {
	if d.open {
		r.fail(0, "begin inside a transaction")
		return 0
	}
	d.begin = Begin{FinalLSN: pglogrepl.LSN(r.uint64()), CommitTime: r.time(), XID: r.uint32()}
	if r.err != nil {
		return 0
	}
	if d.begin.FinalLSN == 0 {
		r.fail(1, "begin without a final LSN")
		return 0
	}
	d.open = true
	d.next = checkpoint.Position{
		Epoch:    d.cfg.Epoch,
		Timeline: d.cfg.Timeline(d.begin.FinalLSN),
		LSN:      d.begin.FinalLSN,
	}
	return KindBegin
}

func (d *Decoder) decodeCommit(r *reader) Kind {
	if !d.inside(r) {
		return 0
	}
	if flags := r.byte(); flags != 0 {
		r.fail(1, "unknown flags")
	}
	d.commit = Commit{LSN: pglogrepl.LSN(r.uint64()), EndLSN: pglogrepl.LSN(r.uint64()), CommitTime: r.time()}
	switch {
	case d.commit.LSN != d.begin.FinalLSN:
		r.fail(2, "commit LSN is not the final LSN of the begin message")
	case d.commit.EndLSN < d.commit.LSN:
		r.fail(10, "end LSN lies before the commit LSN")
	}
	d.open = false
	return KindCommit
}

// inside fails unless a transaction is open.
func (d *Decoder) inside(r *reader) bool {
	if !d.open {
		r.fail(0, "comes outside a transaction")
	}
	return d.open
}

// time reads a TimestampTz: microseconds since 2000-01-01 UTC.
func (r *reader) time() time.Time {
	const year2000 = 946_684_800_000_000 // microseconds since 1970
	return time.UnixMicro(int64(r.uint64()) + year2000).UTC()
}
