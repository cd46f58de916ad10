package judge

import (
	"github.com/twmb/franz-go/pkg/kgo"
)

// Judge compares records with a ledger, to which nothing more may be added meanwhile.
type Judge struct {
	Form // to be set before the first record

	ledger     *Ledger
	events     []sight // as in the ledger
	partitions []*partition
	byName     map[Partition]*partition
	verdict    *Verdict
}

// Partition names a partition of a topic.
type Partition struct {
	Topic string
	ID    int32
}

// sight is what was seen of a committed event.
type sight struct {
	position  position // of the first delivery; zero: not delivered
	partition int32    // of the first delivery
	rank      uint32   // of the first delivery, among those of its partition
	kept      uint32   // rank, from 1, among the records that a consumer keeps which drops by position
	late      bool     // an older epoch wrote it behind a newer one
}

// partition is what was seen of a partition.
type partition struct {
	Partition

	number  int32 // in Judge.partitions
	stream  string
	highest position
	firsts  uint32 // number of first deliveries
	kept    uint32 // number of records kept
	next    uint32 // the greatest rank that may follow the previous record
	repeats []int64
}

// New returns a judge for what was committed.
func New(ledger *Ledger) *Judge {
	return &Judge{
		ledger: ledger, events: make([]sight, len(ledger.events)),
		byName: map[Partition]*partition{},
		verdict: &Verdict{
			Committed: len(ledger.events), Epochs: map[uint32]int{}, Timelines: map[uint32]int{},
			faults: map[Kind]*finding{},
		},
	}
}

// See takes the next record of a partition, in the order of offsets. The order among partitions is
// of no importance.
func (j *Judge) See(r *kgo.Record) {
	v := j.verdict
	v.Records++
	text, stream := Header(r, "id"), Header(r, "walrelay-stream")
	positionText := Header(r, "walrelay-position")
	position, ok := parsePosition(positionText)
	if !ok || stream == "" {
		v.fault(BadHeaders, text)
	}
	number, known := j.ledger.byID[newID(text)]
	if !known {
		v.fault(Phantom, text)
		return
	}
	if !ok {
		return // as if it were not there
	}
	v.Epochs[position.epoch()]++
	v.Timelines[position.timeline()]++
	e := &j.ledger.events[number]
	event, err := j.read(r)
	switch {
	case err != nil:
		v.fault(Altered, text+": "+err.Error())
	case j.ledger.content(event) != j.ledger.contentIn(number, position.epoch()):
		v.fault(Altered, text)
	}
	if j.Transactions && !j.ledger.marked(r, number, positionText) {
		v.fault(WrongMarkers, text)
	}
	p := j.partition(r, stream)
	if stream != p.stream {
		v.fault(StreamChanged, text)
	}
	s := &j.events[number]
	if position.epoch() < p.highest.epoch() {
		j.late(s, p, r.Offset)
		return
	}
	j.deliver(e, s, p, r.Offset, position)
	j.keep(e, s, p, position)
}

func (j *Judge) partition(r *kgo.Record, stream string) *partition {
	name := Partition{r.Topic, r.Partition}
	p := j.byName[name]
	if p == nil {
		p = &partition{Partition: name, number: int32(len(j.partitions)), stream: stream}
		j.byName[name] = p
		j.partitions = append(j.partitions, p)
	}
	return p
}

// late takes what a process that was thought dead has written after the epoch was raised. Consumers drop
// it, which is right when the event comes in the newer epoch too, maybe in another partition.
func (j *Judge) late(s *sight, p *partition, offset int64) {
	s.late = true
	j.verdict.Duplicates++
	p.repeats = append(p.repeats, offset)
}

// deliver looks at first deliveries and at repeats. In a higher epoch an event may come again with
// another position and, when the topic has more partitions now, in another one; which of the two is
// read first says nothing then.
func (j *Judge) deliver(e *entry, s *sight, p *partition, offset int64, position position) {
	v := j.verdict
	none := sight{}
	first := s.position == none.position
	switch {
	case first:
		v.Delivered++
	case position.epoch() != s.position.epoch():
		v.Renewed++
		if j.Transactions && position.commit() != s.position.commit() {
			v.fault(Torn, e.id.String())
		}
	case position != s.position:
		v.fault(SecondPosition, e.id.String())
	case p.number != s.partition:
		v.fault(MovedKey, e.id.String())
	}
	if !first {
		v.Duplicates++
		p.repeats = append(p.repeats, offset)
	}
	switch {
	case first || p.number != s.partition && position.epoch() < s.position.epoch():
		s.position, s.partition, s.rank, s.kept = position, p.number, p.firsts, 0
		p.firsts++
		if !p.highest.less(position) {
			v.fault(PositionFell, e.id.String())
		}
	case p.number != s.partition || position.epoch() != s.position.epoch():
		return
	}
	// A repeat begins somewhere before and goes on to the end without a gap.
	if s.rank > p.next {
		v.fault(GapInRepeat, e.id.String())
	}
	p.next = s.rank + 1
}

// keep does what a consumer does that keeps the highest position per stream, topic and partition.
func (j *Judge) keep(e *entry, s *sight, p *partition, position position) {
	if !p.highest.less(position) {
		return
	}
	p.highest = position
	p.kept++
	switch {
	case s.kept == 0:
		s.kept = p.kept
	case position.epoch() == s.position.epoch():
		j.verdict.fault(KeptTwice, e.id.String())
	}
}

// Conclude returns the verdict once all records were seen.
func (j *Judge) Conclude() *Verdict {
	v := j.verdict
	none := sight{}
	latest := map[int32]*sight{} // delivery of each key's previous event
	for number := range j.events {
		e, s := &j.ledger.events[number], &j.events[number]
		switch {
		case s.position != none.position:
		case j.ledger.excused(number):
			v.Excused++
			continue
		case s.late:
			v.Delivered, v.Duplicates = v.Delivered+1, v.Duplicates-1
			v.fault(PositionFell, e.id.String())
			v.fault(Dropped, e.id.String())
			continue
		default:
			v.fault(Lost, e.id.String())
			continue
		}
		if s.kept == 0 {
			v.fault(Dropped, e.id.String())
		}
		if e.key == noKey {
			continue
		}
		if before := latest[e.key]; before != nil {
			j.compare(e, before, s)
		}
		latest[e.key] = s
	}
	if j.Transactions {
		j.reassemble()
	}
	v.repeats = map[Partition][]int64{}
	for _, p := range j.partitions {
		v.repeats[p.Partition] = p.repeats
	}
	return v
}

// compare looks at the order of an event and the one of its key before it.
func (j *Judge) compare(e *entry, before, s *sight) {
	if before.partition != s.partition {
		switch {
		case s.position.epoch() < before.position.epoch():
			j.verdict.fault(Reordered, e.id.String())
		case s.position.epoch() == before.position.epoch():
			j.verdict.fault(MovedKey, e.id.String())
		}
		return
	}
	if s.rank < before.rank || s.position.less(before.position) {
		j.verdict.fault(Reordered, e.id.String())
	}
	if s.kept != 0 && s.kept < before.kept {
		j.verdict.fault(KeptReordered, e.id.String())
	}
}

// Header is the value of a record's header, empty without one.
func Header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
