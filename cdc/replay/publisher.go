package replay

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// Publisher publishes events that are not read from the log. What is not acknowledged yet is kept, and
// published again when the sink's run ends: forever, until it is acknowledged or refused. It is not safe
// for concurrent use.
type Publisher struct {
	sink    cdc.Sink
	window  checkpoint.Window
	settled func(ev *decoder.Event, refused *checkpoint.Poison)
	trouble func(error)

	mailbox *checkpoint.Mailbox // nil: no run
	mail    checkpoint.Mail
	queue   []pending // published, and not settled without a gap
	bytes   int64     // of the queue
	first   uint64    // sequence of the queue's first
	ordinal uint64    // of the last event
	attempt int

	unflushed bool // events were published since the last Flush
}

type pending struct {
	kept    *decoder.Kept
	settled bool
	refused *checkpoint.Poison
}

// eventOverhead is what an event takes beside its bytes, about.
const eventOverhead = 256

func (p *pending) size() int64 { return int64(p.kept.Size() + eventOverhead) }

// NewPublisher returns a publisher into a sink of a replay, which must be running. settled is told of
// every event, in the order of Publish: that it was acknowledged, or why it was refused. trouble is told
// why a run ended; the next is begun after a pause.
func NewPublisher(
	sink cdc.Sink, window checkpoint.Window, settled func(*decoder.Event, *checkpoint.Poison), trouble func(error),
) *Publisher {
	return &Publisher{sink: sink, window: window, settled: settled, trouble: trouble, first: 1}
}

// Publish takes an event over, copying it, as soon as there is room for it. Its position is set: the
// order of publishing. The error is ctx's.
func (p *Publisher) Publish(ctx context.Context, ev *decoder.Event) error {
	next := pending{kept: new(decoder.Kept)}
	next.kept.Keep(ev)
	full := func() bool {
		return len(p.queue) >= p.window.Events || len(p.queue) > 0 && p.bytes+next.size() > p.window.Bytes
	}
	if err := p.wait(ctx, full); err != nil {
		return err
	}
	p.ordinal++
	next.kept.Event().Position = checkpoint.Position{LSN: pglogrepl.LSN(p.ordinal)}
	p.queue = append(p.queue, next)
	p.bytes += next.size()
	p.publish(len(p.queue) - 1)
	return nil
}

// Drain waits until everything is settled. The error is ctx's.
func (p *Publisher) Drain(ctx context.Context) error {
	return p.wait(ctx, func() bool { return len(p.queue) > 0 })
}

// publish hands an event of the queue to the sink. Each is a transaction of its own.
func (p *Publisher) publish(i int) {
	ev := p.queue[i].kept.Event()
	p.sink.Publish(p.first+uint64(i), ev)
	p.sink.Reached(ev.Position.LSN)
	p.unflushed = true
}

// wait takes mail until more says that it is enough. There is a run when it returns nil.
func (p *Publisher) wait(ctx context.Context, more func() bool) error {
	for {
		if err := p.begin(ctx); err != nil {
			return err
		}
		p.take()
		if p.mailbox == nil {
			continue
		}
		if !more() {
			return ctx.Err()
		}
		if p.unflushed {
			p.sink.Flush()
			p.unflushed = false
		}
		p.sink.Full()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.mailbox.Wake():
		}
	}
}

// begin makes sure that there is a run, and that it has what is not settled.
func (p *Publisher) begin(ctx context.Context) error {
	for p.mailbox == nil {
		if err := p.pause(ctx); err != nil {
			return err
		}
		p.attempt++
		mailbox := checkpoint.NewMailbox()
		if err := p.sink.Begin(ctx, checkpoint.Run{Mailbox: mailbox}); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p.trouble(err)
			continue
		}
		p.mailbox, p.first = mailbox, 1
		for i := range p.queue {
			p.queue[i].settled, p.queue[i].refused = false, nil
			p.publish(i)
		}
	}
	return nil
}

// pause waits before another attempt: from a tenth of a second, doubling to some ten seconds.
func (p *Publisher) pause(ctx context.Context) error {
	if p.attempt == 0 {
		return nil
	}
	d := 100 * time.Millisecond << min(p.attempt-1, 7)
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// take settles what the sink reports.
func (p *Publisher) take() {
	p.mailbox.Take(&p.mail)
	for _, seq := range p.mail.Settled {
		p.queue[seq-p.first].settled = true
	}
	for i := range p.mail.Poison {
		poison := &p.mail.Poison[i]
		at := &p.queue[poison.Seq-p.first]
		at.settled, at.refused = true, poison
		p.sink.Recorded([]uint64{poison.Seq})
	}
	n := 0
	for ; n < len(p.queue) && p.queue[n].settled; n++ {
		p.bytes -= p.queue[n].size()
		p.settled(p.queue[n].kept.Event(), p.queue[n].refused)
		p.attempt = 0
	}
	clear(p.queue[:n])
	p.queue = p.queue[n:]
	p.first += uint64(n)
	if p.mail.Err != nil {
		p.trouble(p.mail.Err)
		p.mailbox = nil
		p.attempt = max(p.attempt, 1)
	}
}
