package checkpoint

import (
	"sync"

	"github.com/jackc/pglogrepl"
)

// Mailbox carries the outcomes of one run from the sink's goroutines to the session's.
// The sink puts, the session takes; neither ever blocks. The zero value is not usable: see NewMailbox.
type Mailbox struct {
	wake chan struct{}

	mu       sync.Mutex
	settled  []uint64
	recorded []uint64
	poison   []Poison
	grown    []Partitions
	reached  pglogrepl.LSN
	err      error
}

// Mail is what one Take returns. Its slices are valid until the next Take.
type Mail struct {
	// Settled lists the sequences that the broker acknowledged, in no particular order.
	Settled []uint64
	// Recorded lists the sequences of poison events that are written down, so that they are settled.
	Recorded []uint64
	// Reached is the highest position that a state was written for; see State. Zero: none yet.
	Reached pglogrepl.LSN
	// Poison lists events that could not be delivered. Their sequences are settled by the session,
	// once it has recorded them, never by the sink.
	Poison []Poison
	// Partitions lists topics met for the first time in this run.
	Partitions []Partitions
	// Err, once not nil, is the end of the run: no further sequence will be settled.
	Err error
}

// Partitions says how many partitions a topic has. The stream's epoch is raised when the number
// changes, because a key then moves to another partition and positions there start anew.
type Partitions struct {
	Topic string
	Count int32
}

// NewMailbox returns an empty mailbox.
func NewMailbox() *Mailbox { return &Mailbox{wake: make(chan struct{}, 1)} }

// Wake is ready when something was put since the last Take.
func (m *Mailbox) Wake() <-chan struct{} { return m.wake }

// Settle reports acknowledged sequences. The slice is copied.
func (m *Mailbox) Settle(seqs []uint64) {
	m.mu.Lock()
	m.settled = append(m.settled, seqs...)
	m.mu.Unlock()
	m.knock()
}

// Record reports poison events that are written down. The slice is copied.
func (m *Mailbox) Record(seqs []uint64) {
	m.mu.Lock()
	m.recorded = append(m.recorded, seqs...)
	m.mu.Unlock()
	m.knock()
}

// Reach reports that a state is written which reaches lsn.
func (m *Mailbox) Reach(lsn pglogrepl.LSN) {
	m.mu.Lock()
	m.reached = max(m.reached, lsn)
	m.mu.Unlock()
	m.knock()
}

// PutPoison reports an event that could not be delivered.
func (m *Mailbox) PutPoison(p Poison) {
	m.mu.Lock()
	m.poison = append(m.poison, p)
	m.mu.Unlock()
	m.knock()
}

// PutPartitions reports the partition count of a topic met for the first time in this run.
func (m *Mailbox) PutPartitions(p Partitions) {
	m.mu.Lock()
	m.grown = append(m.grown, p)
	m.mu.Unlock()
	m.knock()
}

// Fail ends the run. The first error is kept.
func (m *Mailbox) Fail(err error) {
	m.mu.Lock()
	if m.err == nil {
		m.err = err
	}
	m.mu.Unlock()
	m.knock()
}

// Unread reports whether sequences are settled of which the session does not know yet.
func (m *Mailbox) Unread() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.settled) > 0 || len(m.recorded) > 0
}

// Take empties the mailbox into mail, reusing mail's slices. Err stays set once it was.
func (m *Mailbox) Take(mail *Mail) {
	m.mu.Lock()
	m.settled, mail.Settled = mail.Settled[:0], m.settled
	m.recorded, mail.Recorded = mail.Recorded[:0], m.recorded
	m.poison, mail.Poison = nil, m.poison
	m.grown, mail.Partitions = nil, m.grown
	mail.Reached, mail.Err = m.reached, m.err
	m.mu.Unlock()
}

func (m *Mailbox) knock() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}
