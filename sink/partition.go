package sink

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// maxInFlight is how many batches of a partition, and requests of a sender, may be unanswered. The
// broker remembers the last five batches of a producer, which is what makes repeats recognisable
// (org.apache.kafka.storage.internals.log.ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
const maxInFlight = 5

// provenFor is how long after its last acknowledgement a partition counts as one whose broker holds
// state for our producer id: brokers drop it after producer.id.expiration.ms, a day by default. They count
// from the latest timestamp in the last batch, not from when they wrote it
// (org.apache.kafka.storage.internals.log.ProducerStateManager.isProducerExpired), so old events leave no
// state for long, however many there are.
const provenFor = time.Hour

// partition is one partition of a topic in the present run. Everything is guarded by Kafka.mu.
type partition struct {
	topic  *topic
	id     int32
	leader *sender // nil while there is none

	gathers  bool     // in exactly-once delivery: what is closed waits for its transaction
	open     *batch   // being filled
	gathered []*batch // closed, in order, and in no transaction yet
	queue    []*batch // to be sent, in order
	inFlight []*batch // sent and not answered, in order
	failed   []*batch // answered with an error while others are in flight
	sentBy   *sender  // of the batches in flight

	muted        bool // until nothing is in flight any more
	held         bool // in trouble, see Kafka.hold
	notBefore    time.Time
	attempts     int
	nextSequence int32
	proven       time.Time // from when on the broker's state ages
}

// busy reports whether the partition has anything that is not acknowledged.
func (p *partition) busy() bool {
	return p.waits() || len(p.gathered) > 0 || p.open != nil || len(p.inFlight) > 0 || len(p.failed) > 0
}

// close moves the open batch to the queue, or to what waits for a transaction.
func (p *partition) close() {
	switch {
	case p.open == nil:
		return
	case p.gathers:
		p.gathered = append(p.gathered, p.open)
	default:
		p.queue = append(p.queue, p.open)
	}
	p.open = nil
}

// waits reports whether something may be sent as far as the partition is concerned.
func (p *partition) waits() bool { return len(p.queue) > 0 || p.open != nil && !p.gathers }

// sendable reports whether s may send a batch of the partition now, and if not, from when on;
// a zero time means: when something else has happened.
func (p *partition) sendable(s *sender, at time.Time) (bool, time.Time) {
	if p.muted || !p.waits() {
		return false, time.Time{}
	}
	if n := len(p.inFlight); n > 0 {
		if n >= maxInFlight || p.sentBy != s || at.Sub(p.proven) > provenFor || p.inFlight[0].again {
			return false, time.Time{}
		}
	}
	if at.Before(p.notBefore) {
		return false, p.notBefore
	}
	return true, time.Time{}
}

// send takes the next batch of the queue, numbered.
func (p *partition) send(s *sender, order uint64) *batch {
	b := p.queue[0]
	p.queue = slices.Delete(p.queue, 0, 1)
	b.again = b.firstSequence >= 0
	if !b.again {
		b.firstSequence = p.nextSequence
		p.nextSequence = nextSequence(p.nextSequence, len(b.entries))
	}
	b.order, b.plain = order, expanded(b.size+batchOverhead) > p.topic.limit
	p.inFlight = append(p.inFlight, b)
	p.sentBy = s
	return b
}

// nextSequence adds within 0 … 2^31-1, wrapping to 0 as the broker does
// (org.apache.kafka.common.record.DefaultRecordBatch.incrementSequence).
func nextSequence(sequence int32, n int) int32 {
	return int32((int64(sequence) + int64(n)) & math.MaxInt32)
}

// answered removes b from what is in flight.
func (p *partition) answered(b *batch) {
	if i := slices.Index(p.inFlight, b); i >= 0 {
		p.inFlight = slices.Delete(p.inFlight, i, i+1)
	}
}

// behindUnresolved reports whether a batch sent before b has no final answer yet.
func (p *partition) behindUnresolved(b *batch) bool {
	before := func(o *batch) bool { return o.order < b.order }
	return slices.ContainsFunc(p.failed, before) || slices.ContainsFunc(p.inFlight, before)
}

// fail notes an answer that is an error; the partition is mute until nothing is in flight.
func (p *partition) fail(b *batch, r *refusal, ambiguous bool) {
	b.ambiguous = b.ambiguous || ambiguous
	b.refused = r
	p.failed = append(p.failed, b)
	p.muted = true
	p.proven = time.Time{} // the log may be another one, of a topic created anew or a leader that lost its tail
}

// settle ends the mute once nothing is in flight: what failed goes back to the head of the queue,
// in the order in which it was sent. It returns the batches' first refused one, if any, which the
// caller has to take apart before anything is sent.
func (p *partition) settle(wait func(attempt int) time.Duration) (refused *batch) {
	slices.SortFunc(p.failed, func(a, b *batch) int {
		if a.order < b.order {
			return -1
		}
		return 1
	})
	p.queue = slices.Insert(p.queue, 0, p.failed...)
	clear(p.failed)
	p.failed = p.failed[:0]
	p.muted = false
	for _, b := range p.queue {
		if b.refused != nil {
			return b
		}
	}
	p.attempts++
	p.notBefore = now().Add(wait(p.attempts))
	return nil
}

// refusal is what a broker said of a batch in which a record is to blame.
type refusal struct {
	code    sarama.KError
	reason  string
	records []int32 // indexes of the culprits, when the broker named them
}

// newRefusal notes what the broker said of a batch of n records.
func newRefusal(block *sarama.ProduceResponseBlock, reason string, n int) *refusal {
	r := &refusal{code: block.Err, reason: reason}
	for _, e := range block.RecordErrors {
		if e.BatchIndex >= 0 && int(e.BatchIndex) < n {
			r.records = append(r.records, e.BatchIndex)
		}
	}
	return r
}

func (p *partition) String() string { return fmt.Sprintf("%s-%d", p.topic.name, p.id) }
