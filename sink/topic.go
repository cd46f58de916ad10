package sink

import (
	"fmt"
	"time"

	"github.com/walrelay/walrelay/checkpoint"
)

// topic is one topic of the present run. Until its metadata is known its records wait in limbo,
// since the partition depends on the partition count.
type topic struct {
	name       string
	dead       bool // the dead-letter topic: no position fence, so its partition count may change
	partitions []*partition
	limit      int // max.message.bytes

	limbo   *batch
	asked   time.Time // when metadata was first asked for
	missing bool      // the cluster says for MissingAfter that there is no such topic
}

// topicInfo is what the cluster says of a topic.
type topicInfo struct {
	leaders []int32 // by partition; -1 without a leader
	limit   int
}

// topic returns the topic of that name, asking for its metadata when it is new; nil when the name
// is no legal topic. The name is copied.
func (k *Kafka) topic(name []byte) *topic {
	if t := k.topics[string(name)]; t != nil {
		return t
	}
	if checkTopic(name) != "" {
		return nil
	}
	t := &topic{name: string(name), dead: string(name) == k.cfg.DeadTopic, asked: now()}
	k.topics[t.name] = t
	k.lookout.refresh()
	return t
}

// place routes a record into the open batch of its partition.
func (k *Kafka) place(t *topic, e entry, c content) {
	switch {
	case t.missing && k.cfg.OnPoison != Stop:
		k.poison(t.name, e, c, "the topic does not exist")
		return
	case t.partitions == nil:
		if t.limbo == nil {
			t.limbo = k.newBatch()
		}
		t.limbo.add(e, c)
		return
	case int(e.size)+batchOverhead > t.limit:
		k.oversize(t, e, c)
		return
	}
	hash := c.key
	if hash == nil {
		hash = c.id
	}
	p := t.partitions[partitionOf(hash, int32(len(t.partitions)))]
	full := min(k.cfg.BatchBytes, t.limit) - batchOverhead
	if p.open != nil && p.open.size+int(e.size)+deltaReserve > full {
		p.close()
		p.leader.knock()
	}
	if p.open == nil {
		p.open = k.newBatch()
	}
	p.open.add(e, c)
}

// adopt takes over what the cluster says of a topic. Called with mu held.
func (k *Kafka) adopt(t *topic, info *topicInfo) {
	count := int32(len(info.leaders))
	if !t.dead {
		recorded, known := k.run.Partitions[t.name]
		if known && recorded != count {
			k.run.stopped = true
			k.run.Mailbox.Fail(&checkpoint.PartitionsChangedError{
				Partitions: checkpoint.Partitions{Topic: t.name, Count: count}, Recorded: recorded,
			})
			return
		}
		if !known {
			k.run.Partitions[t.name] = count
			k.run.Mailbox.PutPartitions(checkpoint.Partitions{Topic: t.name, Count: count})
		}
	}
	if int(count) < len(t.partitions) {
		k.fail(fmt.Errorf("topic %s was created anew with fewer partitions", t.name))
		return
	}
	t.limit, t.missing = info.limit, false
	for id := int32(len(t.partitions)); id < count; id++ {
		t.partitions = append(t.partitions, &partition{topic: t, id: id})
	}
	for _, p := range t.partitions[:count] {
		k.lead(p, info.leaders[p.id])
	}
	if limbo := t.limbo; limbo != nil {
		t.limbo = nil
		k.replay(t, limbo)
		for _, p := range t.partitions {
			p.leader.knock()
		}
	}
}

// replay places the records of a batch again, and frees it.
func (k *Kafka) replay(t *topic, b *batch) {
	for i := range b.entries {
		e := b.entries[i]
		if k.run.stopped {
			break
		}
		k.place(t, e, b.content(&e))
	}
	k.release(b)
}

// lead gives a partition to the sender of its leader.
func (k *Kafka) lead(p *partition, broker int32) {
	s := k.senders[broker]
	if broker < 0 || s == nil {
		s = nil
	}
	if p.leader == s {
		return
	}
	if p.leader != nil {
		p.leader.drop(p)
	}
	p.leader = s
	if s != nil {
		s.partitions = append(s.partitions, p)
		p.notBefore = time.Time{} // a new leader need not wait for the old one's backoff
		s.knock()
	}
}

// vanish applies what is known of topics that the cluster does not have.
func (k *Kafka) vanish(t *topic) {
	if t.missing || now().Sub(t.asked) < k.cfg.MissingAfter || t.partitions != nil {
		return
	}
	t.missing = true
	if limbo := t.limbo; limbo != nil && k.cfg.OnPoison != Stop {
		t.limbo = nil
		k.replay(t, limbo)
	}
}

func (k *Kafka) newBatch() *batch {
	if n := len(k.free); n > 0 {
		b := k.free[n-1]
		k.free = k.free[:n-1]
		return b
	}
	return &batch{firstSequence: -1}
}

// release returns a batch's memory for reuse, unless it is unusually large or many are free.
func (k *Kafka) release(b *batch) {
	const most, largest = 64, 1 << 18
	if len(k.free) < most && cap(b.buf) <= largest {
		b.reset()
		k.free = append(k.free, b)
	}
}
