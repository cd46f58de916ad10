package cdc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
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
	warn    func([]string) // each text once in the stream's life
	decoder *decoder.Decoder
	tracker *checkpoint.Tracker
	mailbox *checkpoint.Mailbox
	mail    checkpoint.Mail
	acks    chan struct{} // the mailbox's wake, passed on by watch

	waiting atomic.Bool // about to read with nothing to do: acknowledgements interrupt

	received  pglogrepl.LSN // highest position that the server has sent
	keepalive pglogrepl.LSN // of the last keepalive
	committed pglogrepl.LSN // end of the last transaction that had events
	hasEvents bool          // so has the open one
	confirmed pglogrepl.LSN // last reported as flushed
	reached   pglogrepl.LSN // a state is written up to here, in exactly-once delivery
	unflushed bool          // events were published since the last Flush
	lastFlush time.Time
	stuck     *checkpoint.Poison

	giveUp time.Time // when a stop no longer waits; zero until asked to stop

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

// settle takes the mail and settles what is acknowledged or, of poison, written down.
func (s *session) settle() error {
	s.mailbox.Take(&s.mail)
	s.reached = max(s.reached, s.mail.Reached)
	before := s.tracker.Settled()
	for _, seqs := range [][]uint64{s.mail.Settled, s.mail.Recorded} {
		if err := s.tracker.Settle(seqs); err != nil {
			return fmt.Errorf("settle: %w", err)
		}
	}
	s.counters.settled += s.tracker.Settled() - before
	if len(s.mail.Recorded) > 0 {
		s.sink.Recorded(s.mail.Recorded)
	}
	return nil
}

// settled is how far the log may be confirmed. In exactly-once delivery that also needs a state in
// Kafka: without one, the events before it would be published again after a crash.
func (s *session) settled() pglogrepl.LSN {
	if s.cfg.Delivery == ExactlyOnce {
		return min(s.tracker.Frontier(), s.reached)
	}
	return s.tracker.Frontier()
}

// adopt takes the last keepalive for the frontier when nothing is in flight.
func (s *session) adopt() {
	if s.tracker.Idle() && s.keepalive > s.tracker.Frontier() && s.tracker.Adopt(s.keepalive) {
		s.sink.Reached(s.keepalive)
	}
}

// takeMail settles what the sink reports, and adopts the last keepalive when nothing is left.
func (s *session) takeMail(ctx context.Context) error {
	if err := s.settle(); err != nil {
		return err
	}
	if len(s.mail.Poison) > 0 || len(s.mail.Partitions) > 0 {
		if err := s.takePoison(ctx); err != nil {
			return err
		}
	}
	s.adopt()
	s.guard.report(s.settled(), s.committed, s.confirmed)
	if s.mail.Err != nil {
		return fmt.Errorf("%w: %w", errSink, s.mail.Err)
	}
	return nil
}

// takePoison hands over what the guard has to record; a stopped event freezes the session.
func (s *session) takePoison(ctx context.Context) error {
	recordable := make([]checkpoint.Poison, 0, len(s.mail.Poison))
	var stuck *checkpoint.Poison
	for _, p := range s.mail.Poison {
		if p.Action != checkpoint.Stopped {
			s.board.update(func(st *Status) { st.Poison[p.Action]++ })
			recordable = append(recordable, p)
		} else if stuck == nil || p.Position.Compare(stuck.Position) < 0 {
			stuck = &p
		}
	}
	if len(recordable) > 0 || len(s.mail.Partitions) > 0 {
		s.guard.record(recordable, s.mail.Partitions)
	}
	if stuck == nil || s.stuck != nil {
		return nil
	}
	return s.freeze(ctx, *stuck)
}

// freeze keeps slot and connection while one event waits for the operator. It returns when that has
// decided, or with any other end of the session.
func (s *session) freeze(ctx context.Context, p checkpoint.Poison) error {
	s.stuck = &p
	release := fmt.Sprintf("walrelay stream release %s --verdict retry|skip|dead-letter", p.Position)
	s.board.enter(StateStuck, fmt.Sprintf("event %s of %s at %s cannot be delivered: %s; `%s` goes on",
		p.EventID, p.Table, p.Position, p.Reason, release))
	s.board.update(func(st *Status) {
		st.Stuck = &p
		st.Poison[checkpoint.Stopped]++
	})
	s.log.Error("stream is stuck at an event", append(poisonFields(p), zap.String("to_go_on", release))...)
	s.guard.watch(p)
	return s.wait(ctx, func() bool { return false })
}

// wait attends to everything but reading until done, or until something ends the session.
func (s *session) wait(ctx context.Context, done func() bool) error {
	timer := time.NewTimer(s.interval)
	defer timer.Stop()
	ended := ctx.Done()
	for {
		if err := s.attend(ctx); err != nil {
			return err
		}
		if done() {
			return nil
		}
		if ctx.Err() != nil {
			ended = nil // it is known
		}
		timer.Reset(max(time.Until(s.lastStatus.Add(s.interval)), time.Millisecond))
		select {
		case <-ended:
		case <-s.guard.down:
		case <-s.acks:
		case <-timer.C:
		}
	}
}

// watch passes the mailbox's wake on and interrupts an idle read, so that outcomes, the guard's
// failure and the wish to stop are noticed at once and not at the next status.
func (s *session) watch(ctx context.Context, stop <-chan struct{}) {
	down := s.guard.down
	for {
		select {
		case <-ctx.Done():
			return
		case <-stop:
			stop = nil
		case <-down:
			down = nil
		case <-s.mailbox.Wake():
		}
		select {
		case s.acks <- struct{}{}:
		default:
		}
		if s.waiting.Load() {
			_ = s.conn.SetReadDeadline(time.Unix(1, 0))
		}
	}
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

// checkSilence ends a session with a server that does not answer.
func (s *session) checkSilence() error {
	if silent := time.Since(s.server.burst.last); silent > s.cfg.ReceiveTimeout {
		return fmt.Errorf("the server has been silent for %s: the connection counts as dead", silent.Round(time.Second))
	}
	return nil
}

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
		seq, err := s.tracker.Add(len(wal) + eventOverhead)
		if err != nil {
			return s.undecodable(err)
		}
		s.counters.events++
		s.hasEvents = true
		event := s.decoder.Event()
		s.seen.publish(event.Position)
		s.sink.Publish(seq, event)
		s.unflushed = true
		if s.tracker.Full() {
			return s.waitForRoom(ctx)
		}
	case decoder.KindBegin:
		if err := s.tracker.Begin(s.decoder.Begin().CommitTime); err != nil {
			return s.undecodable(err)
		}
	case decoder.KindCommit:
		commit := s.decoder.Commit()
		s.receive(commit.EndLSN)
		s.counters.transactions++
		if s.hasEvents {
			s.committed, s.hasEvents = commit.EndLSN, false
		}
		if err := s.tracker.Commit(commit.EndLSN); err != nil {
			return s.undecodable(err)
		}
		s.sink.Reached(commit.EndLSN)
	case decoder.KindRelation:
		return s.relation(ctx)
	case decoder.KindStrayMessage:
		s.counters.ignored[kind]++
		s.warn([]string{fmt.Sprintf("messages with prefix %q that are not transactional are not published: "+
			"events need pg_logical_emit_message(true, ...)", s.cfg.Messages.Prefix)})
	case decoder.KindUpdate, decoder.KindDelete, decoder.KindTruncate, decoder.KindForeignInsert, decoder.KindMessage:
		s.counters.ignored[kind]++
	case decoder.KindType, decoder.KindOrigin:
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

// relation decides about a relation that has none of the configured names.
func (s *session) relation(ctx context.Context) error {
	rel := s.decoder.Relation()
	if rel.Mapping != nil {
		return nil
	}
	mapping, ok, err := s.guard.resolve(ctx, rel)
	if err != nil {
		return err
	}
	if !ok {
		s.log.Info("inserts into a table that is no outbox are ignored",
			zap.String("table", tableName(rel.Schema, rel.Table)))
		return s.decoder.Ignore(rel.OID)
	}
	return s.decoder.Bind(rel.OID, mapping)
}

// waitForRoom lets acknowledgements make room, while status reports go on.
func (s *session) waitForRoom(ctx context.Context) error {
	s.flush()
	return s.wait(ctx, func() bool {
		if s.tracker.Full() {
			s.sink.Full() // again whenever something was settled, and was not enough
			return false
		}
		return true
	})
}

// drain ends a session in good order: what is in flight gets its time, the last position is
// recorded and confirmed, and the server is told that we are done. ctx has ended.
func (s *session) drain(ctx context.Context) error {
	s.waiting.Store(false)
	s.board.enter(StateDraining, "stopping: waiting for acknowledgements")
	s.stopping(ctx) // sets giveUp, if a failed read came before it
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), s.giveUp)
	defer cancel()
	s.sink.Flush()
	timer := time.NewTimer(s.interval)
	defer timer.Stop()
	for s.stuck == nil && s.mail.Err == nil && (s.unsettled() > 0 || s.settled() < s.committed) {
		select {
		case <-s.mailbox.Wake():
		case <-s.acks:
		case <-timer.C:
			if err := s.status(time.Now()); err != nil {
				return err
			}
			timer.Reset(s.interval)
		case <-s.guard.down:
			return s.guard.failed()
		case <-ctx.Done():
			s.log.Warn("stopped before everything was acknowledged: it will be delivered again",
				zap.Int("events", s.unsettled()))
			return s.farewell(ctx)
		}
	}
	return s.farewell(ctx)
}

// unsettled takes the mail and counts what is left. Errors of the run end the wait, nothing more.
func (s *session) unsettled() int {
	if err := s.settle(); err != nil {
		s.mail.Err = err
	}
	if len(s.mail.Partitions) > 0 {
		s.guard.record(nil, s.mail.Partitions)
	}
	for _, p := range s.mail.Poison {
		if p.Action == checkpoint.Stopped {
			s.stuck = &p
		} else {
			s.guard.record([]checkpoint.Poison{p}, nil)
		}
	}
	s.adopt()
	events, _ := s.tracker.InFlight()
	return events
}

// farewell records and confirms what is settled and ends the stream, so that a restart repeats nothing.
func (s *session) farewell(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTimeout)
	defer cancel()
	s.guard.report(s.settled(), s.committed, s.confirmed)
	if err := s.guard.round(ctx, true); err != nil {
		return fmt.Errorf("record the last position: %w", err)
	}
	now := time.Now()
	if err := s.status(now); err != nil {
		return err
	}
	s.publish()
	s.log.Info("last position confirmed", zap.Stringer("confirmed_lsn", s.confirmed))
	return s.endCopy(ctx)
}

const farewellTimeout = 5 * time.Second

// endCopy sends CopyDone and reads until the server has ended the command, which proves that it has
// taken the last status in. Data that still arrives belongs to the next session.
func (s *session) endCopy(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	if err := s.conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("end stream: %w", err)
	}
	frontend := s.server.Repl.Frontend()
	frontend.Send(&pgproto3.CopyDone{})
	if err := frontend.Flush(); err != nil {
		return fmt.Errorf("end stream: %w", err)
	}
	for {
		msg, err := frontend.Receive()
		if err != nil {
			return fmt.Errorf("end stream: %w", err)
		}
		if _, ok := msg.(*pgproto3.ReadyForQuery); ok {
			return nil
		}
	}
}
