package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/zap"
)

// lookout watches the cluster: partition counts, leaders and limits of the topics in use. It is one
// goroutine, woken by new topics and by anything that suggests that a leader has moved.
type lookout struct {
	k    *Kafka
	wake chan struct{}

	// Topics of which the log knows that they are weak, or that their configuration is not readable.
	// Guarded by Kafka.mu.
	weak, blind map[string]bool
}

func newLookout(k *Kafka) *lookout {
	return &lookout{k: k, wake: make(chan struct{}, 1), weak: map[string]bool{}, blind: map[string]bool{}}
}

// refresh says that there is a new topic or that a leader may have moved. It does not block.
func (l *lookout) refresh() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *lookout) loop(ctx context.Context) error {
	timer := time.NewTimer(l.k.cfg.MetadataEvery)
	defer timer.Stop()
	attempt := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		case <-timer.C:
		}
		settled, err := l.look(ctx)
		if err == nil && settled {
			attempt = 0
			timer.Reset(l.k.cfg.MetadataEvery)
			continue
		}
		if err != nil && ctx.Err() == nil {
			l.k.mu.Lock()
			l.k.trouble.report("brokers", err, now())
			l.k.mu.Unlock()
		}
		attempt++
		timer.Reset(l.k.backoff(attempt))
		// A new topic need not wait as long as those that stay missing, but a storm of them has to.
		if !pause(ctx, l.k.cfg.BackoffMin) {
			return nil
		}
	}
}

// pause waits and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// look fetches the state of all topics in use, once. It reports whether nothing is missing.
func (l *lookout) look(ctx context.Context) (bool, error) {
	k := l.k
	k.mu.Lock()
	r := k.run
	var names, fresh []string
	for name, t := range k.topics {
		names = append(names, name)
		if t.limit == 0 || t.doubted || t.limbo != nil {
			fresh = append(fresh, name)
			t.doubted = false
		}
	}
	k.mu.Unlock()
	if len(names) == 0 {
		return true, nil
	}
	found, err := l.describe(ctx, names, fresh)
	if err != nil {
		return false, err
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	k.trouble.clear("brokers", now())
	if k.run != r || r == nil {
		return true, nil
	}
	settled := true
	for name, f := range found {
		t := k.topics[name]
		if t == nil {
			continue
		}
		if !l.apply(t, f) {
			settled = false
		}
	}
	return settled, nil
}

// errCreated is the finding about a topic that was created just now.
var errCreated = errors.New("the topic has just been created")

// finding is the cluster's answer about one topic.
type finding struct {
	info *topicInfo // nil when there is none
	err  error
}

// apply takes a finding over and reports whether the topic can be produced to.
func (l *lookout) apply(t *topic, f finding) bool {
	k := l.k
	if errors.Is(f.err, errCreated) {
		return false
	}
	if f.err != nil {
		k.hold(t, &t.absent, f.err)
		if errors.Is(f.err, sarama.ErrUnknownTopicOrPartition) {
			k.vanish(t)
		}
		return false
	}
	k.adopt(t, f.info)
	for id, leader := range f.info.leaders {
		if leader < 0 || k.senders[leader] == nil {
			k.hold(t, &t.absent, fmt.Errorf("partition %d: %w", id, sarama.ErrLeaderNotAvailable))
			return false
		}
	}
	k.unhold(t, &t.absent)
	return true
}

// require waits neither for a topic nor for its leaders: it must be there, or be created.
func (l *lookout) require(ctx context.Context, topic string) (*topicInfo, error) {
	found, err := l.describe(ctx, []string{topic}, []string{topic})
	if err != nil {
		return nil, err
	}
	f := found[topic]
	return f.info, f.err
}

// describe asks for the metadata of names and the configuration of fresh, creates what is missing
// when that is wanted, and starts senders for brokers met for the first time.
func (l *lookout) describe(ctx context.Context, names, fresh []string) (map[string]finding, error) {
	k := l.k
	res, err := k.admin.metadata(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("fetch metadata: %w", err)
	}
	configs := map[string]topicConfig{}
	if len(fresh) > 0 {
		if configs, err = k.admin.configs(ctx, fresh); err != nil {
			return nil, fmt.Errorf("describe topics: %w", err)
		}
	}
	k.mu.Lock()
	for _, b := range res.Brokers {
		k.sender(b.ID(), b.Addr())
	}
	for _, s := range k.senders {
		if !s.needed() { // what it suffers from holds nothing up, like that of a broker which is gone
			k.trouble.forget(s.object())
		}
	}
	k.mu.Unlock()

	found := make(map[string]finding, len(names))
	for _, m := range res.Topics {
		found[m.Name] = l.finding(ctx, m, configs)
	}
	for _, name := range names {
		if _, ok := found[name]; !ok {
			found[name] = finding{err: fmt.Errorf("the cluster does not answer: %w", sarama.ErrUnknownTopicOrPartition)}
		}
	}
	return found, nil
}

func (l *lookout) finding(ctx context.Context, m *sarama.TopicMetadata, configs map[string]topicConfig) finding {
	k := l.k
	switch m.Err {
	case sarama.ErrNoError:
	case sarama.ErrUnknownTopicOrPartition:
		switch {
		case k.cfg.CreateTopics:
		case k.tx != nil && m.Name == k.cfg.StateTopic:
			return finding{err: fmt.Errorf("%w: it was deleted, and with it the stream's state; restart walrelay, which then "+
				"says what to do", m.Err)}
		default:
			return finding{err: fmt.Errorf("%w: create it, or set WALRELAY_CREATE_TOPICS", m.Err)}
		}
		err := k.admin.create(ctx, m.Name, k.newTopic(m.Name), k.cfg.replicaWait())
		if err != nil {
			return finding{err: fmt.Errorf("create the topic: %w", err)}
		}
		k.log.Info("topic created", zap.String("topic", m.Name))
		return finding{err: errCreated}
	case sarama.ErrTopicAuthorizationFailed:
		return finding{err: fmt.Errorf("%w: the principal needs DESCRIBE and WRITE on it", m.Err)}
	default:
		return finding{err: m.Err}
	}
	if len(m.Partitions) == 0 {
		return finding{err: sarama.ErrLeaderNotAvailable}
	}
	info := &topicInfo{leaders: make([]int32, len(m.Partitions))}
	replicas := len(m.Partitions[0].Replicas)
	for i := range info.leaders {
		info.leaders[i] = -1
	}
	for _, p := range m.Partitions {
		if p.ID < 0 || int(p.ID) >= len(info.leaders) {
			return finding{err: fmt.Errorf("partition %d of %d: %w", p.ID, len(m.Partitions), sarama.ErrLeaderNotAvailable)}
		}
		info.leaders[p.ID] = p.Leader
		replicas = min(replicas, len(p.Replicas))
	}
	c, fresh := configs[m.Name]
	switch {
	case !fresh:
	case c.err == sarama.ErrNoError && c.maxMessageBytes > 0:
		info.limit, info.cleanup = c.maxMessageBytes, c.cleanup
		l.nameWeakness(m.Name, replicas, c)
	case c.err == sarama.ErrNoError, c.err == sarama.ErrTopicAuthorizationFailed,
		c.err == sarama.ErrClusterAuthorizationFailed:
		info.limit = defaultMaxMessageBytes
		l.nameBlindness(m.Name)
	default:
		return finding{err: fmt.Errorf("describe the topic: %w", c.err)}
	}
	return finding{info: info}
}

// nameBlindness says once that a topic's limit is guessed.
func (l *lookout) nameBlindness(name string) {
	l.k.mu.Lock()
	named := l.blind[name]
	l.blind[name] = true
	l.k.mu.Unlock()
	if !named {
		l.k.log.Warn("the topic's configuration may not be read, assuming the brokers' default for max.message.bytes; "+
			"grant DESCRIBE_CONFIGS on it", zap.String("topic", name), zap.Int("max_message_bytes", defaultMaxMessageBytes))
	}
}

// nameWeakness says once that a topic may lose what it has acknowledged, and why.
func (l *lookout) nameWeakness(name string, replicas int, c topicConfig) {
	l.k.mu.Lock()
	named := l.weak[name]
	l.weak[name] = true
	l.k.mu.Unlock()
	if named || replicas >= 3 && c.minInSync >= 2 && !c.unclean {
		return
	}
	l.k.log.Warn("topic may lose acknowledged events; want replication 3, min.insync.replicas 2, no unclean election",
		zap.String("topic", name), zap.Int("replication", replicas), zap.Int("min_insync_replicas", c.minInSync),
		zap.Bool("unclean_election", c.unclean))
}
