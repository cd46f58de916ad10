package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/kit/tx"
)

// Source is what positions grow in: compare only those of the same one.
type Source struct {
	Stream    string
	Topic     string
	Partition int32
}

// ErrStale says that the saved position is not the one that the batch began with: somebody else has applied
// records of the partition meanwhile, most likely its new owner. Roll back; Load before trying again.
var ErrStale = errors.New("somebody else has moved the saved position")

// Marks hold the highest position of each Source that was applied. They are for any number of goroutines,
// though each partition should be in the hands of one at a time.
type Marks struct {
	consumer string

	mu    sync.Mutex
	marks map[Source]Position
}

// NewMarks returns marks that know nothing. Consumer names the rows in which they are saved: one name for
// all instances of a consumer group. Without Load and Save they live in memory and drop what this process has
// seen itself.
func NewMarks(consumer string) *Marks {
	return &Marks{consumer: consumer, marks: make(map[Source]Position)}
}

const loadSQL = `SELECT stream, partition, position FROM walrelay_kit.consumer_positions
	WHERE consumer = $1 AND topic = $2 AND partition = ANY ($3)`

// Load reads the saved marks of partitions, in place of what was known of them. Call it when they are
// assigned, before their first record, after ErrStale, and after a commit that may or may not have happened.
func (m *Marks) Load(ctx context.Context, db tx.Tx, topic string, partitions ...int32) error {
	rows, err := db.Query(ctx, loadSQL, m.consumer, topic, partitions)
	if err != nil {
		return fmt.Errorf("load positions: %w", err)
	}
	loaded := make(map[Source]Position)
	var text string
	source := Source{Topic: topic}
	_, err = pgx.ForEachRow(rows, []any{&source.Stream, &source.Partition, &text}, func() (err error) {
		loaded[source], err = ParsePosition(text)
		return err
	})
	if err != nil {
		return fmt.Errorf("load positions: %w", err)
	}
	m.Forget(topic, partitions...)
	m.adopt(loaded)
	return nil
}

// Forget drops what is known of partitions: they were revoked or lost.
func (m *Marks) Forget(topic string, partitions ...int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.marks, func(s Source, _ Position) bool {
		return s.Topic == topic && slices.Contains(partitions, s.Partition)
	})
}

func (m *Marks) adopt(marks map[Source]Position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.Copy(m.marks, marks)
}

func (m *Marks) get(s Source) Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.marks[s]
}

// Batch begins a batch of records: the positions that it passes count for others when it is Done.
func (m *Marks) Batch() *Batch {
	return &Batch{marks: m, from: make(map[Source]Position), to: make(map[Source]Position)}
}

// Batch is a number of records that are applied in one transaction, by one goroutine.
type Batch struct {
	marks    *Marks
	from, to map[Source]Position
}

// Pass reports whether the record is to be applied: its position is higher than all before it. Events
// without a position (replays, dead letters) always pass, for others have to tell whether they are repeated.
func (b *Batch) Pass(topic string, partition int32, event Event) bool {
	if event.Position.IsZero() {
		return true
	}
	source := Source{Stream: event.Stream, Topic: topic, Partition: partition}
	mark, ok := b.to[source]
	if !ok {
		mark = b.marks.get(source)
	}
	if event.Position.Compare(mark) <= 0 {
		return false
	}
	if !ok {
		b.from[source] = mark
	}
	b.to[source] = event.Position
	return true
}

// The row has to be as it was when the batch began: a comparison with the new position alone would let an old
// owner through who is further than the new one, with effects that both have applied.
const (
	beginSQL = `INSERT INTO walrelay_kit.consumer_positions (consumer, stream, topic, partition, position)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`
	moveSQL = `UPDATE walrelay_kit.consumer_positions SET position = $5, updated_at = clock_timestamp()
		WHERE consumer = $1 AND stream = $2 AND topic = $3 AND partition = $4 AND position = $6`
)

// Save writes the batch's positions in the transaction of its effects, or returns ErrStale when a saved one is
// not where the batch began; then the transaction has to be rolled back. At stricter levels than READ
// COMMITTED that may show as PostgreSQL's serialisation error (SQLSTATE 40001).
func (b *Batch) Save(ctx context.Context, db tx.Tx) error {
	for _, s := range slices.SortedFunc(maps.Keys(b.to), Source.compare) { // one order: no deadlock
		sql, args := beginSQL, []any{b.marks.consumer, s.Stream, s.Topic, s.Partition, b.to[s].String()}
		if from := b.from[s]; !from.IsZero() {
			sql, args = moveSQL, append(args, from.String())
		}
		tag, err := db.Exec(ctx, sql, args...)
		if err != nil {
			return fmt.Errorf("save position: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return ErrStale
		}
	}
	return nil
}

// Done makes the batch's positions count, once its transaction is committed. A batch that failed is dropped.
func (b *Batch) Done() { b.marks.adopt(b.to) }

func (s Source) compare(other Source) int {
	return cmp.Or(cmp.Compare(s.Topic, other.Topic), cmp.Compare(s.Partition, other.Partition),
		cmp.Compare(s.Stream, other.Stream))
}

// ErrDuration is returned for durations that are not positive.
var ErrDuration = errors.New("must be above zero")

// Purge removes the saved positions of all consumers that did not move for idle, which has to be longer than the
// topics keep their records: without its position, a record that is read again is applied again.
func Purge(ctx context.Context, db tx.Tx, idle time.Duration) (removed int64, err error) {
	if idle <= 0 {
		return 0, fmt.Errorf("purge positions idle for %s: %w", idle, ErrDuration)
	}
	tag, err := db.Exec(ctx, `DELETE FROM walrelay_kit.consumer_positions
		WHERE updated_at < clock_timestamp() - $1::interval`, idle)
	if err != nil {
		return 0, fmt.Errorf("purge positions: %w", err)
	}
	return tag.RowsAffected(), nil
}
