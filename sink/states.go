package sink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

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

// statePartitions is how many partitions the topic is created with: a transaction that somebody
// left open delays the start of the streams of one of them.
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
		err = k.admin.create(ctx, name, k.newTopic(name), k.cfg.replicaWait())
		if attempt == 1 && err == nil {
			k.log.Info("topic created", zap.String("topic", name))
		}
		if err != nil && !errors.Is(err, sarama.ErrNotController) {
			return nil, fmt.Errorf("create the topic of states %s: %w", name, err)
		}
		if !pause(ctx, k.backoff(attempt)) {
			return nil, context.Cause(ctx)
		}
		info, err = k.lookout.require(ctx, name)
	}
	if err != nil {
		return nil, fmt.Errorf("topic of states %s: %w", name, err)
	}
	if info.cleanup != "" && info.cleanup != "compact" {
		return nil, &checkpoint.StateError{
			Problem: fmt.Sprintf("the topic of states %s has cleanup.policy=%s and would lose the stream's state", name, info.cleanup),
			Remedy:  "set its cleanup.policy to compact, and nothing else",
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

// fetchBytes limits one fetch.
const fetchBytes = 4 << 20

// read returns the stream's latest committed state; nil when there is none. To the end means: up to
// where the partition ends now, so it waits for transactions that are open, since one of them may
// hold a newer state.
func (s *states) read(ctx context.Context, toTheEnd bool) (*checkpoint.State, error) {
	text, err := s.latest(ctx, toTheEnd)
	if err != nil {
		return nil, fmt.Errorf("read %s-%d: %w", s.k.cfg.StateTopic, s.partition, err)
	}
	if text == nil {
		return nil, nil //nolint:nilnil // no state is an answer
	}
	state, err := checkpoint.ParseState(text)
	if errors.Is(err, checkpoint.ErrStateVersion) {
		return nil, &checkpoint.StateError{Problem: err.Error(), Remedy: "start that version, or a newer one"}
	}
	return state, err
}

func (s *states) latest(ctx context.Context, toTheEnd bool) ([]byte, error) {
	if err := s.locate(ctx); err != nil {
		return nil, err
	}
	offset, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	var text []byte
	for end := int64(-1); ; {
		block, err := s.fetch(ctx, offset)
		if err != nil {
			return nil, err
		}
		if end < 0 {
			if end = block.HighWaterMarkOffset; !toTheEnd {
				end = block.LastStableOffset
			}
		}
		for _, r := range committedRecords(block) {
			if string(r.Key) == s.k.cfg.Stream {
				text = r.Value
			}
		}
		next := max(offset, lastOffset(block)+1)
		if next >= end {
			return text, nil
		}
		if next == offset && !pause(ctx, s.k.cfg.BackoffMin) { // an open transaction is in the way
			return nil, fmt.Errorf("a transaction of another producer is open in it: %w", context.Cause(ctx))
		}
		offset = next
	}
}

// locate finds the partition's leader and leaves a connection to another broker.
func (s *states) locate(ctx context.Context) error {
	name := s.k.cfg.StateTopic
	res, err := s.k.admin.metadata(ctx, []string{name})
	if err != nil {
		return fmt.Errorf("fetch metadata: %w", err)
	}
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			i := slices.IndexFunc(res.Brokers, func(b *sarama.Broker) bool { return b.ID() == p.Leader })
			if t.Name != name || p.ID != s.partition || i < 0 {
				continue
			}
			if addr := res.Brokers[i].Addr(); addr != s.leader {
				s.turn <- struct{}{}
				s.disconnect()
				s.leader = addr
				<-s.turn
			}
			return nil
		}
	}
	return sarama.ErrLeaderNotAvailable
}

func (s *states) start(ctx context.Context) (offset int64, err error) {
	err = s.do(ctx, func(b *sarama.Broker) error {
		req := sarama.NewOffsetRequest(s.conf.Version)
		req.AddBlock(s.k.cfg.StateTopic, s.partition, sarama.OffsetOldest, 1)
		res, err := b.GetAvailableOffsets(req)
		if err != nil {
			return err
		}
		block := res.GetBlock(s.k.cfg.StateTopic, s.partition)
		if block == nil {
			return sarama.ErrIncompleteResponse
		}
		offset = block.Offset
		return answered(block.Err)
	})
	return offset, err
}

func (s *states) fetch(ctx context.Context, offset int64) (block *sarama.FetchResponseBlock, err error) {
	err = s.do(ctx, func(b *sarama.Broker) error {
		req := &sarama.FetchRequest{Version: 11, MaxBytes: fetchBytes, Isolation: sarama.ReadCommitted, SessionEpoch: -1}
		req.AddBlock(s.k.cfg.StateTopic, s.partition, offset, fetchBytes, -1)
		res, err := b.Fetch(req)
		if err != nil {
			return err
		}
		if block = res.GetBlock(s.k.cfg.StateTopic, s.partition); block == nil {
			return sarama.ErrIncompleteResponse
		}
		return answered(block.Err)
	})
	return block, err
}

func batches(block *sarama.FetchResponseBlock) (all []*sarama.RecordBatch) {
	for _, set := range block.RecordsSet {
		if b := set.RecordBatch; b != nil && !b.PartialTrailingRecord {
			all = append(all, b)
		}
	}
	return all
}

func lastOffset(block *sarama.FetchResponseBlock) int64 {
	last := int64(-1)
	for _, b := range batches(block) {
		last = max(last, b.LastOffset())
	}
	return last
}

// committedRecords leaves out what was aborted. The broker lists the aborted transactions that the
// fetched range touches; each lasts from its first offset to its producer's next marker. Format of
// markers: https://kafka.apache.org/documentation/#controlbatch.
func committedRecords(block *sarama.FetchResponseBlock) (records []*sarama.Record) {
	aborted := slices.Clone(block.AbortedTransactions)
	slices.SortFunc(aborted, func(a, b *sarama.AbortedTransaction) int { return int(a.FirstOffset - b.FirstOffset) })
	open := map[int64]bool{} // producers whose present transaction is an aborted one
	for _, b := range batches(block) {
		for len(aborted) > 0 && aborted[0].FirstOffset <= b.LastOffset() {
			open[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		switch {
		case b.Control:
			if len(b.Records) == 1 && len(b.Records[0].Key) >= 4 && binary.BigEndian.Uint16(b.Records[0].Key[2:]) == 0 {
				delete(open, b.ProducerID) // the marker of an abort
			}
		case b.IsTransactional && open[b.ProducerID]:
		default:
			records = append(records, b.Records...)
		}
	}
	return records
}
