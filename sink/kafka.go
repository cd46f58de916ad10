package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"
	"golang.org/x/net/proxy"
	"golang.org/x/sync/errgroup"

	"github.com/walrelay/walrelay/checkpoint"
)

// Kafka produces the events of one stream. Run must be running while the other methods are used.
type Kafka struct {
	cfg      Config
	log      *zap.Logger
	constant int // bytes of the headers of constant length
	admin    *admin
	lookout  *lookout

	ready chan struct{} // closed once Run has set up conf and group
	conf  *sarama.Config
	group *errgroup.Group
	ctx   context.Context //nolint:containedctx // Run's own: senders are started by it later on

	mu       sync.Mutex
	run      *run // nil between runs
	producer producerID
	used     bool // the producer's epoch has been used by a run
	topics   map[string]*topic
	senders  map[int32]*sender
	inFlight int           // requests without an answer, of every sender
	quiet    chan struct{} // closed when inFlight falls to 0 while Begin waits
	sent     uint64        // batches sent, to order them
	trouble  *trouble
	tx       *transactor // nil in at-least-once delivery

	free      []*batch
	freeBytes int
	idle      []*request
	name      []byte // scratch of Publish: the topic's name
	headers   []byte // scratch of Publish: the row's headers

	// condemned holds events that a broker refused, so that a new run does not offer them again.
	condemned map[checkpoint.Position]refused
	// suspects holds events of a batch that a broker refused without naming the culprit, in exactly-once
	// delivery: each gets a batch of its own in the next run.
	suspects map[checkpoint.Position]bool
}

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

type producerID struct {
	id    int64
	epoch int16
}

// New returns a sink. It does no I/O.
func New(cfg Config) (*Kafka, error) {
	cfg.setDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	k := &Kafka{
		cfg: cfg, log: cfg.Logger, constant: constantSize(cfg.Stream),
		ready: make(chan struct{}), producer: producerID{id: -1},
		topics: map[string]*topic{}, senders: map[int32]*sender{},
		condemned: map[checkpoint.Position]refused{}, suspects: map[checkpoint.Position]bool{},
	}
	k.trouble = newTrouble(k.log)
	k.admin = newAdmin(cfg.Brokers)
	k.lookout = newLookout(k)
	if cfg.ExactlyOnce {
		k.tx = newTransactor(k)
	}
	return k, nil
}

// Run holds the connections and goroutines of the sink until ctx ends, and returns when all are
// gone. It returns an error only for a configuration that cannot work.
func (k *Kafka) Run(ctx context.Context) error {
	k.group, k.ctx = errgroup.WithContext(ctx)
	dial := &dialer{ctx: k.ctx, timeout: k.cfg.Timeout}
	var err error
	if k.conf, err = k.cfg.sarama(dial); err != nil {
		return err
	}
	links := []*link{k.admin.link}
	if k.tx != nil {
		links = append(links, k.tx.coordinator.link, k.tx.states.link)
	}
	for _, l := range links {
		if err = l.open(&k.cfg, dial); err != nil {
			return err
		}
	}
	k.group.Go(func() error { return k.lookout.loop(k.ctx) })
	if k.tx != nil {
		k.group.Go(func() error { return k.tx.loop(k.ctx) })
	}
	close(k.ready)
	err = k.group.Wait()
	for _, l := range links {
		l.close()
	}
	return err
}

// sarama is the configuration of the connections that dial opens.
func (c *Config) sarama(dial proxy.Dialer) (*sarama.Config, error) {
	conf := sarama.NewConfig()
	conf.ClientID = c.ClientID
	if conf.ClientID == "" {
		conf.ClientID = "walrelay"
	}
	conf.Version = sarama.MaxVersion // clamped to what each broker says it speaks
	conf.Net.MaxOpenRequests = 2 * maxInFlight
	conf.Net.DialTimeout = c.Timeout
	conf.Net.WriteTimeout = c.Timeout
	conf.Net.ReadTimeout = c.Timeout
	conf.Net.Proxy.Enable = true
	conf.Net.Proxy.Dialer = dial
	if c.TLS != nil {
		conf.Net.TLS.Enable, conf.Net.TLS.Config = true, c.TLS
	}
	if c.SASL != nil {
		if err := c.SASL.apply(conf); err != nil {
			return nil, err
		}
	}
	if err := conf.Validate(); err != nil {
		return nil, fmt.Errorf("configure the Kafka client: %w", err)
	}
	return conf, nil
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

// start makes r the present run, with the topics that it begins with.
func (k *Kafka) start(
	r checkpoint.Run, id producerID, found *checkpoint.State, topics map[string]*topicInfo,
) *run {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.producer, k.used = id, false
	k.run = &run{Run: r}
	k.run.ctx, k.run.cancel = context.WithCancelCause(k.ctx)
	if found != nil {
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

// Flush implements cdc.Sink: senders without a request in flight take the open batches. Transactions
// are cut by time and size instead.
func (k *Kafka) Flush() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tx == nil {
		k.flush()
	}
}

// Full implements cdc.Sink. A session that has not read of the last commit's room yet will say it
// again if that was not enough; a transaction of PostgreSQL is not divided for an error.
func (k *Kafka) Full() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.run != nil && k.run.gather != nil && !k.run.Mailbox.Unread() {
		k.run.gather.full = true
		k.tx.knock()
	}
}

// Reached implements cdc.Sink.
func (k *Kafka) Reached(lsn pglogrepl.LSN) {
	if k.tx == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.run == nil || k.run.stopped {
		return
	}
	if k.run.gather.reach(lsn, &k.cfg) {
		k.tx.knock()
	}
}

// Recorded implements cdc.Sink.
func (k *Kafka) Recorded(seqs []uint64) {
	if k.tx == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.run == nil {
		return
	}
	for _, seq := range seqs {
		delete(k.run.gather.unrecorded, seq)
	}
	k.tx.knock()
}

func (k *Kafka) flush() {
	for _, s := range k.senders {
		if s.inFlight == 0 && len(s.partitions) > 0 {
			s.knock()
		}
	}
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

// Troubles lists what keeps topics and brokers from working, by name, oldest first.
func (k *Kafka) Troubles() []Trouble {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trouble.list()
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

// now is the local clock: backoff and idleness have nothing to do with the server's.
func now() time.Time { return time.Now() }
