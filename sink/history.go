package sink

import (
	"context"
	"slices"

	"github.com/IBM/sarama"
)

// history is what the partition of states holds for the stream. It is read without isolation, up to
// the high watermark: an open transaction of another stream would otherwise hide newer states of ours.
// What became of a transaction is in the markers of its producer, which follow its records:
// https://kafka.apache.org/documentation/#controlbatch.
type history struct {
	committed *version
	pending   map[int64]*version // by producer, in transactions that have no marker yet
}

// version is one record of the stream.
type version struct {
	offset int64
	text   []byte // nil: the record deletes the state
}

// add takes the batches of one fetch, in order.
func (h *history) add(stream string, block *sarama.FetchResponseBlock) {
	for _, b := range batches(block) {
		if b.Control {
			if commits(b) {
				h.commit(h.pending[b.ProducerID])
			}
			delete(h.pending, b.ProducerID)
			continue
		}
		for _, r := range b.Records {
			if string(r.Key) != stream {
				continue
			}
			v := &version{offset: b.FirstOffset + r.OffsetDelta, text: r.Value}
			if b.IsTransactional {
				h.pending[b.ProducerID] = v
			} else {
				h.commit(v)
			}
		}
	}
}

// close takes what lies before the last stable offset for committed, should its marker have been
// compacted away: records of an aborted transaction go before its marker does.
func (h *history) close(stable int64) {
	for producer, v := range h.pending {
		if v.offset < stable {
			h.commit(v)
			delete(h.pending, producer)
		}
	}
}

func (h *history) commit(v *version) {
	if v != nil && (h.committed == nil || v.offset > h.committed.offset) {
		h.committed = v
	}
}

// undecided is the latest record that is neither committed nor aborted, if it is newer than what is.
func (h *history) undecided() (latest *version) {
	latest = h.committed
	for _, v := range h.pending {
		if latest == nil || v.offset > latest.offset {
			latest = v
		}
	}
	if latest == h.committed {
		return nil
	}
	return latest
}

func (s *states) history(ctx context.Context) (*history, error) {
	if err := s.locate(ctx); err != nil {
		return nil, err
	}
	offset, err := s.offset(ctx, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	// A leader that has just been elected may not know the high watermark yet. Asked for it, it says so
	// (KIP-207); in the answer to a fetch it gives the one it knows.
	end, err := s.offset(ctx, sarama.OffsetNewest)
	if err != nil {
		return nil, err
	}
	h := &history{pending: map[int64]*version{}}
	for offset < end {
		block, err := s.fetch(ctx, offset)
		if err != nil {
			return nil, err
		}
		h.add(s.k.cfg.Stream, block)
		next := offset
		for _, b := range batches(block) {
			next = max(next, b.LastOffset()+1)
		}
		if next >= end {
			h.close(block.LastStableOffset)
		} else if next == offset && !pause(ctx, s.k.cfg.BackoffMin) { // a quota, perhaps
			return nil, context.Cause(ctx)
		}
		offset = next
	}
	return h, nil
}

// locate finds the partition's leader and leaves a connection to another broker.
func (s *states) locate(ctx context.Context) error {
	name := s.k.cfg.StateTopic
	res, err := s.k.admin.metadata(ctx, []string{name})
	if err != nil {
		return err
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

func (s *states) offset(ctx context.Context, which int64) (offset int64, err error) {
	err = s.do(ctx, func(b *sarama.Broker) (err error) {
		offset, err = fetchOffset(b, s.conf.Version, s.k.cfg.StateTopic, s.partition, which)
		return err
	})
	return offset, err
}

func (s *states) fetch(ctx context.Context, offset int64) (block *sarama.FetchResponseBlock, err error) {
	err = s.do(ctx, func(b *sarama.Broker) (err error) {
		block, err = fetchRecords(b, s.k.cfg.StateTopic, s.partition, offset, fetchBytes)
		return err
	})
	return block, err
}
