package cdc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
)

// Timelines knows on which timeline each part of the server's log was written. A position carries
// that one, not the session's: after a promotion the server sends older rows again, and they must
// get the positions that they had.
type Timelines struct {
	current uint32
	past    []timelineEnd // ascending
}

// timelineEnd says that a timeline was left at an LSN: what begins there is on a later one.
type timelineEnd struct {
	timeline uint32
	end      pglogrepl.LSN
}

// At returns the timeline on which the record that starts at lsn was written.
func (t *Timelines) At(lsn pglogrepl.LSN) uint32 {
	for _, p := range t.past {
		if lsn < p.end {
			return p.timeline
		}
	}
	return t.current
}

// Left returns where a past timeline was left; ok is false for one that is not in the history.
func (t *Timelines) Left(timeline uint32) (at pglogrepl.LSN, ok bool) {
	for _, p := range t.past {
		if p.timeline == timeline {
			return p.end, true
		}
	}
	return 0, false
}

// Current returns the timeline on which the server writes.
func (t *Timelines) Current() uint32 { return t.current }

// fork returns where two histories part: what either holds from there on, the other does not. Without a
// history on either side that is not known, and they count as one.
func (t *Timelines) fork(u *Timelines) pglogrepl.LSN {
	var start pglogrepl.LSN // of the timeline at i
	for i := 0; t.known() && u.known(); i++ {
		switch a, b := t.span(i), u.span(i); {
		case a.timeline != b.timeline:
			return start
		case a.end != b.end:
			return min(a.end, b.end)
		case i == len(t.past):
			return a.end
		default:
			start = a.end
		}
	}
	return endless
}

// endless is the end of a timeline that was not left.
const endless = pglogrepl.LSN(math.MaxUint64)

func (t *Timelines) span(i int) timelineEnd {
	if i < len(t.past) {
		return t.past[i]
	}
	return timelineEnd{timeline: t.current, end: endless}
}

func (t *Timelines) known() bool { return t.current == 1 || len(t.past) > 0 }

// readTimelines reads the history of the server's timeline through the replication connection.
func (s *Server) readTimelines(ctx context.Context) (*Timelines, error) {
	t := &Timelines{current: s.Timeline}
	if s.Timeline == 1 {
		return t, nil // the first timeline has no history file
	}
	history, err := pglogrepl.TimelineHistory(ctx, s.Repl, int32(s.Timeline))
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == "58P01" {
		// Rows from before the promotion now get higher positions than they had: duplicates pass,
		// nothing is lost.
		s.log.Warn("the server has no history of its timeline; rows from before it may repeat",
			zap.Uint32("timeline", s.Timeline))
		return t, nil
	}
	if err != nil {
		return nil, Diagnose(fmt.Errorf("read timeline history: %w", err))
	}
	if t.past, err = parseHistory(history.Content); err != nil {
		return nil, fmt.Errorf("read timeline history: %w", err)
	}
	return t, nil
}

// parseHistory reads a history file: lines of timeline, LSN at which it was left, reason; # starts
// a comment. Format: src/backend/access/transam/timeline.c.
func parseHistory(content []byte) ([]timelineEnd, error) {
	var past []timelineEnd
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 2 {
			return nil, fmt.Errorf("line %q lacks an LSN", lines.Text())
		}
		timeline, err := strconv.ParseUint(fields[0], 10, 32)
		if err != nil {
			return nil, err
		}
		end, err := pglogrepl.ParseLSN(fields[1])
		if err != nil {
			return nil, err
		}
		if n := len(past); n > 0 && (past[n-1].timeline >= uint32(timeline) || past[n-1].end > end) {
			return nil, fmt.Errorf("timeline %d is out of order", timeline)
		}
		past = append(past, timelineEnd{timeline: uint32(timeline), end: end})
	}
	return past, lines.Err()
}
