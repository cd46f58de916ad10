package sink

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/checkpoint"
)

// states is the topic of states: one record for each stream, by its name, in a partition that never
// changes. It is compacted, so the latest record of a stream stays.
type states struct {
	*link // to the leader of the partition
	k     *Kafka

	partition int32
	leader    string // address
}

func newStates(k *Kafka) *states {
	s := &states{k: k}
	s.link = newLink(func(context.Context) ([]string, error) { return []string{s.leader}, nil })
	return s
}

// statePartitions is how many partitions the topic is created with: a transaction that somebody left
// open keeps one of them from being compacted, so that its streams take longer to start.
const statePartitions = 16

// newTopic is how a missing topic is created.
func (k *Kafka) newTopic(name string) *sarama.TopicDetail {
	detail := &sarama.TopicDetail{NumPartitions: k.cfg.Partitions, ReplicationFactor: k.cfg.Replication}
	if name != k.cfg.StateTopic {
		return detail
	}
	text := func(s string) *string { return &s }
	detail.NumPartitions = statePartitions
	detail.ConfigEntries = map[string]*string{
		"cleanup.policy": text("compact"),
		// What was not compacted yet is read at every start.
		"segment.bytes":             text("16777216"),
		"min.cleanable.dirty.ratio": text("0.1"),
	}
	return detail
}

// find looks the topic up, creating it when it is missing, and returns what the cluster says of it.
// recorded is the partition count under which the stream's partition was chosen; 0: none yet.
func (s *states) find(ctx context.Context, recorded int32) (*topicInfo, error) {
	k := s.k
	name := k.cfg.StateTopic
	info, err := k.lookout.require(ctx, name)
	for attempt := 1; absent(err); attempt++ {
		created := errors.Is(err, errCreated) // and logged, since missing topics are created anyway
		err = k.admin.create(ctx, name, k.newTopic(name), k.cfg.replicaWait())
		if attempt == 1 && err == nil && !created {
			k.log.Info("topic created", zap.String("topic", name))
		}
		if err != nil && !errors.Is(err, sarama.ErrNotController) {
			return nil, fmt.Errorf("create the topic of states %s: %w", name, lacking(err, "CREATE on it or on the cluster"))
		}
		if !pause(ctx, k.backoff(attempt)) {
			return nil, context.Cause(ctx)
		}
		info, err = k.lookout.require(ctx, name)
	}
	if err != nil {
		return nil, fmt.Errorf("topic of states %s: %w", name, lacking(err, "READ on it as well"))
	}
	if info.cleanup != "" && info.cleanup != "compact" {
		return nil, &checkpoint.StateError{
			Problem: fmt.Sprintf("the topic of states %s has cleanup.policy=%s and would lose the stream's state", name,
				info.cleanup),
			Remedy: "set its cleanup.policy to compact, and nothing else",
		}
	}
	count := int32(len(info.leaders))
	if recorded > count {
		return nil, &checkpoint.StateError{
			Problem: fmt.Sprintf("the topic of states %s has %d partitions, of %d: it was created again", name, count, recorded),
			Remedy: "stop every instance and run `walrelay stream new-epoch`: the stream then goes on from its slot and may " +
				"repeat events",
		}
	}
	if recorded == 0 {
		recorded = count
	}
	s.partition = partitionOf([]byte(k.cfg.Stream), recorded)
	return info, nil
}

// absent says that the topic is missing, or so new that not every broker knows it.
func absent(err error) bool {
	return errors.Is(err, sarama.ErrUnknownTopicOrPartition) || errors.Is(err, errCreated) ||
		errors.Is(err, sarama.ErrLeaderNotAvailable)
}

// lacking names the right that an answer says is missing.
func lacking(err error, right string) error {
	if errors.Is(err, sarama.ErrTopicAuthorizationFailed) || errors.Is(err, sarama.ErrClusterAuthorizationFailed) {
		return fmt.Errorf("%w (the principal needs %s)", err, right)
	}
	return err
}

// read returns the stream's latest committed state, and the one in a transaction that is not known to
// have ended; nil when there is none.
func (s *states) read(ctx context.Context) (found, open *checkpoint.State, err error) {
	var h *history
	if h, err = s.history(ctx); err == nil {
		if found, err = parseState(h.committed); err == nil {
			open, err = parseState(h.undecided())
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read %s-%d: %w", s.k.cfg.StateTopic, s.partition, lacking(err, "READ on the topic"))
	}
	return found, open, nil
}

func parseState(v *version) (*checkpoint.State, error) {
	if v == nil || v.text == nil {
		return nil, nil //nolint:nilnil // no state is an answer
	}
	state, err := checkpoint.ParseState(v.text)
	if errors.Is(err, checkpoint.ErrStateVersion) {
		return nil, &checkpoint.StateError{Problem: err.Error(), Remedy: "start that version, or a newer one"}
	}
	return state, err
}
