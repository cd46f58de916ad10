package main

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"
)

// eventID is the UUID of an event (version 8, of our own making): eight bytes of this run and the
// event's number, which is its place in the ledger.
type eventID [16]byte

// String is the UUID's text.
func (id eventID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:])
}

func parseEventID(text []byte) (id eventID, ok bool) {
	n, err := hex.Decode(id[:], []byte(strings.ReplaceAll(string(text[:min(len(text), 36)]), "-", "")))
	return id, err == nil && n == len(id)
}

// fate is what the database answered about an event's transaction.
type fate uint8

const (
	open fate = iota
	committed
	rolledBack
)

// entry is an event in the ledger. There are a million an hour, so it is small.
type entry struct {
	sent     int64 // Unix ns when COMMIT was sent
	arrivals uint16
	customer uint8
	fate     fate
}

// tally is what the ledger adds up to.
type tally struct {
	committed  int // events of transactions that the database said were committed
	delivered  int // of these, those that have arrived
	rolledBack int // events of transactions that were rolled back
	duplicates int // arrivals beyond an event's first
	phantoms   int // arrivals of events that were never committed, or never written
	disorder   int // first arrivals behind a later event of the same customer
}

// inFlight is the number of committed events that have not arrived.
func (t tally) inFlight() int { return t.committed - t.delivered }

// ledger holds what the shop did with every event and how often the consumer saw it. It believes
// neither walrelay nor the broker. Only it decides what was lost.
type ledger struct {
	run [8]byte

	mu      sync.Mutex
	entries []entry
	tally   tally
	latest  [256]int // by customer: the highest event that has arrived, plus 1
	latency histogram
	recent  window
}

func newLedger() *ledger {
	l := &ledger{}
	_, _ = rand.Read(l.run[:])      // never fails
	l.run[6] = l.run[6]&0x0f | 8<<4 // version 8: RFC 9562, section 5.8
	return l
}

// begin enters an event. The events of one customer must be begun in the order in which they commit.
func (l *ledger) begin(customer uint8) eventID {
	l.mu.Lock()
	defer l.mu.Unlock()
	var id eventID
	copy(id[:], l.run[:])
	binary.BigEndian.PutUint64(id[8:], uint64(len(l.entries)))
	id[8] = 1 << 7 // the variant
	l.entries = append(l.entries, entry{customer: customer})
	return id
}

// committing notes that COMMIT is about to be sent: latency counts from here, so it never flatters.
func (l *ledger) committing(id eventID, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.find(id).sent = now.UnixNano()
}

// committed notes the database's answer. The event may have arrived before it.
func (l *ledger) committed(id eventID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.find(id)
	e.fate = committed
	l.tally.committed++
	if e.arrivals > 0 {
		l.tally.delivered++
	}
}

// rolledBack notes that the event must not arrive.
func (l *ledger) rolledBack(id eventID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.find(id)
	e.fate = rolledBack
	l.tally.rolledBack++
	l.tally.phantoms += int(e.arrivals)
}

// arrived notes what the consumer got and returns the time since COMMIT was sent; it is 0 for what is
// not an event of the shop.
func (l *ledger) arrived(text []byte, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, ok := parseEventID(text)
	e := l.find(id)
	if !ok || e == nil || e.fate == rolledBack {
		l.tally.phantoms++
		return 0
	}
	e.arrivals++
	if e.arrivals > 1 {
		l.tally.duplicates++
		return 0
	}
	if e.fate == committed {
		l.tally.delivered++
	}
	number := id.number() + 1
	if number < l.latest[e.customer] {
		l.tally.disorder++
	} else {
		l.latest[e.customer] = number
	}
	latency := time.Duration(now.UnixNano() - e.sent)
	l.latency.add(latency)
	l.recent.at(now).add(latency)
	return latency
}

func (id eventID) number() int { return int(binary.BigEndian.Uint64(id[8:]) &^ (1 << 63)) }

// find returns nil for an event that was never begun.
func (l *ledger) find(id eventID) *entry {
	if [8]byte(id[:8]) != l.run || id.number() < 0 || id.number() >= len(l.entries) {
		return nil
	}
	return &l.entries[id.number()]
}

func (l *ledger) totals() tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tally
}

// latencies are those of the last seconds and those of the whole run.
func (l *ledger) latencies(now time.Time) (recent, all histogram) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.recent.sum(now), l.latency
}
