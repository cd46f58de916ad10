package sink

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/walrelay/walrelay/checkpoint"
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
			k.trouble.report(s.object(), err.Error(), now())
			k.lookout.refresh()
		}
	}
	var done []settled
	if current {
		for i, b := range req.batches {
			if k.answerBatch(req.parts[i], b, block(res, req.parts[i]), err) {
				done = append(done, settled{topic: req.parts[i].topic.name, batch: b})
			}
			if leader := req.parts[i].leader; leader != s {
				leader.knock() // it waited for what the partition's former leader owed
			}
		}
	}
	k.mu.Unlock()
	s.knock()

	k.report(req.run, done)
	if res != nil && res.ThrottleTime > 0 {
		for _, p := range req.parts {
			k.cfg.Observer.Throttled(p.topic.name, res.ThrottleTime)
		}
	}
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
		p.fail(b, nil, true)
	case block == nil:
		k.hold(p.topic, &p.held, errNoAnswer.Error())
		p.fail(b, nil, true)
	default:
		v := classify(block.Err)
		switch v.class {
		case acked:
			k.unhold(p.topic, &p.held)
			p.proven, p.attempts = now(), 0
			k.unmute(p)
			return true
		case order:
			if !p.behindUnresolved(b) {
				k.fail(fmt.Errorf("produce to %s: %w", p, block.Err))
				return false
			}
			p.fail(b, nil, false)
		case retry:
			k.hold(p.topic, &p.held, block.Err.Error()+" ("+v.reason+")")
			k.lookout.refresh()
			p.fail(b, nil, v.ambiguous)
		case refuse:
			if block.Err != sarama.ErrInvalidTimestamp {
				p.topic.doubted = true // its limit may have been lowered
				k.lookout.refresh()
			}
			p.fail(b, newRefusal(block, v.reason, len(b.entries)), false)
		case rewind:
			k.fail(fmt.Errorf("produce to %s: %w", p, block.Err))
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

// report tells the session and the observer of acknowledged batches, and frees them.
func (k *Kafka) report(r *run, done []settled) {
	if len(done) == 0 {
		return
	}
	at := k.cfg.Now()
	seqs, commits := make([]uint64, 0, 256), make([]time.Time, 0, 256)
	var letters []checkpoint.Poison
	for _, d := range done {
		seqs, commits = seqs[:0], commits[:0]
		for i := range d.batch.entries {
			e := &d.batch.entries[i]
			commits = append(commits, time.UnixMicro(e.commit))
			if e.poison != nil {
				letters = append(letters, *e.poison)
			} else {
				seqs = append(seqs, e.seq)
			}
		}
		r.Mailbox.Settle(seqs)
		k.cfg.Observer.Acked(d.topic, d.batch.size, commits, at)
	}
	for _, l := range letters {
		r.Mailbox.PutPoison(l)
	}
	k.mu.Lock()
	for _, d := range done {
		k.release(d.batch)
	}
	k.mu.Unlock()
}
