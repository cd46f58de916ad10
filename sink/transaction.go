package sink

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/walrelay/walrelay/checkpoint"
)

// transactor delivers exactly once. It cuts what Publish has gathered into Kafka transactions, one
// after the other, each with the state that it reaches:
//
//	gathered (memory only) ──► sealed ──► partitions added ──► produced and acknowledged ──► committed
//
// While one is on its way the next is gathered, so an open transaction never waits for PostgreSQL.
// Events are settled when their transaction is committed. Whatever leaves the outcome of one in
// doubt ends the run: the next begins by fencing this producer and reading the state.
type transactor struct {
	k           *Kafka
	coordinator *coordinator
	states      *states
	wake        chan struct{}

	// Guarded by Kafka.mu.
	open    bool          // batches of the transaction may leave
	unacked int           // of its batches
	done    []settled     // its acknowledged batches
	idle    chan struct{} // closed when no transaction is on its way; nil while none is
}

func newTransactor(k *Kafka) *transactor {
	return &transactor{k: k, coordinator: newCoordinator(k), states: newStates(k), wake: make(chan struct{}, 1)}
}

func (t *transactor) knock() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *transactor) loop(ctx context.Context) error {
	timer := time.NewTimer(idleFor)
	defer timer.Stop()
	for {
		tx, at := t.next()
		if tx != nil {
			t.deliver(ctx, tx)
			continue
		}
		wait := idleFor
		if !at.IsZero() {
			wait = time.Until(at)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-t.wake:
		case <-timer.C:
		}
	}
}

// transaction is one that is on its way.
type transaction struct {
	run        *run
	producer   producerID
	state      checkpoint.State
	partitions map[string][]int32
}

// next seals a transaction if one is due, and otherwise says when to look again.
func (t *transactor) next() (*transaction, time.Time) {
	k := t.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.run == nil || k.run.failed || k.run.gather == nil {
		return nil, time.Time{}
	}
	for _, topic := range k.topics {
		if topic.limbo != nil {
			return nil, time.Time{} // its partitions are not known yet; replay knocks
		}
	}
	next, due, at := k.run.gather.due(&k.cfg, k.run.stopped)
	if !due {
		return nil, at
	}
	tx := &transaction{run: k.run, producer: k.producer, state: next, partitions: map[string][]int32{}}
	if err := t.seal(tx); err != nil {
		k.fail(err)
		return nil, time.Time{}
	}
	t.idle = make(chan struct{})
	return tx, time.Time{}
}

// deliver brings a sealed transaction to its end, or fails its run.
func (t *transactor) deliver(ctx context.Context, tx *transaction) {
	k := t.k
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(tx.run.ctx, func() { cancel(context.Cause(tx.run.ctx)) })()
	err := t.attempt(ctx, tx)
	k.mu.Lock()
	t.open = false
	done := t.done
	t.done = nil
	switch {
	case k.run != tx.run:
	case err != nil:
		k.fail(err)
	default:
		k.run.gather.full = false // there is room as soon as the session reads of it
	}
	close(t.idle)
	t.idle = nil
	k.mu.Unlock()
	if err == nil {
		k.report(&request{run: tx.run, done: done})
		tx.run.Mailbox.Reach(tx.state.Reached)
	}
	k.mu.Lock()
	for _, d := range done {
		if err != nil {
			d.batch.span.failed(errorAbandoned, "its transaction was not committed: "+err.Error())
		}
		k.release(d.batch)
	}
	if err == nil && k.run == tx.run {
		k.run.gather.commit(&tx.state)
		maps.DeleteFunc(k.suspects, func(pos checkpoint.Position, _ bool) bool {
			return pos.Compare(tx.state.Position) <= 0
		})
	}
	k.mu.Unlock()
}

func (t *transactor) attempt(ctx context.Context, tx *transaction) error {
	k := t.k
	if len(tx.partitions) == 0 { // a replay's, of which every event is poison
		return nil
	}
	if err := t.coordinator.add(ctx, tx.producer, tx.partitions); err != nil {
		return err
	}
	k.mu.Lock()
	t.open = true
	for _, s := range k.senders {
		s.knock()
	}
	k.mu.Unlock()
	for !t.acknowledged(tx) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.wake:
		}
	}
	return t.coordinator.commit(ctx, tx.producer)
}

// acknowledged reports whether the brokers have every batch of the transaction.
func (t *transactor) acknowledged(tx *transaction) bool {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	return t.k.run == tx.run && t.unacked == 0
}

// acked takes an acknowledged batch of the present run, unless its transaction has been given up. Called
// with mu held.
func (t *transactor) acked(d settled) {
	if !t.open {
		d.batch.span.failed(errorAbandoned, "its transaction was given up")
		return
	}
	t.done = append(t.done, d)
	if t.unacked--; t.unacked == 0 {
		t.knock()
	}
}

// quiesce waits until no transaction is on its way. The run has ended, and with it its context.
func (t *transactor) quiesce(ctx context.Context) error {
	t.k.mu.Lock()
	idle := t.idle
	t.k.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin prepares a run: it finds out how far the earlier ones came, and takes their place. What
// contradicts the registry is refused before anybody is fenced: a copy of the database must not harm
// the stream that it was copied from. A predecessor's last transaction may be committed without its
// markers being written yet, so that also counts which state is open then. The state is read again
// after that: by then whatever the predecessor began has ended, with its markers.
func (t *transactor) begin(
	ctx context.Context, r *checkpoint.Run,
) (id producerID, found *checkpoint.State, info *topicInfo, err error) {
	c := &t.k.cfg
	if c.Replay != "" {
		id, err = t.coordinator.init(ctx)
		return id, nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.TransactionTimeout+c.Timeout, errStateUnread)
	defer cancel()
	recorded := r.Partitions[c.StateTopic]
	if info, err = t.states.find(ctx, recorded); err != nil {
		return id, nil, nil, err
	}
	found, open, err := t.states.read(ctx)
	if err != nil {
		return id, nil, nil, err
	}
	if err = r.Line.Check(found); err != nil && open != nil {
		err = r.Line.Check(open)
	}
	if err != nil {
		return id, nil, nil, err
	}
	if id, err = t.coordinator.init(ctx); err != nil {
		return id, nil, nil, err
	}
	if found, _, err = t.states.read(ctx); err != nil {
		return id, nil, nil, err
	}
	if err = r.Line.Check(found); err != nil {
		return id, nil, nil, err
	}
	if r.Line.Origin == 0 {
		found = r.Line.Begin()
	}
	if recorded == 0 {
		r.Mailbox.PutPartitions(checkpoint.Partitions{Topic: c.StateTopic, Count: int32(len(info.leaders))})
	}
	return id, found, info, nil
}

var errStateUnread = errors.New("the state could not be read in time")

// first waits for a run's first transaction, which writes the state alone: it shows that
// transactions work, and begins a new line.
func (t *transactor) first(ctx context.Context, r *run) error {
	t.knock()
	select {
	case <-r.gather.begun:
		return nil
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
