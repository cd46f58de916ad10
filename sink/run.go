package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/walrelay/walrelay/checkpoint"
)

// refused says why a broker refused an event, and the dead letter that was made of it.
type refused struct {
	event, letter string
	stamp         bool // for its timestamp, so that the dead letter has the commit time
}

// run is the state of one START_REPLICATION.
type run struct {
	checkpoint.Run
	ctx    context.Context //nolint:containedctx // ends with the run
	cancel context.CancelCauseFunc
	gather *gather // nil in at-least-once delivery
	// dead holds the keys whose later events follow a dead-lettered one, and where that was; zero:
	// before the run.
	dead map[checkpoint.DeadKey]checkpoint.Position
	// stopped: nothing more is accepted, since what follows must not overtake a stuck event or goes
	// to other partitions.
	stopped bool
	failed  bool
	// ending is why the run ends once what it accepted is settled.
	ending    error
	reporting int  // answers taken in and not yet reported to the mailbox
	pruned    bool // condemned holds nothing of before the run
}

// Begin implements cdc.Sink. It waits for the answers to whatever the earlier run has under way
// (connections are closed, so they come soon), then takes a producer epoch that the brokers prefer.
func (k *Kafka) Begin(ctx context.Context, r checkpoint.Run) error {
	select {
	case <-k.ready:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(k.ctx, func() { cancel(context.Cause(k.ctx)) })()
	if err := k.endRun(ctx); err != nil {
		return err
	}
	var id producerID
	var found *checkpoint.State
	var states *topicInfo
	var err error
	if k.tx != nil {
		id, found, states, err = k.tx.begin(ctx, &r)
	} else {
		id, err = k.nextProducer(ctx)
	}
	if err != nil {
		return err
	}
	var dead *topicInfo
	if k.needsDeadTopic(r) {
		if k.cfg.DeadTopic == "" {
			return errors.New("a verdict or an earlier dead letter asks for the dead-letter topic, and none is configured")
		}
		if dead, err = k.lookout.require(ctx, k.cfg.DeadTopic); err != nil {
			return fmt.Errorf("dead-letter topic %s: %w", k.cfg.DeadTopic, err)
		}
	}

	began := k.start(r, id, found, map[string]*topicInfo{k.cfg.DeadTopic: dead, k.cfg.StateTopic: states})
	if k.tx == nil {
		return nil
	}
	return k.tx.first(ctx, began)
}

// End implements cdc.Sink.
func (k *Kafka) End(ctx context.Context) error {
	select {
	case <-k.ready:
		return k.endRun(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start makes r the present run, with the topics that it begins with.
func (k *Kafka) start(
	r checkpoint.Run, id producerID, found *checkpoint.State, topics map[string]*topicInfo,
) *run {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.producer, k.used = id, false
	k.run = &run{Run: r}
	k.run.ctx, k.run.cancel = context.WithCancelCause(k.ctx)
	switch {
	case k.tx == nil:
	case k.cfg.Replay != "":
		k.run.gather = newReplayGather()
	default:
		k.run.gather = newGather(r.Line, found)
	}
	k.run.Verdicts = maps.Clone(r.Verdicts)
	k.run.Partitions = maps.Clone(r.Partitions)
	if k.run.Partitions == nil {
		k.run.Partitions = map[string]int32{}
	}
	k.run.dead = make(map[checkpoint.DeadKey]checkpoint.Position, len(r.DeadKeys))
	for key := range r.DeadKeys {
		k.run.dead[key] = checkpoint.Position{}
	}
	for pos, v := range r.Verdicts {
		if v == checkpoint.VerdictRetry {
			delete(k.condemned, pos)
		}
	}
	for name, info := range topics {
		if info != nil {
			k.adopt(k.topic([]byte(name)), info)
		}
	}
	return k.run
}

// endRun forgets the present run and waits until no request of it is unanswered.
func (k *Kafka) endRun(ctx context.Context) error {
	k.mu.Lock()
	if k.run != nil {
		k.run.cancel(errRunEnded)
	}
	k.run = nil
	k.abandoned()
	k.topics = map[string]*topic{}
	clear(k.trouble.present)
	for _, s := range k.senders {
		s.partitions = nil
		if s.inFlight > 0 {
			s.broken = true
		}
		s.knock()
	}
	var quiet chan struct{}
	if k.inFlight > 0 {
		quiet = make(chan struct{})
		k.quiet = quiet
	}
	k.mu.Unlock()
	if quiet != nil {
		select {
		case <-quiet:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if k.tx != nil {
		return k.tx.quiesce(ctx)
	}
	return nil
}

var errRunEnded = errors.New("the run has ended")

// nextProducer raises the epoch of the producer id that we have, or fetches a new id. A run that
// sent nothing used nothing.
func (k *Kafka) nextProducer(ctx context.Context) (producerID, error) {
	k.mu.Lock()
	id, used := k.producer, k.used
	k.mu.Unlock()
	switch {
	case id.id >= 0 && !used:
		return id, nil
	case id.id >= 0 && id.epoch < math.MaxInt16-1:
		return producerID{id: id.id, epoch: id.epoch + 1}, nil
	}
	id, err := k.admin.initProducerID(ctx)
	if err != nil {
		return producerID{id: -1}, fmt.Errorf("acquire a producer id: %w", err)
	}
	return id, nil
}

func (k *Kafka) needsDeadTopic(r checkpoint.Run) bool {
	for _, v := range r.Verdicts {
		if v == checkpoint.VerdictDeadLetter {
			return true
		}
	}
	return k.cfg.OnPoison == DeadLetter || len(r.DeadKeys) > 0
}

// stop ends what the run accepts. What it has accepted is still delivered. Called with mu held.
func (k *Kafka) stop() {
	k.run.stopped = true
	k.flush()
	if k.tx != nil {
		k.tx.knock()
	}
}

// end ends the run for a reason that needs everything accepted before it to be settled first. What no
// transaction holds yet counts as never accepted. Called with mu held.
func (k *Kafka) end(err error) {
	if k.tx != nil {
		k.fail(err)
		return
	}
	if k.run.ending == nil {
		k.run.ending = err
	}
	k.stop()
	k.failDrained()
}

// failDrained ends a run that is ending and has nothing left. Called with mu held.
func (k *Kafka) failDrained() {
	if k.run == nil || k.run.ending == nil || k.run.reporting > 0 {
		return
	}
	for _, t := range k.topics {
		if slices.ContainsFunc(t.partitions, (*partition).busy) {
			return
		}
	}
	k.fail(k.run.ending)
}

// fail ends the run. Called with mu held.
func (k *Kafka) fail(err error) {
	if k.run == nil || k.run.failed {
		return
	}
	k.run.failed = true
	k.run.cancel(err)
	k.run.Mailbox.Fail(err)
}
