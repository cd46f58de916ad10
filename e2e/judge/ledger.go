package judge

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
)

// Event is one committed outbox row as it must arrive in Kafka. A Key or Value of nil is NULL.
type Event struct {
	ID, Topic  string
	Key, Value []byte
}

// Ledger lists what was committed. It may be used by several goroutines, but the order of a key is
// that of the calls of Commit.
type Ledger struct {
	mu     sync.Mutex
	seed   maphash.Seed
	events []entry // the events of one key in commit order
	ends   []int   // of transactions: the numbers of the events behind each one's last
	byID   map[id]int
	keys   map[uint64]int32 // by hash of topic and key
	topics map[string]int32
	gone   map[int32]int // by topic: that many events at the head of the ledger may be missing
	gaps   []gap
	forms  map[int]form // by event: what it is since the routing was changed
}

// form is what an event is from an epoch on.
type form struct {
	epoch   uint32
	content uint64
}

// gap is a part of the ledger, whose events may be missing.
type gap struct{ from, to int } // numbers of events, from the first to the one after the last

// entry is what must be known of an event to recognise it.
type entry struct {
	id      id
	content uint64 // hash of id as it is written, topic, key and value
	key     int32  // noKey for an event without one
	topic   int32
}

const noKey = -1

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{
		seed: maphash.MakeSeed(), byID: map[id]int{}, keys: map[uint64]int32{},
		topics: map[string]int32{}, gone: map[int32]int{}, forms: map[int]form{},
	}
}

// Commit adds the events of a transaction that is known to be committed, in the order of its inserts.
func (l *Ledger) Commit(events ...Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		id := newID(e.ID)
		if _, known := l.byID[id]; known {
			return fmt.Errorf("commit event %s: its id was used before", e.ID)
		}
		l.byID[id] = len(l.events)
		l.events = append(l.events, entry{id: id, content: l.content(e), key: l.key(e), topic: l.topic(e.Topic)})
	}
	l.ends = append(l.ends, len(l.events))
	return nil
}

// Reroute says with which topic and key committed events arrive from an epoch on, since the routing was
// changed. Their order is still that of the keys under which they were committed.
func (l *Ledger) Reroute(epoch uint32, events ...Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		number, known := l.byID[newID(e.ID)]
		if !known {
			return fmt.Errorf("reroute event %s: it was not committed", e.ID)
		}
		l.forms[number] = form{epoch: epoch, content: l.content(e)}
	}
	return nil
}

// contentIn is what an event must be in an epoch.
func (l *Ledger) contentIn(number int, epoch uint32) uint64 {
	if f, ok := l.forms[number]; ok && epoch >= f.epoch {
		return f.content
	}
	return l.events[number].content
}

// Excuse says that the events of a topic which are committed so far may be missing, since the topic
// was deleted.
func (l *Ledger) Excuse(topic string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone[l.topic(topic)] = len(l.events)
}

// Gap says that the events which were the from-th to the one before the to-th to be committed may be
// missing, since the stream had no slot, or no publication, meanwhile. Both are results of Len.
func (l *Ledger) Gap(from, to int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gaps = append(l.gaps, gap{from, to})
}

// excused says that an event may be missing.
func (l *Ledger) excused(number int) bool {
	return number < l.gone[l.events[number].topic] ||
		slices.ContainsFunc(l.gaps, func(g gap) bool { return number >= g.from && number < g.to })
}

// Len is the number of committed events.
func (l *Ledger) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events)
}

// key numbers the keys of all topics.
func (l *Ledger) key(e Event) int32 {
	if e.Key == nil {
		return noKey
	}
	hash := l.hash(e.Topic, e.Key)
	number, known := l.keys[hash]
	if !known {
		number = int32(len(l.keys))
		l.keys[hash] = number
	}
	return number
}

func (l *Ledger) topic(name string) int32 {
	number, known := l.topics[name]
	if !known {
		number = int32(len(l.topics))
		l.topics[name] = number
	}
	return number
}

func (l *Ledger) content(e Event) uint64 { return l.hash(e.Topic, []byte(e.ID), e.Key, e.Value) }

func (l *Ledger) hash(text string, parts ...[]byte) uint64 {
	var h maphash.Hash
	h.SetSeed(l.seed)
	write := func(b []byte) {
		maphash.WriteComparable(&h, len(b)) // so that nothing moves from one part to the next
		_, _ = h.Write(b)                   // never fails
	}
	write([]byte(text))
	for _, b := range parts {
		maphash.WriteComparable(&h, b == nil)
		write(b)
	}
	return h.Sum64()
}

// id is an event's id in 16 bytes: a UUID, a text that is shorter, or a digest of a longer one.
type id [16]byte

func newID(text string) (result id) {
	if len(text) < len(result) {
		copy(result[:], text)
		return result
	}
	if result, err := parseUUID(text); err == nil {
		return result
	}
	sum := sha256.Sum256([]byte(text))
	copy(result[:], sum[:])
	return result
}

func parseUUID(text string) (result id, err error) {
	digits := strings.ReplaceAll(text, "-", "")
	if len(digits) != 2*len(result) {
		return result, errors.New("no UUID")
	}
	_, err = hex.Decode(result[:], []byte(digits))
	return result, err
}

// String is the text that the id was made of, unless that was a long one.
func (i id) String() string {
	text := strings.TrimRight(string(i[:]), "\x00")
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' {
			return fmt.Sprintf("%x-%x-%x-%x-%x", i[:4], i[4:6], i[6:8], i[8:10], i[10:])
		}
	}
	return text
}
