package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// Letters reads the dead letters of one stream from their topic. Find comes first; it is not safe for
// concurrent use, and every request is limited by the configuration's Timeout.
type Letters struct {
	cfg    *Config
	conf   *sarama.Config
	dial   *dialer
	cancel context.CancelFunc
	admin  *admin
	links  map[string]*link // by broker address

	leader map[int32]string // addresses by partition; nil: to be asked for
	places map[checkpoint.Position]LetterPlace
}

// LetterPlace is where a letter is in the dead-letter topic.
type LetterPlace struct {
	Partition int32
	Offset    int64
}

// ErrNoLetter says that the dead-letter topic does not have a letter, or not any more.
var ErrNoLetter = errors.New("the dead-letter topic does not have it: removed by its retention, or deleted")

// OpenLetters prepares to read letters. It connects to nobody. ctx bounds the time until Close.
func OpenLetters(ctx context.Context, cfg Config) (*Letters, error) {
	cfg.setDefaults()
	ctx, cancel := context.WithCancel(ctx)
	l := &Letters{
		cfg: &cfg, dial: &dialer{ctx: ctx, timeout: cfg.Timeout}, cancel: cancel, admin: newAdmin(cfg.Brokers),
		links: map[string]*link{}, places: map[checkpoint.Position]LetterPlace{},
	}
	var err error
	if l.conf, err = cfg.sarama(ctx, l.dial); err != nil {
		cancel()
		return nil, err
	}
	l.admin.open(&cfg, l.conf, l.dial)
	return l, nil
}

// Close ends the connections.
func (l *Letters) Close() {
	l.admin.close()
	for _, link := range l.links {
		link.close()
	}
	l.cancel()
}

// Find reads the whole topic, up to its present end, and notes where the stream's letters are. Of one
// that was written several times, after a crash, the last counts; what a transaction has aborted does not.
func (l *Letters) Find(ctx context.Context) error {
	leaders, err := l.leaders(ctx)
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return nil // as if it were empty: whoever looks for a letter is told
	}
	if err != nil {
		return fmt.Errorf("dead-letter topic %s: %w", l.cfg.DeadTopic, lacking(err, "DESCRIBE and READ on it"))
	}
	for partition := range leaders {
		if err := l.scan(ctx, partition); err != nil {
			return fmt.Errorf("read dead-letter topic %s-%d: %w", l.cfg.DeadTopic, partition, lacking(err, "READ on it"))
		}
	}
	return nil
}

// Place is where a letter was found.
func (l *Letters) Place(p checkpoint.Position) (place LetterPlace, found bool) {
	place, found = l.places[p]
	return place, found
}

// Read returns the event that a letter is about, as it was when it was to be published. The error is
// ErrNoLetter when it has gone since it was found.
func (l *Letters) Read(ctx context.Context, p checkpoint.Position) (*decoder.Event, error) {
	place, found := l.places[p]
	if !found {
		return nil, ErrNoLetter
	}
	block, err := l.fetch(ctx, place.Partition, place.Offset, 1)
	if errors.Is(err, sarama.ErrOffsetOutOfRange) {
		return nil, ErrNoLetter
	}
	if err != nil {
		return nil, fmt.Errorf("read dead letter at %s-%d, offset %d: %w",
			l.cfg.DeadTopic, place.Partition, place.Offset, err)
	}
	for _, b := range batches(block) {
		for _, r := range b.Records {
			if b.FirstOffset+r.OffsetDelta == place.Offset {
				return letterEvent(b, r)
			}
		}
	}
	return nil, ErrNoLetter
}

// leaders returns the addresses of the partitions' leaders, as they were when they were last asked for.
func (l *Letters) leaders(ctx context.Context) (map[int32]string, error) {
	if l.leader != nil {
		return l.leader, nil
	}
	ctx, cancel := l.bound(ctx)
	defer cancel()
	res, err := l.admin.metadata(ctx, []string{l.cfg.DeadTopic})
	if err != nil {
		return nil, err
	}
	leader := map[int32]string{}
	for _, t := range res.Topics {
		if t.Err != sarama.ErrNoError {
			return nil, t.Err
		}
		for _, p := range t.Partitions {
			i := slices.IndexFunc(res.Brokers, func(b *sarama.Broker) bool { return b.ID() == p.Leader })
			if i < 0 {
				return nil, fmt.Errorf("partition %d: %w", p.ID, sarama.ErrLeaderNotAvailable)
			}
			leader[p.ID] = res.Brokers[i].Addr()
		}
	}
	l.leader = leader
	return leader, nil
}

func (l *Letters) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, 2*l.cfg.Timeout, fmt.Errorf("no answer within %s", 2*l.cfg.Timeout))
}

// scan reads a partition. Letters in transactions count once the marker of the commit is there.
func (l *Letters) scan(ctx context.Context, partition int32) error {
	offset, err := l.offset(ctx, partition, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	end, err := l.offset(ctx, partition, sarama.OffsetNewest)
	if err != nil {
		return err
	}
	pending := map[int64]map[checkpoint.Position]LetterPlace{} // by producer
	for offset < end {
		block, err := l.fetch(ctx, partition, offset, fetchBytes)
		if err != nil {
			return err
		}
		next := offset
		for _, b := range batches(block) {
			l.note(pending, partition, b)
			next = max(next, b.LastOffset()+1)
		}
		if next == offset && !pause(ctx, l.cfg.BackoffMin) { // a quota, perhaps
			return context.Cause(ctx)
		}
		offset = next
	}
	return nil
}

// note takes the letters of a batch, or what became of those of its transaction.
func (l *Letters) note(pending map[int64]map[checkpoint.Position]LetterPlace, partition int32, b *sarama.RecordBatch) {
	if b.Control {
		if commits(b) {
			maps.Copy(l.places, pending[b.ProducerID])
		}
		delete(pending, b.ProducerID)
		return
	}
	into := l.places
	if b.IsTransactional {
		if into = pending[b.ProducerID]; into == nil {
			into = map[checkpoint.Position]LetterPlace{}
			pending[b.ProducerID] = into
		}
	}
	for _, r := range b.Records {
		if p, ours := l.position(r); ours {
			into[p] = LetterPlace{Partition: partition, Offset: b.FirstOffset + r.OffsetDelta}
		}
	}
}

// position is the letter's, if it is one of the stream.
func (l *Letters) position(r *sarama.Record) (p checkpoint.Position, ours bool) {
	placed := false
	for _, h := range r.Headers {
		switch string(h.Key) {
		case headerStream:
			ours = string(h.Value) == l.cfg.Stream
		case headerSourcePosition:
			var err error
			p, err = checkpoint.ParsePosition(string(h.Value))
			placed = err == nil
		}
	}
	return p, ours && placed
}

// to returns a link to the leader of a partition, asking where that is.
func (l *Letters) to(ctx context.Context, partition int32) (*link, error) {
	leaders, err := l.leaders(ctx)
	if err != nil {
		return nil, err
	}
	addr, known := leaders[partition]
	if !known {
		return nil, sarama.ErrUnknownTopicOrPartition
	}
	if l.links[addr] == nil {
		to := newLink(func(context.Context) ([]string, error) { return []string{addr}, nil })
		to.open(l.cfg, l.conf, l.dial)
		l.links[addr] = to
	}
	return l.links[addr], nil
}

// ask sends a request to the leader of a partition, and once more when that was not it any more.
func (l *Letters) ask(ctx context.Context, partition int32, request func(*sarama.Broker) error) error {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	for again := false; ; again = true {
		to, err := l.to(ctx, partition)
		if err == nil {
			err = to.do(ctx, request)
		}
		if err == nil || errors.Is(err, sarama.ErrOffsetOutOfRange) {
			return err
		}
		if l.leader = nil; again || !pause(ctx, l.cfg.BackoffMin) {
			return err
		}
	}
}

func (l *Letters) offset(ctx context.Context, partition int32, which int64) (offset int64, err error) {
	err = l.ask(ctx, partition, func(b *sarama.Broker) (err error) {
		offset, err = fetchOffset(b, l.admin.conf.Version, l.cfg.DeadTopic, partition, which)
		return err
	})
	return offset, err
}

func (l *Letters) fetch(
	ctx context.Context, partition int32, offset int64, most int32,
) (block *sarama.FetchResponseBlock, err error) {
	err = l.ask(ctx, partition, func(b *sarama.Broker) (err error) {
		block, err = fetchRecords(b, l.cfg.DeadTopic, partition, offset, most)
		return err
	})
	return block, err
}
