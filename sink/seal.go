package sink

import (
	"fmt"
	"slices"

	"github.com/walrelay/walrelay/checkpoint"
)

// seal moves what the transaction holds to the partitions' queues. Called with mu held.
func (t *transactor) seal(tx *transaction) error {
	k := t.k
	t.unacked = 0
	for name, topic := range k.topics {
		for _, p := range topic.partitions {
			if n := k.seal(p, tx.state.Position); n > 0 {
				t.unacked += n
				tx.partitions[name] = append(tx.partitions[name], p.id)
			}
		}
	}
	k.run.gather.sealed(&tx.state)
	if k.cfg.Replay != "" {
		return nil
	}
	return t.sealState(tx)
}

// sealState makes the state that the transaction reaches a part of it. Called with mu held.
func (t *transactor) sealState(tx *transaction) error {
	k := t.k
	document, err := tx.state.Marshal()
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	states := k.topics[k.cfg.StateTopic]
	if states == nil || int(t.states.partition) >= len(states.partitions) {
		return fmt.Errorf("topic of states %s is gone", k.cfg.StateTopic)
	}
	p := states.partitions[t.states.partition]
	b := k.newBatch()
	b.state = true
	c := content{key: []byte(k.cfg.Stream), value: document}
	b.add(entry{stamp: now().UnixMilli(), size: int32(bareSize(c))}, c)
	p.queue = append(p.queue, b)
	t.unacked++
	tx.partitions[k.cfg.StateTopic] = append(tx.partitions[k.cfg.StateTopic], p.id)
	return nil
}

// seal queues what was gathered for a partition up to a position, and returns in how many batches.
func (k *Kafka) seal(p *partition, last checkpoint.Position) (sealed int) {
	if !p.gathers {
		return 0
	}
	p.close()
	gathered := p.gathered
	p.gathered = nil
	for _, b := range gathered {
		within, rest := k.divide(b, last, !p.topic.dead)
		if within != nil {
			p.queue = append(p.queue, within)
			sealed++
		}
		if rest != nil {
			p.gathered = append(p.gathered, rest)
		}
	}
	// What goes on being filled is the last one, unless it has to stay alone.
	if n := len(p.gathered); n > 0 && !k.suspects[p.gathered[n-1].entries[0].pos] {
		p.open, p.gathered = p.gathered[n-1], p.gathered[:n-1]
	}
	return sealed
}

// divide parts a batch at a position; nil stands for no record. The dead letters of several topics are
// not always in order.
func (k *Kafka) divide(b *batch, last checkpoint.Position, ordered bool) (within, rest *batch) {
	beyond := func(e entry) bool { return e.pos.Compare(last) > 0 }
	n := len(b.entries)
	for n > 0 && beyond(b.entries[n-1]) {
		n--
	}
	if !ordered && slices.ContainsFunc(b.entries[:n], beyond) {
		slices.SortStableFunc(b.entries, func(d, e entry) int { return d.pos.Compare(e.pos) })
		within = k.newBatch()
		for i := range b.entries {
			e := b.entries[i]
			within.add(e, b.content(&e))
		}
		k.release(b)
		return k.divide(within, last, true)
	}
	switch n {
	case len(b.entries):
		return b, nil
	case 0:
		return nil, b
	}
	rest = k.newBatch()
	for i := n; i < len(b.entries); i++ {
		e := b.entries[i]
		rest.add(e, b.content(&e))
	}
	b.truncate(n)
	return b, rest
}
