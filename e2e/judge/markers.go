package judge

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The part of a position's text that a transaction's events share, and the headers that tell an event's place.
const (
	commitBegin, commitEnd = 9, 34

	headerTransaction = "walrelay-transaction-id"
	headerIndex       = "walrelay-transaction-index"
	headerCount       = "walrelay-transaction-count"
)

// marked reports whether a record tells the event's place as the ledger has it: every index from 0 on is there then
// as soon as no event is missing, and the last one alone tells how many they are.
func (l *Ledger) marked(r *kgo.Record, number int, position string) bool {
	begin, end := l.transaction(number)
	count := ""
	if number == end-1 {
		count = strconv.Itoa(end - begin)
	}
	return len(position) > commitEnd && Header(r, headerTransaction) == position[commitBegin:commitEnd] &&
		Header(r, headerIndex) == strconv.Itoa(number-begin) && Header(r, headerCount) == count
}

// transaction is the numbers of the first event of an event's transaction and of the one behind its last.
func (l *Ledger) transaction(number int) (begin, end int) {
	i, _ := slices.BinarySearch(l.ends, number+1)
	if i > 0 {
		begin = l.ends[i-1]
	}
	return begin, l.ends[i]
}

// reassemble puts together what was delivered, as a consumer of all topics would, by the transactions' ids: these are
// those of the positions, which marked has seen to.
func (j *Judge) reassemble() {
	none := position{}
	taken := map[commit]int{} // by whose first event
	begin := 0
	for _, end := range j.ledger.ends {
		var id commit
		for number := begin; number < end; number++ {
			at := j.events[number].position
			if at == none {
				continue // lost, or excused
			}
			if id == (commit{}) {
				id = at.commit()
			}
			first, known := taken[at.commit()]
			if at.commit() != id || known && first != begin {
				j.verdict.fault(Torn, j.ledger.events[number].id.String())
			}
			taken[at.commit()] = begin
		}
		begin = end
	}
}
