package sink

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/walrelay/walrelay/checkpoint"
)

// sender produces to one broker: it owns the connection and is the only goroutine that uses it.
type sender struct {
	k    *Kafka
	id   int32
	wake chan struct{}
	enc  *encoder

	broker *sarama.Broker // owned by the goroutine; nil when there is no connection

	// Guarded by Kafka.mu.
	addr       string
	partitions []*partition // that this broker leads
	inFlight   int          // requests without an answer
	broken     bool         // the connection failed: close it before the next request
	attempts   int          // failed connections in a row
	notBefore  time.Time
	turn       int // partition to begin with, so that none starves
}

// request is what one produce request carries.
type request struct {
	run     *run
	sender  *sender
	batches []*batch
	parts   []*partition // of batches, same index
}

// errNoAnswer is what a batch gets whose partition is missing in the broker's answer.
var errNoAnswer = errors.New("the broker's answer leaves the partition out")

// sender starts the sender of a broker, or tells the present one a new address. Called with mu held.
func (k *Kafka) sender(id int32, addr string) *sender {
	s := k.senders[id]
	if s == nil {
		s = &sender{k: k, id: id, wake: make(chan struct{}, 1), enc: newEncoder(k.cfg.Stream, k.cfg.Compression)}
		k.senders[id] = s
		k.group.Go(func() error { return s.loop(k.ctx) })
	}
	if s.addr != addr {
		s.broken = s.addr != ""
		s.addr = addr
		s.knock()
	}
	return s
}

// knock wakes the sender. A partition without a leader has a nil sender.
func (s *sender) knock() {
	if s == nil {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *sender) drop(p *partition) {
	if i := slices.Index(s.partitions, p); i >= 0 {
		s.partitions = slices.Delete(s.partitions, i, i+1)
	}
}

func (s *sender) loop(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		more, due := s.step()
		if more {
			continue
		}
		wait := time.Hour
		if !due.IsZero() {
			wait = time.Until(due)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			s.disconnect()
			return nil
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// step sends one request. It reports whether another step may be due at once, and otherwise when.
func (s *sender) step() (more bool, due time.Time) {
	k := s.k
	k.mu.Lock()
	broken := s.broken
	s.broken = false
	k.mu.Unlock()
	if broken {
		s.disconnect()
	}

	k.mu.Lock()
	ready, due := s.due()
	addr := s.addr
	k.mu.Unlock()
	if !ready {
		return false, due
	}
	if s.broker == nil && !s.connect(addr) {
		return true, time.Time{}
	}

	k.mu.Lock()
	req := s.take()
	id := k.producer
	k.mu.Unlock()
	if req == nil {
		return false, time.Time{}
	}
	s.produce(req, id)
	return true, time.Time{}
}

// due reports whether take would find something, and otherwise from when on.
func (s *sender) due() (bool, time.Time) {
	at := now()
	if s.k.run == nil || s.k.run.failed || s.inFlight >= maxInFlight {
		return false, time.Time{}
	}
	if at.Before(s.notBefore) {
		return false, s.notBefore
	}
	var next time.Time
	for _, p := range s.partitions {
		ok, from := p.sendable(s, at)
		if ok && (len(p.queue) > 0 || s.inFlight == 0) {
			return true, time.Time{}
		}
		if !from.IsZero() && (next.IsZero() || from.Before(next)) {
			next = from
		}
	}
	return false, next
}

// take gathers a request: at most one batch of every partition. Batches that are not full leave
// only when no request is under way, so that under load the next ones gather meanwhile.
func (s *sender) take() *request {
	k := s.k
	if k.run == nil || k.run.failed || s.inFlight >= maxInFlight {
		return nil
	}
	idle, at, size := s.inFlight == 0, now(), 0
	req := &request{run: k.run, sender: s}
	for i := range s.partitions {
		p := s.partitions[(s.turn+i)%len(s.partitions)]
		if ok, _ := p.sendable(s, at); !ok {
			continue
		}
		if len(p.queue) == 0 {
			if !idle {
				continue
			}
			p.close()
		}
		if size > 0 && size+p.queue[0].size > k.cfg.RequestBytes {
			s.turn = (s.turn + i) % len(s.partitions)
			break
		}
		k.sent++
		b := p.send(s, k.sent)
		size += b.size
		req.batches, req.parts = append(req.batches, b), append(req.parts, p)
	}
	if len(req.batches) == 0 {
		return nil
	}
	s.inFlight++
	k.inFlight++
	k.used = true
	return req
}

// produce encodes and sends a request. Its answer, or the error, reaches answer.
func (s *sender) produce(req *request, id producerID) {
	pr := &sarama.ProduceRequest{
		RequiredAcks: sarama.WaitForAll,
		Timeout:      int32(s.k.cfg.Timeout / time.Millisecond),
		Version:      8, // record errors (KIP-467) without the second encoding that version 9's lengths cost
	}
	s.enc.reset(req.batches)
	for i, b := range req.batches {
		p := req.parts[i]
		pr.AddBatch(p.topic.name, p.id, s.enc.encode(b, id))
	}
	err := s.broker.AsyncProduce(pr, func(res *sarama.ProduceResponse, err error) { s.k.answer(req, res, err) })
	if err != nil {
		// Bytes may have been written, so the outcome is as open as without an answer.
		s.k.answer(req, nil, fmt.Errorf("send a produce request: %w", err))
	}
}

func (s *sender) connect(addr string) bool {
	k := s.k
	broker := sarama.NewBroker(addr)
	err := broker.Open(k.conf)
	if err == nil {
		_, err = broker.Connected()
	}
	object := "broker " + addr
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		s.attempts++
		s.notBefore = now().Add(k.backoff(s.attempts))
		k.trouble.report(object, err.Error(), now())
		k.lookout.refresh()
		return false
	}
	s.attempts, s.notBefore = 0, time.Time{}
	k.trouble.clear(object, now())
	s.broker = broker
	return true
}

// disconnect closes the connection and returns when every callback has run.
func (s *sender) disconnect() {
	if s.broker != nil {
		_ = s.broker.Close() // its state is of no interest any more
		s.broker = nil
	}
}

// backoff is the pause before an attempt: doubling from BackoffMin to BackoffMax, the upper half random.
func (k *Kafka) backoff(attempt int) time.Duration {
	d := k.cfg.BackoffMax
	if attempt < 16 {
		d = min(d, k.cfg.BackoffMin<<(attempt-1))
	}
	return d/2 + rand.N(d/2+1)
}

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
	if err != nil {
		s.broken = true
		k.trouble.report("broker "+s.addr, err.Error(), now())
		k.lookout.refresh()
	}
	var done []settled
	if req.run == k.run {
		for i, b := range req.batches {
			if k.answerBatch(req.parts[i], b, block(res, req.parts[i]), err) {
				done = append(done, settled{topic: req.parts[i].topic.name, batch: b})
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
	object := "topic " + p.topic.name
	switch {
	case err != nil:
		p.fail(b, nil, true)
	case block == nil:
		k.trouble.report(object, errNoAnswer.Error(), now())
		p.fail(b, nil, true)
	default:
		v := classify(block.Err)
		switch v.class {
		case acked:
			k.trouble.clear(object, now())
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
			k.trouble.report(object, block.Err.Error()+" ("+v.reason+")", now())
			k.lookout.refresh()
			p.fail(b, nil, v.ambiguous)
		case refuse:
			p.fail(b, newRefusal(block, v.reason), false)
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
