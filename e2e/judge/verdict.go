package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	Lost           Kind = "lost"
	Phantom        Kind = "phantom"                    // never committed
	Reordered      Kind = "reordered"                  // first deliveries of a key
	MovedKey       Kind = "in two partitions"          // within one epoch
	Altered        Kind = "altered"                    // topic, key or value, the spelling of the id; or unreadable
	BadHeaders     Kind = "without stream or position" // the headers of the fence
	StreamChanged  Kind = "stream changed"             // within a partition
	PositionFell   Kind = "position not growing"       // of first deliveries
	SecondPosition Kind = "second position"            // within one epoch
	KeptTwice      Kind = "kept twice by position"     // these three: by a consumer that drops by position
	Dropped        Kind = "dropped by position"        // delivered, and never kept
	KeptReordered  Kind = "reordered after dropping by position"
	WrongMarkers   Kind = "wrong place in its transaction" // by the headers that tell it
	Torn           Kind = "torn from its transaction"      // another event of it has another transaction id
	// GapInRepeat is a repeat that does not go on to the end of what it repeats. The late write of a
	// process that was thought dead makes one rightly, anything else does not.
	GapInRepeat Kind = "gap in a repeat"
)

// Verdict is what a judge found. Duplicates and renewed events are no fault.
type Verdict struct {
	Committed, Delivered int // events
	Records              int
	Duplicates           int // records beyond an event's first
	Excused              int // events that are missing rightly: see Ledger.Excuse and Ledger.Gap
	Renewed              int // the duplicates among them which a higher epoch brought
	// Epochs counts the records of committed events by the epoch of their position. Between two
	// epochs more is right than within one.
	Epochs map[uint32]int
	// Timelines counts them by the timeline of their position.
	Timelines map[uint32]int

	faults  map[Kind]*finding
	repeats map[Partition][]int64 // offsets of the duplicates
}

// finding is a kind of fault that was found.
type finding struct {
	count    int
	examples []string // ids of events, or what stands for them
}

func (v *Verdict) fault(kind Kind, id string) {
	f := v.faults[kind]
	if f == nil {
		f = &finding{}
		v.faults[kind] = f
	}
	f.count++
	if len(f.examples) < 5 {
		f.examples = append(f.examples, id)
	}
}

// Count is how many faults of these kinds were found.
func (v *Verdict) Count(kinds ...Kind) (n int) {
	for _, kind := range kinds {
		if f := v.faults[kind]; f != nil {
			n += f.count
		}
	}
	return n
}

// Kinds are the kinds of faults that were found.
func (v *Verdict) Kinds() []Kind { return slices.Sorted(maps.Keys(v.faults)) }

// AfterDedup is the number of differences from the ledger that are left to a consumer which drops by
// the highest position per stream, topic and partition.
func (v *Verdict) AfterDedup() int {
	return v.Count(Lost, Phantom, Altered, MovedKey, KeptTwice, Dropped, KeptReordered)
}

// RepeatsBetween counts the duplicates at the offsets between two moments.
func (v *Verdict) RepeatsBetween(from, to Offsets) (n int) {
	for name, offsets := range v.repeats {
		for _, offset := range offsets {
			if offset >= from[name] && offset < to[name] {
				n++
			}
		}
	}
	return n
}

// Err is nil without faults; kinds that are to be tolerated can be named.
func (v *Verdict) Err(tolerated ...Kind) error {
	var found []string
	for _, kind := range v.Kinds() {
		if !slices.Contains(tolerated, kind) {
			f := v.faults[kind]
			found = append(found, fmt.Sprintf("%s: %d, as %q", kind, f.count, f.examples))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("judge delivery: %s", strings.Join(found, "; "))
}

// String is the verdict in one line.
func (v *Verdict) String() string {
	return fmt.Sprintf("committed %d delivered %d lost %d phantom %d reordered %d duplicated %d after-dedup %d",
		v.Committed, v.Delivered, v.Count(Lost), v.Count(Phantom), v.Count(Reordered, MovedKey, PositionFell),
		v.Duplicates, v.AfterDedup())
}
