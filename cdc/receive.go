package cdc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/decoder"
)

func (s *session) handle(ctx context.Context, msg pgproto3.BackendMessage) error {
	switch msg := msg.(type) {
	case *pgproto3.CopyData:
		return s.copyData(ctx, msg.Data)
	case *pgproto3.ErrorResponse: // arrives in the stream like any message
		return s.serverError(pgconn.ErrorResponseToPgError(msg))
	case *pgproto3.NoticeResponse:
		return s.notice(msg)
	case *pgproto3.ParameterStatus, *pgproto3.NotificationResponse:
		return nil
	case *pgproto3.CopyDone, *pgproto3.CommandComplete, *pgproto3.ReadyForQuery:
		return errors.New("the server ended the stream")
	default:
		return fmt.Errorf("message %T does not belong in a stream", msg)
	}
}

// serverError explains why the server ended the stream. Up to PostgreSQL 17 it does not read past a
// row that was written while there was no publication.
func (s *session) serverError(err *pgconn.PgError) error {
	if err.Code == "42704" { // undefined_object: the slot is in our hands, so it is the publication
		return s.unpublished("the server does not read past them", err)
	}
	return Diagnose(fmt.Errorf("stream: %w", err))
}

// notice turns PostgreSQL 18's warning about a publication that it does not find into an error:
// rows are skipped from here on. The text may be translated and the SQLSTATE 55000 has other meanings, for
// instance that the server waits for a standby of synchronized_standby_slots; so the routine identifies it
// (src/backend/replication/pgoutput/pgoutput.c).
func (s *session) notice(n *pgproto3.NoticeResponse) error {
	if n.Routine == "LoadPublications" {
		return s.unpublished(silentlySkipped, pgconn.ErrorResponseToPgError((*pgproto3.ErrorResponse)(n)))
	}
	if n.Message == s.notices.last && time.Since(s.notices.at) < noticeInterval {
		return nil
	}
	s.notices.last, s.notices.at = n.Message, time.Now()
	s.log.Warn("notice from the server", zap.String("severity", n.SeverityUnlocalized), zap.String("code", n.Code),
		zap.String("notice", n.Message))
	return nil
}

// noticeInterval is how often the log has a notice that the server repeats: one that waits for a standby
// does so at each of our status reports.
const noticeInterval = time.Minute

// unpublished says that the log holds rows which were written while there was no publication. It is
// looked up as it was then, so creating it again does not help: every start from this slot ends here.
func (s *session) unpublished(consequence string, err error) error {
	return &FatalError{
		Object: quoted("publication", s.cfg.Publication),
		Problem: fmt.Sprintf("was not there when rows after %s of the log were written, and %s; "+
			"rows committed after %s may be missing", s.received, consequence, s.confirmed),
		Remedy: "create it again if it is missing, " + dropUnreadable(s.cfg.Slot) + ", " + republish(s.cfg.Stream),
		Err:    err,
	}
}

// copyData handles what the server's side of CopyBoth carries:
// https://www.postgresql.org/docs/current/protocol-replication.html.
func (s *session) copyData(ctx context.Context, data []byte) error {
	switch {
	case len(data) >= 25 && data[0] == 'w': // XLogData: start, end, clock, message
		s.receive(pglogrepl.LSN(binary.BigEndian.Uint64(data[1:])))
		return s.change(ctx, data[25:])
	case len(data) == 18 && data[0] == 'k': // keepalive: end, clock, reply wanted
		s.keepalive = pglogrepl.LSN(binary.BigEndian.Uint64(data[1:]))
		s.receive(s.keepalive)
		s.replyNow = s.replyNow || data[17] == 1
		return nil
	default:
		return s.undecodable(fmt.Errorf("a message of %d bytes is neither data nor keepalive", len(data)))
	}
}

func (s *session) receive(lsn pglogrepl.LSN) {
	s.received = max(s.received, lsn)
	s.tracker.Receive(lsn)
}

func (s *session) change(ctx context.Context, wal []byte) error {
	kind, err := s.decoder.Decode(wal)
	if err != nil {
		return s.undecodable(err)
	}
	switch kind {
	case decoder.KindEvent:
		if s.held != nil {
			return s.hold(ctx, s.decoder.Event(), len(wal))
		}
		return s.event(ctx, s.decoder.Event(), len(wal))
	case decoder.KindBegin:
		if err := s.tracker.Begin(s.decoder.Begin().CommitTime); err != nil {
			return s.undecodable(err)
		}
	case decoder.KindCommit:
		if s.held != nil {
			if ev := s.held.last(); ev != nil {
				if err := s.event(ctx, ev, s.held.size); err != nil {
					return err
				}
			}
		}
		commit := s.decoder.Commit()
		s.receive(commit.EndLSN)
		s.counters.transactions++
		if s.hasEvents {
			s.committed, s.committedAt, s.hasEvents = commit.EndLSN, commit.CommitTime, false
		}
		if err := s.tracker.Commit(commit.EndLSN); err != nil {
			return s.undecodable(err)
		}
		s.sink.Reached(commit.EndLSN)
	case decoder.KindRelation:
		return s.consult(ctx, func(ctx context.Context) error { return s.server.bind(ctx, s.decoder, s.guard.use) })
	case decoder.KindStrayMessage:
		s.counters.ignored[kind]++
		return s.stray(ctx, s.decoder.Message())
	case decoder.KindUpdate:
		s.counters.ignored[kind]++
		return s.updated()
	case decoder.KindDelete, decoder.KindTruncate, decoder.KindForeignInsert, decoder.KindMessage:
		s.counters.ignored[kind]++
	case decoder.KindType, decoder.KindOrigin:
	}
	return nil
}

// hold publishes the event before this one, if there is one in the transaction, and keeps this one back.
func (s *session) hold(ctx context.Context, ev *decoder.Event, size int) error {
	if before := s.held.take(); before != nil {
		if err := s.event(ctx, before, s.held.size); err != nil {
			return err
		}
	}
	s.held.put(ev, size)
	return nil
}

// event publishes an event, which came in a message of size bytes.
func (s *session) event(ctx context.Context, ev *decoder.Event, size int) error {
	seq, err := s.tracker.Add(size + eventOverhead)
	if err != nil {
		return s.undecodable(err)
	}
	s.counters.events++
	s.hasEvents = true
	s.seen.publish(ev.Position)
	s.sink.Publish(seq, ev)
	s.unflushed = true
	if s.tracker.Full() {
		return s.waitForRoom(ctx)
	}
	return nil
}

// eventOverhead is what an event takes in memory beside its bytes, roughly.
const eventOverhead = 160

// undecodable ends the stream for good: the same bytes would come again.
func (s *session) undecodable(err error) error {
	return &FatalError{
		Object: fmt.Sprintf("log near %s", s.received), Problem: "cannot be decoded", Err: err,
		Remedy: "upgrade walrelay, or report it; the slot keeps its position meanwhile",
	}
}
