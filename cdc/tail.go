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

	"github.com/walrelay/walrelay/decoder"
)

// Tail reads events beside the stream, from its own start on: through a temporary slot, which goes with the
// connection. Nothing of the stream's slot or registry is touched. It needs a free slot and a free WAL
// sender, and is not safe for concurrent use.
type Tail struct {
	server  *Server
	decoder *decoder.Decoder
	held    *holdback // nil unless transactions are marked

	start, received, confirmed pglogrepl.LSN
	reply                      bool // the server asked for a status
}

// OpenTail connects, checks the publication and creates the slot, which waits for every transaction that is
// open now.
func OpenTail(ctx context.Context, cfg *Config) (*Tail, error) {
	server, err := Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	t := &Tail{server: server}
	if err := t.open(ctx, cfg); err != nil {
		t.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return t, nil
}

func (t *Tail) open(ctx context.Context, cfg *Config) error {
	s := t.server
	if _, err := s.CheckPublication(ctx); err != nil {
		return err
	}
	var epoch uint32 = 1 // what the first start begins with
	switch row, err := s.Registry().load(ctx); {
	case err == nil && row != nil:
		epoch = row.Epoch
	case err != nil && !Fatal(err): // a schema that is missing yet is no hindrance
		return err
	}
	own := *cfg
	own.Slot = fmt.Sprintf("walrelay_tail_%d", s.Repl.PID())
	s.cfg, s.temporary = &own, true
	err := s.roomForSlot(ctx)
	if err != nil {
		return err
	}
	if t.start, err = s.CreateSlot(ctx); err != nil {
		return err
	}
	if err := s.StartReplication(ctx, t.start); err != nil {
		return err
	}
	t.received, t.confirmed = t.start, t.start
	t.decoder = decoder.New(decoder.Config{
		Mappings: cfg.Mappings, Messages: cfg.Messages, Epoch: epoch, Timeline: s.Timelines().At,
	})
	if cfg.MarkTransactions {
		t.held = new(holdback)
	}
	s.Repl.Frontend().SetMaxBodyLen(cfg.MaxMessageBytes)
	return nil
}

// Start is where the tail begins: transactions that commit after it are read.
func (t *Tail) Start() pglogrepl.LSN { return t.start }

// Close closes the connections, and with them the slot goes.
func (t *Tail) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	t.server.Close(ctx)
}

// Read shows event after event until ctx ends, and returns its cause then, or until show returns an error.
// The event is valid during the call.
func (t *Tail) Read(ctx context.Context, show func(*decoder.Event) error) error {
	for {
		next, cancel := context.WithTimeout(ctx, t.server.StatusInterval())
		msg, err := t.server.Repl.ReceiveMessage(next)
		cancel()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !pgconn.Timeout(err):
			return fmt.Errorf("read from server: %w", err)
		case err == nil:
			err = t.handle(ctx, msg, show)
		default:
			t.reply, err = true, nil
		}
		if err == nil && t.reply {
			t.reply = false
			err = standbyStatus{received: t.received, confirmed: t.confirmed}.
				send(t.server.Repl.Conn(), time.Now(), t.server.cfg.ReceiveTimeout)
		}
		if err != nil {
			return err
		}
	}
}

func (t *Tail) handle(ctx context.Context, msg pgproto3.BackendMessage, show func(*decoder.Event) error) error {
	switch msg := msg.(type) {
	case *pgproto3.ErrorResponse:
		return Diagnose(fmt.Errorf("stream: %w", pgconn.ErrorResponseToPgError(msg)))
	case *pgproto3.CopyDone, *pgproto3.CommandComplete, *pgproto3.ReadyForQuery:
		return errors.New("the server ended the stream")
	case *pgproto3.CopyData:
		switch data := msg.Data; {
		case len(data) >= 25 && data[0] == 'w':
			return t.change(ctx, data[25:], show)
		case len(data) == 18 && data[0] == 'k':
			t.received = max(t.received, pglogrepl.LSN(binary.BigEndian.Uint64(data[1:])))
			t.reply = t.reply || data[17] == 1
			if !t.decoder.InTransaction() {
				t.confirmed = t.received
			}
		}
	}
	return nil
}

func (t *Tail) change(ctx context.Context, wal []byte, show func(*decoder.Event) error) error {
	kind, err := t.decoder.Decode(wal)
	if err != nil {
		return err
	}
	switch kind {
	case decoder.KindEvent:
		if t.held == nil {
			return show(t.decoder.Event())
		}
		if before := t.held.take(); before != nil {
			if err := show(before); err != nil {
				return err
			}
		}
		t.held.put(t.decoder.Event(), len(wal))
	case decoder.KindRelation:
		return t.server.bind(ctx, t.decoder, alone)
	case decoder.KindCommit:
		t.confirmed = t.decoder.Commit().EndLSN
		t.received = max(t.received, t.confirmed)
		if t.held != nil {
			if last := t.held.last(); last != nil {
				return show(last)
			}
		}
	default:
	}
	return nil
}
