package sink

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// errNoAnswer is what a batch gets whose partition is missing in the broker's answer.
var errNoAnswer = errors.New("the broker's answer leaves the partition out")

// answer takes in the broker's answer to a request. It runs on sarama's reading goroutine.
func (k *Kafka) answer(req *request, res *sarama.ProduceResponse, err error) {
	k.mu.Lock()
	s := req.sender
	s.inFlight--
	k.inFlight--
	if k.inFlight == 0 && k.quiet != nil {
		close(k.quiet)
		k.quiet = nil
	}
	current := req.run == k.run
	if err != nil {
		s.broken = true
		if current && k.ctx.Err() == nil { // else we closed the connection ourselves
			k.trouble.report(s.object(), err, now())
			k.lookout.refresh()
		}
	}
	if current {
		req.run.reporting++
		for i, b := range req.batches {
			switch done := (settled{topic: req.parts[i].topic.name, batch: b}); {
			case !k.answerBatch(req.parts[i], b, block(res, req.parts[i]), err):
			case k.tx != nil:
				k.tx.acked(done) // reported once the transaction is committed
			default:
				req.done = append(req.done, done)
			}
			if leader := req.parts[i].leader; leader != s {
				leader.knock() // it waited for what the partition's former leader owed
			}
		}
	} else {
		abandon(req.batches)
	}
	k.mu.Unlock()
	s.knock()

	k.report(req)
	if res != nil && res.ThrottleTime > 0 {
		for i, p := range req.parts {
			if !slices.ContainsFunc(req.parts[:i], func(q *partition) bool { return q.topic == p.topic }) {
				k.cfg.Observer.Throttled(p.topic.name, res.ThrottleTime)
			}
		}
	}
	k.mu.Lock()
	if current {
		req.run.reporting--
		k.failDrained()
	}
	k.recycle(req)
	k.mu.Unlock()
}

func block(res *sarama.ProduceResponse, p *partition) *sarama.ProduceResponseBlock {
	if res == nil {
		return nil
	}
	return res.GetBlock(p.topic.name, p.id)
}

// answerBatch decides about one batch and reports whether it is acknowledged.
func (k *Kafka) answerBatch(p *partition, b *batch, block *sarama.ProduceResponseBlock, err error) bool {
	p.answered(b)
	switch {
	case err != nil:
		b.span.retried(kindOf(err), err.Error())
		p.fail(b, nil, true)
	case block == nil:
		b.span.retried(kindOf(errNoAnswer), errNoAnswer.Error())
		k.hold(p.topic, &p.held, errNoAnswer)
		p.fail(b, nil, true)
	default:
		v := classify(block.Err)
		switch v.class {
		case acked:
			b.span.acked(block.Offset, k.tx != nil)
			k.unhold(p.topic, &p.held)
			p.proven, p.attempts = b.youngest(now()), 0
			k.unmute(p)
			return true
		case order:
			if !p.behindUnresolved(b) {
				b.span.failed(kindOfAnswer(block.Err), v.reason)
				k.fail(fmt.Errorf("produce to %s: %w (%s)", p, block.Err, v.reason))
				return false
			}
			b.span.retried(kindOfAnswer(block.Err), v.reason)
			p.fail(b, nil, false)
		case retry:
			b.span.retried(kindOfAnswer(block.Err), v.reason)
			k.hold(p.topic, &p.held, fmt.Errorf("%w (%s)", block.Err, v.reason))
			k.lookout.refresh()
			p.fail(b, nil, v.ambiguous)
		case refuse:
			if block.Err != sarama.ErrInvalidTimestamp {
				p.topic.doubted = true // its limit may have been lowered
				k.lookout.refresh()
			}
			b.span.failed(errorPoison, v.reason)
			refusal := newRefusal(block, v.reason, len(b.entries))
			if k.tx != nil {
				k.suspect(p, b, refusal)
				return false
			}
			p.fail(b, refusal, false)
		case rewind:
			b.span.failed(kindOfAnswer(block.Err), v.reason)
			k.fail(fmt.Errorf("produce to %s: %w (%s)", p, block.Err, v.reason))
			return false
		}
	}
	k.unmute(p)
	return false
}

// unmute lets a partition go on once nothing of it is in flight.
func (k *Kafka) unmute(p *partition) {
	if !p.muted || len(p.inFlight) > 0 {
		return
	}
	if refused := p.settle(k.backoff); refused != nil {
		k.isolate(p, refused)
		k.flush() // a dead letter goes to another partition, maybe of another broker
	}
}

// settled is a batch that was acknowledged.
type settled struct {
	topic string
	batch *batch
}

// report tells the session and the observer of acknowledged batches.
func (k *Kafka) report(req *request) {
	if len(req.done) == 0 {
		return
	}
	at := k.cfg.Now()
	for _, d := range req.done {
		if d.batch.state {
			continue
		}
		d.batch.span.settled()
		req.seqs, req.commits = req.seqs[:0], req.commits[:0]
		for i := range d.batch.entries {
			e := &d.batch.entries[i]
			req.commits = append(req.commits, time.UnixMicro(e.commit))
			switch {
			case e.poison == nil:
				req.seqs = append(req.seqs, e.seq)
			case req.run.gather == nil: // else it was recorded before the transaction
				req.run.Mailbox.PutPoison(*e.poison)
			}
		}
		if len(req.seqs) > 0 {
			req.run.Mailbox.Settle(req.seqs)
		}
		k.cfg.Observer.Acked(d.topic, d.batch.size, req.commits, at)
	}
}

// recycle frees the batches that a request has settled, and the request itself.
func (k *Kafka) recycle(req *request) {
	for _, d := range req.done {
		k.release(d.batch)
	}
	const most, largest = 16, 1 << 14
	if len(k.idle) >= most || cap(req.seqs) > largest {
		return
	}
	clear(req.batches)
	clear(req.parts)
	clear(req.done)
	*req = request{
		batches: req.batches[:0], parts: req.parts[:0], done: req.done[:0], seqs: req.seqs[:0], commits: req.commits[:0],
	}
	k.idle = append(k.idle, req)
}
