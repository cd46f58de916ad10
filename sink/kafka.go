package sink

import (
	"context"
	"fmt"
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
	constant int     // bytes of the headers of constant length
	shaper   *shaper // nil: none; guarded by mu
	admin    *admin
	lookout  *lookout
	tracer   *tracer // nil: none

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
		cfg: cfg, log: cfg.Logger, constant: constantSize(cfg.Stream, cfg.Replay), shaper: newShaper(cfg.Shape),
		ready: make(chan struct{}), producer: producerID{id: -1},
		topics: map[string]*topic{}, senders: map[int32]*sender{},
		condemned: map[checkpoint.Position]refused{}, suspects: map[checkpoint.Position]bool{},
	}
	k.tracer = newTracer(&k.cfg)
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
	if k.conf, err = k.cfg.sarama(k.ctx, dial); err != nil {
		return err
	}
	links := []*link{k.admin.link}
	if k.tx != nil {
		links = append(links, k.tx.coordinator.link, k.tx.states.link)
	}
	for _, l := range links {
		l.open(&k.cfg, k.conf, dial)
	}
	k.group.Go(func() error { return k.lookout.loop(k.ctx) })
	if k.tx != nil {
		k.group.Go(func() error { return k.tx.loop(k.ctx) })
	}
	close(k.ready)
	err = k.group.Wait()
	k.mu.Lock()
	k.abandoned()
	k.mu.Unlock()
	for _, l := range links {
		l.close()
	}
	return err
}

// sarama is the configuration of the connections that dial opens, see Config.open.
func (c *Config) sarama(ctx context.Context, dial proxy.Dialer) (*sarama.Config, error) {
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
		conf.Net.TLS.Enable = true
	}
	if c.SASL != nil {
		if err := c.SASL.apply(ctx, c, conf); err != nil {
			return nil, err
		}
	}
	if err := conf.Validate(); err != nil {
		return nil, fmt.Errorf("configure the Kafka client: %w", err)
	}
	return conf, nil
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

// Troubles lists what keeps topics and brokers from working, by name, oldest first.
func (k *Kafka) Troubles() []Trouble {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trouble.list()
}

// now is the local clock: backoff and idleness have nothing to do with the server's.
func now() time.Time { return time.Now() }
