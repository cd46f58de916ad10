package cdc

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Session is what one session has confirmed: that holds on its server, and nowhere else.
type Session struct {
	// Number tells the sessions of a process apart; it counts from 1.
	Number uint64
	// Covered is a position before which every event was confirmed, or was left out as the poison policy
	// says and recorded. It may be beyond the confirmed position, which follows late where no events are.
	Covered pglogrepl.LSN

	started string // when the server's postmaster was
}

// Session returns the session that streams at present. ok is false when none does. Safe for concurrent
// use.
func (s *Stream) Session() (session Session, ok bool) { return s.board.streaming() }

// Connect opens a connection for queries to the server of the session, and to no other. Safe for
// concurrent use.
func (s *Stream) Connect(ctx context.Context, session Session) (*pgx.Conn, error) {
	return connectSQL(ctx, &s.cfg, func(ctx context.Context, conn *pgconn.PgConn) error {
		started, err := firstValue(ctx, conn, postmasterStarted)
		if err != nil {
			return fmt.Errorf("identify server: %w", err)
		}
		if started != session.started {
			return errors.New("this is not the server that the stream reads")
		}
		return nil
	})
}

// begin announces a session.
func (b *board) begin(server *Server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sessions++
	b.session = Session{Number: b.sessions, started: server.started}
}

// end says that the session's word counts no longer.
func (b *board) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session = Session{}
}

func (b *board) streaming() (Session, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.session, b.session.Number > 0 && b.status.State == StateStreaming
}
