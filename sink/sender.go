package sink

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/IBM/sarama"
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

	// Scratch of the answer.
	done    []settled
	seqs    []uint64
	commits []time.Time
}

// request returns an empty request, used again when there is one. Called with mu held.
func (k *Kafka) request(s *sender) *request {
	req := &request{}
	if n := len(k.idle); n > 0 {
		req = k.idle[n-1]
		k.idle = k.idle[:n-1]
	}
	req.run, req.sender = k.run, s
	return req
}

// idleFor is how long a connection is kept without use. Brokers close it after ten minutes by default
// (connections.max.idle.ms), which would cost the next request its answer.
const idleFor = 5 * time.Minute

// sender starts the sender of a broker, or tells the present one a new address. Called with mu held.
func (k *Kafka) sender(id int32, addr string) {
	s := k.senders[id]
	if s == nil && k.ctx.Err() == nil {
		enc := newEncoder(&k.cfg)
		s = &sender{k: k, id: id, wake: make(chan struct{}, 1), enc: enc}
		k.senders[id] = s
		k.group.Go(func() error { return s.loop(k.ctx) })
	}
	if s != nil && s.addr != addr {
		s.broken = s.addr != ""
		s.addr = addr
		s.knock()
	}
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

// object names the broker among the troubles.
func (s *sender) object() string { return "broker " + s.addr }

func (s *sender) drop(p *partition) {
	if i := slices.Index(s.partitions, p); i >= 0 {
		s.partitions = slices.Delete(s.partitions, i, i+1)
	}
}

func (s *sender) loop(ctx context.Context) error {
	timer := time.NewTimer(idleFor)
	defer timer.Stop()
	for {
		more, due := s.step()
		if more {
			continue
		}
		wait := idleFor
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
			s.rest()
		}
	}
}

// step sends one request. It reports whether another step may be due at once, and otherwise when.
func (s *sender) step() (more bool, due time.Time) {
	k := s.k
	k.mu.Lock()
	broken := s.broken
	k.mu.Unlock()
	if broken {
		s.disconnect()
	}

	k.mu.Lock()
	if broken {
		s.broken = false // only now: the callbacks of the old connection have said so again
	}
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
	if !s.k.sending() || s.inFlight >= maxInFlight {
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

// sending reports whether anything may leave. Called with mu held.
func (k *Kafka) sending() bool {
	return k.run != nil && !k.run.failed && (k.tx == nil || k.tx.open)
}

// take gathers a request: at most one batch of every partition. Batches that are not full leave
// only when no request is under way, so that under load the next ones gather meanwhile.
func (s *sender) take() *request {
	k := s.k
	if !k.sending() || s.inFlight >= maxInFlight {
		return nil
	}
	idle, at, size := s.inFlight == 0, now(), 0
	var req *request
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
		if req == nil {
			req = k.request(s)
		}
		k.sent++
		b := p.send(s, k.sent)
		size += b.size
		req.batches, req.parts = append(req.batches, b), append(req.parts, p)
	}
	if req == nil {
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
		Timeout:      int32(s.k.cfg.replicaWait() / time.Millisecond),
		Version:      8, // record errors (KIP-467) without the second encoding that version 9's lengths cost
	}
	if s.k.tx != nil {
		pr.TransactionalID = &s.k.tx.coordinator.id
	}
	s.enc.reset()
	for i, b := range req.batches {
		p := req.parts[i]
		s.k.tracer.sending(s.k.ctx, p, b, s.broker.Addr())
		pr.AddBatch(p.topic.name, p.id, s.enc.encode(b, id, s.k.tx != nil))
	}
	err := s.broker.AsyncProduce(pr, func(res *sarama.ProduceResponse, err error) { s.k.answer(req, res, err) })
	if err != nil {
		// Bytes may have been written, so the outcome is as open as without an answer.
		s.k.answer(req, nil, fmt.Errorf("send a produce request: %w", err))
	}
}

func (s *sender) connect(addr string) bool {
	k := s.k
	broker, err := k.cfg.open(k.conf, addr)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		s.attempts++
		s.notBefore = now().Add(k.backoff(s.attempts))
		k.trouble.report(s.object(), err, now())
		k.lookout.refresh()
		return false
	}
	s.attempts, s.notBefore = 0, time.Time{}
	k.trouble.clear(s.object(), now())
	s.broker = broker
	return true
}

// needed reports whether events wait for this broker.
func (s *sender) needed() bool {
	return s.inFlight > 0 || slices.ContainsFunc(s.partitions, func(p *partition) bool {
		return p.waits()
	})
}

// rest closes a connection that nobody has used for a while.
func (s *sender) rest() {
	s.k.mu.Lock()
	needed := s.needed()
	s.k.mu.Unlock()
	if !needed {
		s.disconnect()
	}
}

// disconnect closes the connection and returns when every callback has run.
func (s *sender) disconnect() {
	if s.broker != nil {
		_ = s.broker.Close() // its state is of no interest any more
		s.broker = nil
	}
}

// longestPause limits BackoffMax here: brokers are back and leaders elected within seconds.
const longestPause = 2 * time.Second

// backoff is the pause before an attempt: doubling from BackoffMin to BackoffMax, the upper half random.
func (k *Kafka) backoff(attempt int) time.Duration {
	d := min(k.cfg.BackoffMax, longestPause)
	if attempt < 16 {
		d = min(d, k.cfg.BackoffMin<<(attempt-1))
	}
	return d/2 + rand.N(d/2+1)
}
