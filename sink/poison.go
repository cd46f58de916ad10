package sink

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/walrelay/walrelay/checkpoint"
)

// poison applies the policy, or the operator's verdict, to a record that cannot be delivered. It
// reports whether the record is stuck: then nothing may follow it in its partition. Called with mu held.
func (k *Kafka) poison(topicName string, e entry, c content, reason string) (stuck bool) {
	policy := k.cfg.OnPoison
	switch k.run.Verdicts[e.pos] {
	case checkpoint.VerdictSkip:
		policy = Skip
	case checkpoint.VerdictDeadLetter:
		policy = DeadLetter
	case checkpoint.VerdictRetry:
	}
	switch policy {
	case DeadLetter:
		k.deadLetter(topicName, e, c, reason)
	case Skip:
		k.putPoison(newPoison(topicName, e, c, reason, checkpoint.Skipped))
	case Stop:
		if g := k.run.gather; g != nil && e.pos.Compare(g.whole.position) <= 0 {
			// It waited for its topic's metadata, and what came meanwhile cannot be told from what came
			// before it any more. The next run stops in time.
			k.condemned[e.pos] = refused{event: reason}
			k.fail(fmt.Errorf("event at %s cannot be delivered: %s", e.pos, reason))
			return true
		}
		k.stop()
		k.putPoison(newPoison(topicName, e, c, reason, checkpoint.Stopped))
		return true
	}
	return false
}

// putPoison reports an event that cannot be delivered. No transaction passes it before the session
// has written it down: after a crash nobody would look at it again. Called with mu held.
func (k *Kafka) putPoison(p checkpoint.Poison) {
	if g := k.run.gather; g != nil && p.Action != checkpoint.Stopped {
		g.unrecorded[p.Seq] = p.Position
	}
	k.run.Mailbox.PutPoison(p)
}

// oversize is the poison of a record that is larger than its topic takes.
func (k *Kafka) oversize(t *topic, e entry, c content) (stuck bool) {
	if e.poison != nil { // a dead letter that fits nowhere
		p := *e.poison
		p.Action = checkpoint.Unfit
		p.Reason += "; and larger than the dead-letter topic's max.message.bytes"
		k.putPoison(p)
		return false
	}
	return k.poison(t.name, e, c, fmt.Sprintf("the record takes %d bytes, max.message.bytes of the topic is %d",
		int(e.size)+batchOverhead, t.limit))
}

// deadLetter sends a record to the dead-letter topic. It is reported once that has acknowledged it.
func (k *Kafka) deadLetter(topicName string, e entry, c content, reason string) {
	p := newPoison(topicName, e, c, reason, checkpoint.DeadLettered)
	e.poison, e.partition = &p, 0
	e.size = int32(recordSize(c, k.constant+len(headerSourcePosition)-len(headerPosition)+
		headerSize(len(headerDeadTopic), []byte(p.Topic))+headerSize(len(headerDeadReason), []byte(p.Reason)), 2))
	if e.stamp == 0 { // there is none, or it was refused for it
		e.stamp = e.commit / 1000
	}
	if k.cfg.FollowKey && c.key != nil {
		key := checkpoint.DeadKey{Topic: topicName, KeyDigest: sha256.Sum256(c.key)}
		if at, known := k.run.dead[key]; !known || e.pos.Compare(at) < 0 {
			k.run.dead[key] = e.pos
		}
	}
	if again := k.condemned[e.pos].letter; again != "" {
		p.Action = checkpoint.Unfit
		p.Reason += "; and " + again
		k.putPoison(p)
		return
	}
	k.place(k.topic([]byte(k.cfg.DeadTopic)), e, c)
}

const reasonFollows = "follows a dead-lettered event of its key"

// followsDeadKey reports whether an event goes the way of an earlier one of its key.
func (k *Kafka) followsDeadKey(topicName string, e entry, c content) bool {
	if e.poison != nil || c.key == nil || len(k.run.dead) == 0 {
		return false
	}
	at, dead := k.run.dead[checkpoint.DeadKey{Topic: topicName, KeyDigest: sha256.Sum256(c.key)}]
	return dead && e.pos.Compare(at) > 0
}

func newPoison(topicName string, e entry, c content, reason string, action checkpoint.Action) checkpoint.Poison {
	return checkpoint.Poison{
		Seq: e.seq, Position: e.pos, EventID: string(c.id),
		Table: e.mapping.Name(), Topic: topicName,
		KeyDigest: digest(c.key), PayloadDigest: digest(c.value),
		Size: int(e.size) + batchOverhead, Reason: reason, Action: action,
	}
}

func digest(b []byte) []byte {
	if b == nil {
		return nil
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// isolate takes apart a batch in which the broker refused a record: named culprits at once, others
// by halving. Nothing of the partition is in flight. Sequences that were given to batches which are
// not in the log are taken back; where one may be in the log, only a new run is safe.
func (k *Kafka) isolate(p *partition, refused *batch) {
	first := int32(-1)
	for _, b := range p.queue {
		if b.firstSequence >= 0 {
			if first < 0 {
				first = b.firstSequence
			}
			if b.ambiguous {
				k.fail(fmt.Errorf("produce to %s: %w: refused after an attempt without an answer", p, refused.refused.code))
				return
			}
		}
		b.firstSequence = -1
		if b != refused {
			b.refused = nil
		}
	}
	p.nextSequence = first
	p.proven = time.Time{}

	queue := p.queue
	p.queue = nil
	for i, b := range queue {
		if b != refused {
			p.queue = append(p.queue, b)
		} else if k.takeApart(p, b) {
			p.open = nil // what follows the stuck record comes again in another run
			for _, b := range queue[i+1:] {
				b.span.failed(errorAbandoned, "a record before it cannot be delivered")
			}
			return
		}
	}
	if k.cfg.FollowKey {
		k.divert(p)
	}
}

// suspect ends the run because a broker refused a batch of its transaction, in which a record is to
// blame: nothing of a transaction can be taken back. The next run applies the policy to a culprit that
// is known, and gives every suspect a batch of its own. Called with mu held.
func (k *Kafka) suspect(p *partition, b *batch, r *refusal) {
	for i := range b.entries {
		e := &b.entries[i]
		if len(b.entries) > 1 && !slices.Contains(r.records, int32(i)) {
			if len(r.records) == 0 {
				k.suspects[e.pos] = true
			}
			continue
		}
		known := k.condemned[e.pos]
		reason := fmt.Sprintf("the broker refuses it: %s (%s)", r.code.Error(), r.reason)
		ofStamp := r.code == sarama.ErrInvalidTimestamp
		switch {
		case e.poison == nil:
			known.event, known.stamp = reason, ofStamp
		case ofStamp && !known.stamp: // it was dead-lettered for something else, maybe by the operator
			known.event, known.stamp = e.poison.Reason, true
		default:
			known.event, known.letter = e.poison.Reason, reason
		}
		k.condemned[e.pos] = known
	}
	k.fail(fmt.Errorf("produce to %s: %w: its transaction is given up", p, r.code))
}

// takeApart replaces a refused batch at the end of the queue by what is left of it. It reports
// whether that ends with a stuck record.
func (k *Kafka) takeApart(p *partition, b *batch) (stuck bool) {
	r := b.refused
	defer k.release(b)
	if len(b.entries) == 1 || len(r.records) > 0 {
		return k.condemn(p, b, r)
	}
	half := len(b.entries) / 2
	parts := [2]*batch{k.newBatch(), k.newBatch()}
	for i := range b.entries {
		e := b.entries[i]
		parts[min(i/half, 1)].add(e, b.content(&e))
	}
	p.queue = append(p.queue, parts[0], parts[1])
	return false
}

// condemn applies the poison policy to the culprits of a batch and keeps the others, or those
// before a stuck one.
func (k *Kafka) condemn(p *partition, b *batch, r *refusal) (stuck bool) {
	rest := k.newBatch()
	for i := 0; i < len(b.entries) && !stuck; i++ {
		e := b.entries[i]
		c := b.content(&e)
		if len(b.entries) > 1 && !slices.Contains(r.records, int32(i)) {
			rest.add(e, c)
			continue
		}
		reason := fmt.Sprintf("the broker refuses it: %s (%s)", r.code.Error(), r.reason)
		if e.poison != nil { // a dead letter that the dead-letter topic refuses
			letter := *e.poison
			letter.Action = checkpoint.Unfit
			letter.Reason += "; and " + reason
			k.putPoison(letter)
			continue
		}
		if r.code == sarama.ErrInvalidTimestamp {
			e.stamp = 0 // the dead-letter topic would refuse it as well
		}
		k.condemned[e.pos] = refused{event: reason, stamp: r.code == sarama.ErrInvalidTimestamp}
		stuck = k.poison(p.topic.name, e, c, reason)
	}
	if len(rest.entries) > 0 {
		p.queue = append(p.queue, rest)
	} else {
		k.release(rest)
	}
	return stuck
}

// divert sends what waits behind a dead-lettered event of the same key after it.
func (k *Kafka) divert(p *partition) {
	if len(k.run.dead) == 0 {
		return
	}
	p.close()
	queue := p.queue
	p.queue = nil
	for _, b := range queue {
		rest := k.newBatch()
		for i := range b.entries {
			e := b.entries[i]
			c := b.content(&e)
			if k.followsDeadKey(p.topic.name, e, c) {
				k.deadLetter(p.topic.name, e, c, reasonFollows)
			} else {
				rest.add(e, c)
			}
		}
		if len(rest.entries) == len(b.entries) {
			rest.span, b.span = b.span, nil
		} else {
			b.span.failed(errorPoison, reasonFollows)
		}
		k.release(b)
		if len(rest.entries) > 0 {
			p.queue = append(p.queue, rest)
		} else {
			k.release(rest)
		}
	}
}
