package cdc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// session is one START_REPLICATION: its goroutine alone reads and writes the replication
// connection, decodes, publishes and tracks. Others reach it through the mailbox and the guard.
type session struct {
	cfg     *Config
	log     *zap.Logger
	server  *Server
	conn    net.Conn
	sink    Sink
	board   *board
	guard   *guard
	seen    *witness
	epoch   uint32
	warn    func([]string) // each text once in the stream's life
	decoder *decoder.Decoder
	held    *holdback // nil unless transactions are marked
	tracker *checkpoint.Tracker
	mailbox *checkpoint.Mailbox
	mail    checkpoint.Mail
	nudged  chan struct{} // ends a wait's pause: there is mail, which watch passes on, or what is waited for

	waiting atomic.Bool // about to read with nothing to do: acknowledgements interrupt

	received    pglogrepl.LSN // highest position that the server has sent
	keepalive   pglogrepl.LSN // of the last keepalive
	committed   pglogrepl.LSN // end of the last transaction that had events
	committedAt time.Time     // its commit time
	hasEvents   bool          // so has the open one
	confirmed   pglogrepl.LSN // last reported as flushed
	reached     pglogrepl.LSN // a state is written up to here, in exactly-once delivery
	unflushed   bool          // events were published since the last Flush
	lastFlush   time.Time
	stuck       *checkpoint.Poison

	giveUp time.Time // when a stop no longer waits; zero until asked to stop

	listening  time.Time // when the last wait ended, during which nothing was read
	lastStatus time.Time
	lastBoard  time.Time
	interval   time.Duration // between two status reports
	replyNow   bool          // the server asked for a status
	counters   counters

	notices struct { // of the server
		last string
		at   time.Time
	}
}

// counters count between two reports to the board.
type counters struct {
	events, transactions uint64
	settled              uint64                               // without a gap
	ignored              [decoder.KindStrayMessage + 1]uint64 // by kind
}

// boardInterval is how stale the board may be while the stream is busy.
const boardInterval = 20 * time.Millisecond

// errSink marks errors by which the sink ended a run.
var errSink = errors.New("deliver")

// run streams until ctx ends (nil, after a drain), or something is wrong.
func (s *session) run(ctx context.Context) error {
	err := s.stream(ctx)
	var changed *checkpoint.PartitionsChangedError
	switch {
	case ctx.Err() != nil && !Fatal(err):
		return s.drain(ctx)
	case errors.As(err, &changed): // comes once everything that was accepted is settled
		return errors.Join(err, s.farewell(ctx))
	}
	return err
}

// stream reads until something ends it.
func (s *session) stream(ctx context.Context) error {
	frontend := s.server.Repl.Frontend()
	var attended error // why a read was not tried
	s.server.burst.before = func(busy bool) error {
		attended = s.beforeRead(ctx, busy)
		return attended
	}
	defer func() { s.server.burst.before = nil }()
	for {
		msg, err := frontend.Receive()
		if err != nil {
			if attended != nil {
				return attended
			}
			if timeout(err) {
				if err := s.checkSilence(); err != nil {
					return err
				}
				continue
			}
			return s.receiveError(ctx, err)
		}
		if err := s.handle(ctx, msg); err != nil {
			return err
		}
	}
}

func timeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

func (s *session) receiveError(ctx context.Context, err error) error {
	var large *pgproto3.ExceededMaxBodyLenErr
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &large):
		return &FatalError{
			Object:  fmt.Sprintf("row or logical message after %s", s.received),
			Problem: fmt.Sprintf("takes %d bytes, one message may take %d", large.ActualBodyLen, large.MaxExpectedBodyLen),
			Remedy:  "raise WALRELAY_MAX_MESSAGE_BYTES",
		}
	}
	return fmt.Errorf("read from server: %w", err)
}

// beforeRead is called when everything received has been handled and the next read will touch the
// socket. Its errors end the session.
func (s *session) beforeRead(ctx context.Context, busy bool) error {
	if s.unflushed && (!busy || time.Since(s.lastFlush) >= busyFlush) {
		s.flush()
	}
	if err := s.attend(ctx); err != nil {
		return err
	}
	deadline := s.lastStatus.Add(s.interval)
	if s.unflushed { // if nothing more comes, the input is dry after all
		deadline = s.lastFlush.Add(busyFlush + burstPause)
	}
	if err := s.conn.SetReadDeadline(deadline); err != nil {
		return fmt.Errorf("set read deadline: %w", err)
	}
	if busy {
		return nil
	}
	// From here on an outcome or a stop interrupts the read. One that came before is taken now.
	s.waiting.Store(true)
	if s.stopping(ctx) {
		return context.Cause(ctx)
	}
	return s.takeMail(ctx)
}

// busyFlush is how long a busy stream gathers before it calls the input dry: the brokers' cost is by
// request more than by record.
const busyFlush = 6 * time.Millisecond

func (s *session) flush() {
	s.sink.Flush()
	s.unflushed, s.lastFlush = false, time.Now()
}

// attend does what is due besides reading: outcomes, the guard's word, status, board.
func (s *session) attend(ctx context.Context) error {
	s.waiting.Store(false)
	if s.stopping(ctx) {
		return context.Cause(ctx)
	}
	if err := s.takeMail(ctx); err != nil {
		return err
	}
	if err := s.guard.failed(); err != nil {
		return err
	}
	now := time.Now()
	if s.replyNow || now.Sub(s.lastStatus) >= s.interval {
		if err := s.status(now); err != nil {
			return err
		}
	}
	if s.tracker.Idle() || now.Sub(s.lastBoard) >= boardInterval {
		s.lastBoard = now
		s.publish()
	}
	return nil
}

// stopping reports whether ctx has ended and nothing speaks against a stop. A transaction that is
// published in part would be repeated after it; so it is read to its end, if that comes in time.
func (s *session) stopping(ctx context.Context) bool {
	if ctx.Err() == nil {
		return false
	}
	if s.giveUp.IsZero() {
		s.giveUp = time.Now().Add(s.cfg.ShutdownTimeout)
	}
	return !s.hasEvents || s.stuck != nil || time.Now().After(s.giveUp)
}

func (s *session) publish() {
	s.board.progress(s)
	s.counters = counters{}
}

// status reports to the server. The flush position is what the guard has allowed.
func (s *session) status(now time.Time) error {
	allowed, offset := s.guard.mayConfirm()
	s.confirmed = max(s.confirmed, allowed)
	s.board.update(func(st *Status) { st.ClockOffset, st.LastTick = offset, now })
	s.lastStatus, s.replyNow = now, false
	return standbyStatus{
		received: s.received, confirmed: s.confirmed,
		// A silent server is asked to speak, since we speak often enough that it never has to ask.
		reply: now.Sub(s.server.burst.last) > s.cfg.ReceiveTimeout/4,
	}.send(s.conn, now, s.cfg.ReceiveTimeout)
}

// checkSilence ends a session with a server that does not answer. While nothing was read it could not be heard.
func (s *session) checkSilence() error {
	heard := s.server.burst.last
	if heard.Before(s.listening) {
		heard = s.listening
	}
	if silent := time.Since(heard); silent > s.cfg.ReceiveTimeout {
		return fmt.Errorf("the server has been silent for %s: the connection counts as dead", silent.Round(time.Second))
	}
	return nil
}
