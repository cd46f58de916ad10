package sink

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/walrelay/walrelay/checkpoint"
)

// topic is one topic of the present run. Until its metadata is known its records wait in limbo,
// since the partition depends on the partition count. So does a record that seems too large, and
// whatever comes behind it, until the limit has been read again: it may have been raised.
type topic struct {
	name       string
	dead       bool // the dead-letter topic: no position fence, so its partition count may change
	state      bool // the topic of states, likewise
	partitions []*partition
	limit      int  // max.message.bytes
	full       int  // bytes of records that a batch of several takes
	doubted    bool // the limit may have changed
	sure       bool // the limit has just been read, for the records in limbo

	limbo   *batch
	asked   time.Time // when metadata was first asked for
	held    int       // reasons for which events wait, see Kafka.hold
	absent  bool      // one of them: no such topic, or no leader
	renamed bool      // the log has it that characters of the name were replaced
	missing bool      // the cluster says for MissingAfter that there is no such topic
}

// topicInfo is what the cluster says of a topic.
type topicInfo struct {
	leaders []int32 // by partition; -1 without a leader
	limit   int     // 0: not asked for
	cleanup string  // cleanup.policy, if it was asked for and may be read
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
	t.state = k.tx != nil && t.name == k.cfg.StateTopic
	k.topics[t.name] = t
	k.lookout.refresh()
	return t
}

// place routes a record into the open batch of its partition. It reports whether the record is
// stuck instead.
func (k *Kafka) place(t *topic, e entry, c content) (stuck bool) {
	switch {
	case t.missing && k.cfg.OnPoison != Stop:
		return k.poison(t.name, e, c, "the topic does not exist")
	case t.partitions == nil || t.limbo != nil:
		t.wait(k, e, c)
		return false
	case int(e.size)+batchOverhead > t.limit:
		if t.sure {
			return k.oversize(t, e, c)
		}
		t.wait(k, e, c)
		k.lookout.refresh()
		return false
	}
	n := e.partition - 1
	switch {
	case n >= int32(len(t.partitions)):
		return k.poison(t.name, e, c, fmt.Sprintf("the row asks for partition %d, the topic has %d", n, len(t.partitions)))
	case n < 0 && c.key != nil:
		n = partitionOf(c.key, int32(len(t.partitions)))
	case n < 0:
		n = partitionOf(c.id, int32(len(t.partitions)))
	}
	p := t.partitions[n]
	if p.open != nil && (p.open.size+int(e.size)+deltaReserve > t.full || k.suspects[e.pos]) {
		p.close()
		p.leader.knock()
	}
	if p.open == nil {
		p.open = k.newBatch()
	}
	p.open.add(e, c)
	if e.poison != nil && k.tx != nil {
		k.putPoison(*e.poison)
	}
	if k.suspects[e.pos] {
		p.close()
	}
	return false
}

// wait puts a record into limbo.
func (t *topic) wait(k *Kafka, e entry, c content) {
	if t.limbo == nil {
		t.limbo = k.newBatch()
	}
	t.limbo.add(e, c)
}

// adopt takes over what the cluster says of a topic. Called with mu held.
func (k *Kafka) adopt(t *topic, info *topicInfo) {
	if k.run.failed || !t.dead && !t.state && !k.fence(t, info) {
		return
	}
	fresh := info.limit > 0
	if fresh {
		t.limit = info.limit
	}
	t.missing = false
	t.full = min(k.cfg.BatchBytes, t.limit) - batchOverhead
	if k.cfg.Compression != sarama.CompressionNone {
		t.full = min(t.full, t.limit-(expanded(t.limit)-t.limit)-batchOverhead)
	}
	for id := len(t.partitions); id < len(info.leaders); id++ {
		t.partitions = append(t.partitions, &partition{topic: t, id: int32(id), gathers: k.tx != nil && !t.state})
	}
	for _, p := range t.partitions {
		k.lead(p, info.leaders[p.id])
	}
	if limbo := t.limbo; limbo != nil && fresh {
		t.limbo, t.sure = nil, true
		k.replay(t, limbo)
		t.sure = false
	}
}

// fence reports whether the topic's partition count is the recorded one, and ends the run otherwise.
// What has been accepted before is still delivered, unless its partition is gone.
func (k *Kafka) fence(t *topic, info *topicInfo) bool {
	count := int32(len(info.leaders))
	recorded, known := k.run.Partitions[t.name]
	switch {
	case !known:
		k.run.Partitions[t.name] = count
		k.run.Mailbox.PutPartitions(checkpoint.Partitions{Topic: t.name, Count: count})
		return true
	case recorded == count:
		return true
	}
	changed := &checkpoint.PartitionsChangedError{
		Partitions: checkpoint.Partitions{Topic: t.name, Count: count}, Recorded: recorded,
	}
	if int(count) < len(t.partitions) {
		k.fail(changed)
		return false
	}
	for _, p := range t.partitions {
		k.lead(p, info.leaders[p.id])
	}
	k.end(changed)
	return false
}

// replay places the records of a batch again, up to one that is stuck, and frees it. Their Flush may
// be long past, and so may the moment when an event of their key was dead-lettered.
func (k *Kafka) replay(t *topic, b *batch) {
	for i := range b.entries {
		e := b.entries[i]
		c := b.content(&e)
		if k.followsDeadKey(t.name, e, c) {
			k.deadLetter(t.name, e, c, reasonFollows)
		} else if k.place(t, e, c) {
			break
		}
	}
	k.release(b)
	k.flush()
	if k.tx != nil {
		k.tx.knock()
	}
}

// lead gives a partition to the sender of its leader.
func (k *Kafka) lead(p *partition, broker int32) {
	s := k.senders[broker] // nil for -1
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
		k.freeBytes -= b.memory()
		return b
	}
	return &batch{firstSequence: -1}
}

// release keeps a batch's memory for reuse, unless enough is kept already: a partition with little to
// do may get a large one.
func (k *Kafka) release(b *batch) {
	const most = 1 << 20 // bytes
	if k.freeBytes+b.memory() <= most {
		b.reset()
		k.free = append(k.free, b)
		k.freeBytes += b.memory()
	}
}
