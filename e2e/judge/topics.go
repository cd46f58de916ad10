package judge

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Source is where to read.
type Source struct {
	Brokers []string // addresses
	Topics  []string
	// Committed leaves out what transactions have not committed.
	Committed bool
	// Form is what the records look like.
	Form
}

// Topics judges all that is in the topics now.
func Topics(ctx context.Context, source Source, ledger *Ledger) (*Verdict, error) {
	j := New(ledger)
	j.Form = source.Form
	if err := source.read(ctx, j.See); err != nil {
		return nil, fmt.Errorf("read topics: %w", err)
	}
	return j.Conclude(), nil
}

// Streams judges topics that several streams write to, each by a ledger of its own: positions of
// different streams have nothing to do with each other.
func Streams(ctx context.Context, source Source, ledgers map[string]*Ledger) (map[string]*Verdict, error) {
	judges := map[string]*Judge{}
	for stream, ledger := range ledgers {
		judges[stream] = New(ledger)
		judges[stream].Form = source.Form
	}
	var stray error
	err := source.read(ctx, func(r *kgo.Record) {
		stream := Header(r, "walrelay-stream")
		if j := judges[stream]; j != nil {
			j.See(r)
		} else if stray == nil {
			stray = fmt.Errorf("record %d of %s-%d: stream %q has no ledger", r.Offset, r.Topic, r.Partition, stream)
		}
	})
	if err = cmp.Or(err, stray); err != nil {
		return nil, fmt.Errorf("read topics: %w", err)
	}
	verdicts := map[string]*Verdict{}
	for stream, j := range judges {
		verdicts[stream] = j.Conclude()
	}
	return verdicts, nil
}

// read hands over every record up to the present ends.
func (s Source) read(ctx context.Context, see func(*kgo.Record)) error {
	level := kgo.ReadUncommitted()
	if s.Committed {
		level = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(s.Brokers...),
		kgo.ConsumeTopics(s.Topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(level),
		kgo.KeepControlRecords(), // so that the last offset of a partition is always seen
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.FetchMaxBytes(16<<20),
	)
	if err != nil {
		return fmt.Errorf("open consumer: %w", err)
	}
	defer client.Close()
	left, err := s.ahead(ctx, kadm.NewClient(client))
	if err != nil {
		return err
	}
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := fetches.Err0(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			name := Partition{r.Topic, r.Partition}
			end, ok := left[name]
			if !ok || r.Offset >= end {
				return
			}
			if !r.Attrs.IsControl() {
				see(r)
			}
			if r.Offset == end-1 {
				delete(left, name)
			}
		})
	}
	return nil
}

// ahead is where the partitions end that hold anything.
func (s Source) ahead(ctx context.Context, admin *kadm.Client) (Offsets, error) {
	starts, err := listOffsets(ctx, admin.ListStartOffsets, s.Topics)
	if err != nil {
		return nil, fmt.Errorf("list start offsets: %w", err)
	}
	list := admin.ListEndOffsets
	if s.Committed {
		list = admin.ListCommittedOffsets
	}
	ends, err := listOffsets(ctx, list, s.Topics)
	if err != nil {
		return nil, fmt.Errorf("list end offsets: %w", err)
	}
	for name, end := range ends {
		if end == starts[name] {
			delete(ends, name)
		}
	}
	return ends, nil
}

// Offsets are positions in topics.
type Offsets map[Partition]int64

// Sum is the number of records before the offsets, when nothing was deleted.
func (o Offsets) Sum() (n int64) {
	for _, offset := range o {
		n += offset
	}
	return n
}

// EndOffsets is where the next records will go.
func EndOffsets(ctx context.Context, admin *kadm.Client, topics ...string) (Offsets, error) {
	return listOffsets(ctx, admin.ListEndOffsets, topics)
}

type lister func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error)

func listOffsets(ctx context.Context, list lister, topics []string) (Offsets, error) {
	listed, err := list(ctx, topics...)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, err
	}
	offsets := Offsets{}
	listed.Each(func(o kadm.ListedOffset) { offsets[Partition{o.Topic, o.Partition}] = o.Offset })
	return offsets, nil
}
