package e2e

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/testenv"
)

// event is one committed outbox row, as its writer knows it. A value of nil is NULL.
type event struct {
	id, key string
	value   []byte
}

// ledger lists what was committed, by key and in commit order. A key has one writer, so that its
// order is known without asking the server.
type ledger map[string][]event

func (l ledger) add(events ...event) {
	for _, e := range events {
		l[e.key] = append(l[e.key], e)
	}
}

// judge compares a topic, read by an independent consumer, with the ledger. It knows nothing of
// walrelay but the headers that consumers are told to rely on: id, walrelay-stream and
// walrelay-position.
type judge struct {
	events     map[string]*judged // by id
	keys       map[string]*judgedKey
	partitions map[int32]*judgedPartition
	verdict    *verdict
}

// judged is a committed event and what was seen of it.
type judged struct {
	event
	place    int    // among the events of its key
	position string // empty: not delivered
	rank     int    // among the first deliveries of its partition
	kept     bool   // by a consumer that drops by position
}

type judgedKey struct {
	partition int32
	delivered int // place of the event that must be delivered next
	kept      int // the same after dropping by position
}

type judgedPartition struct {
	stream  string
	highest string // position
	firsts  int    // number of first deliveries
	rank    int    // of the previous record
	repeats []int64
}

// verdict is what a judge found. Duplicates are no fault, everything else is.
type verdict struct {
	records, duplicates int
	faults              map[string][]string // ids of events, or what stands for them, by kind of fault
}

func (v *verdict) fault(kind, id string) { v.faults[kind] = append(v.faults[kind], id) }

// String names the faults, a few of each kind.
func (v *verdict) String() string {
	text := fmt.Sprintf("%d records, %d of them duplicates", v.records, v.duplicates)
	for kind, ids := range v.faults {
		text += fmt.Sprintf("; %s: %d, as %q", kind, len(ids), ids[:min(len(ids), 5)])
	}
	return text
}

func newJudge(committed ledger) *judge {
	j := &judge{
		events: map[string]*judged{}, keys: map[string]*judgedKey{}, partitions: map[int32]*judgedPartition{},
		verdict: &verdict{faults: map[string][]string{}},
	}
	for key, events := range committed {
		j.keys[key] = &judgedKey{partition: -1}
		for i, e := range events {
			j.events[e.id] = &judged{event: e, place: i}
		}
	}
	return j
}

// positionText is the fixed-width text by whose byte order positions compare.
var positionText = regexp.MustCompile(`^[0-9A-F]{8}-[0-9A-F]{8}-[0-9A-F]{16}-[0-9A-F]{8}$`)

// see takes the next record of a partition.
func (j *judge) see(r *kgo.Record) {
	v := j.verdict
	v.records++
	id, stream, position := header(r, "id"), header(r, "walrelay-stream"), header(r, "walrelay-position")
	if !positionText.MatchString(position) || stream == "" {
		v.fault("headers", id)
	}
	e := j.events[id]
	if e == nil {
		v.fault("phantom", id)
		return
	}
	if e.key != string(r.Key) || string(e.value) != string(r.Value) || (e.value == nil) != (r.Value == nil) {
		v.fault("altered", id)
	}
	k, p := j.keys[e.key], j.partitions[r.Partition]
	if k.partition != r.Partition && k.partition >= 0 {
		v.fault("key in two partitions", id)
	}
	k.partition = r.Partition
	if p == nil {
		p = &judgedPartition{stream: stream, rank: -1}
		j.partitions[r.Partition] = p
	}
	if stream != p.stream {
		v.fault("stream changed", id)
	}
	j.deliver(e, k, p, r.Offset, position)
	j.keep(e, k, p, position)
}

// deliver looks at first deliveries, which must come in order, and at repeats: a repeat begins
// somewhere before and goes on to the end without a gap.
func (j *judge) deliver(e *judged, k *judgedKey, p *judgedPartition, offset int64, position string) {
	v := j.verdict
	if e.position == "" {
		e.position, e.rank = position, p.firsts
		p.firsts++
		if e.place != k.delivered {
			v.fault("reordered", e.id)
		}
		k.delivered = e.place + 1
		if position <= p.highest {
			v.fault("position not growing", e.id)
		}
	} else {
		v.duplicates++
		p.repeats = append(p.repeats, offset)
		if position != e.position {
			v.fault("second position", e.id)
		}
	}
	if e.rank > p.rank+1 {
		v.fault("gap in a repeat", e.id)
	}
	p.rank = e.rank
}

// keep does what a consumer does that keeps the highest position per stream, topic and partition.
func (j *judge) keep(e *judged, k *judgedKey, p *judgedPartition, position string) {
	if position <= p.highest {
		return
	}
	p.highest = position
	if e.kept {
		j.verdict.fault("kept twice after dropping by position", e.id)
	} else if e.place != k.kept {
		j.verdict.fault("reordered after dropping by position", e.id)
	}
	e.kept = true
	k.kept = e.place + 1
}

// conclude returns the verdict once all records were seen.
func (j *judge) conclude() *verdict {
	for id, e := range j.events {
		switch {
		case e.position == "":
			j.verdict.fault("lost", id)
		case !e.kept:
			j.verdict.fault("lost by dropping by position", id)
		}
	}
	return j.verdict
}

// repeatsBetween counts the repeated deliveries at the offsets between two moments.
func (j *judge) repeatsBetween(from, to offsets) (n int) {
	for id, p := range j.partitions {
		for _, offset := range p.repeats {
			if offset >= from[id] && offset < to[id] {
				n++
			}
		}
	}
	return n
}

// judgeTopic judges all that is in a topic now.
func judgeTopic(t *testing.T, cluster *testenv.Cluster, topic string, committed ledger) *judge {
	t.Helper()
	j := newJudge(committed)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	consumer := cluster.Consume(t, topic)
	for range endOffsets(t, cluster, topic).sum() {
		r, err := consumer.Next(ctx)
		require.NoError(t, err)
		j.see(r)
	}
	j.conclude()
	return j
}

// offsets are positions in a topic, by partition.
type offsets map[int32]int64

func (o offsets) sum() (n int64) {
	for _, offset := range o {
		n += offset
	}
	return n
}

// endOffsets is where the next records will go.
func endOffsets(t *testing.T, cluster *testenv.Cluster, topic string) offsets {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	listed, err := cluster.Admin.ListEndOffsets(ctx, topic)
	require.NoError(t, err)
	require.NoError(t, listed.Error())
	ends := offsets{}
	for partition, end := range listed[topic] {
		ends[partition] = end.Offset
	}
	return ends
}

// A judge that finds nothing is worth something only if it finds what is there.
func TestJudge_FindsFaults(t *testing.T) {
	t.Parallel()
	committed := ledger{}
	for i, key := range []string{"a", "b", "a", "a"} { // events 0 to 3
		committed.add(event{id: fmt.Sprint(i), key: key, value: []byte("v")})
	}
	record := func(id int, key string, partition int32, change ...func(*kgo.Record)) *kgo.Record {
		r := &kgo.Record{Key: []byte(key), Value: []byte("v"), Partition: partition, Headers: []kgo.RecordHeader{
			{Key: "id", Value: fmt.Append(nil, id)},
			{Key: "walrelay-stream", Value: []byte("s")},
			{Key: "walrelay-position", Value: fmt.Appendf(nil, "00000001-00000001-0000000000000010-%08X", id)},
		}}
		for _, c := range change {
			c(r)
		}
		return r
	}
	a0, b1, a2, a3 := record(0, "a", 0), record(1, "b", 0), record(2, "a", 0), record(3, "a", 0)
	changed := func(id int, change func(*kgo.Record)) *kgo.Record { return record(id, "a", 0, change) }
	at := func(position string) func(*kgo.Record) {
		return func(r *kgo.Record) { r.Headers[2].Value = []byte(position) }
	}
	type records []*kgo.Record
	for name, test := range map[string]struct {
		records    records
		duplicates int
		faults     []string
	}{
		"all":             {records{a0, b1, a2, a3}, 0, nil},
		"repeated tail":   {records{a0, b1, a2, b1, a2, a3}, 2, nil},
		"repeated twice":  {records{a0, b1, a0, a0, b1, a2, a3}, 3, nil},
		"lost":            {records{a0, b1, a2}, 0, []string{"lost"}},
		"phantom":         {records{a0, b1, a2, a3, record(4, "a", 0)}, 0, []string{"phantom"}},
		"wrong key":       {records{a0, record(1, "a", 0), a2, a3}, 0, []string{"altered"}},
		"other partition": {records{a0, b1, a2, record(3, "a", 1)}, 0, []string{"key in two partitions"}},
		"gap in repeats":  {records{a0, b1, a2, a0, a2, a3}, 2, []string{"gap in a repeat"}},
		"null value": {
			records{a0, b1, a2, changed(3, func(r *kgo.Record) { r.Value = nil })},
			0,
			[]string{"altered"},
		},
		"no position": {
			records{a0, b1, a2, changed(3, at("00000001-00000001-10-0"))},
			0,
			[]string{"headers"},
		},
		"other stream": {
			records{a0, b1, a2, changed(3, func(r *kgo.Record) { r.Headers[1].Value = []byte("t") })},
			0,
			[]string{"stream changed"},
		},
		"lost in between": {
			records{a0, b1, a3},
			0,
			[]string{"lost", "reordered", "reordered after dropping by position"},
		},
		"reordered": {
			records{a0, b1, a3, a2},
			0,
			[]string{
				"reordered", "position not growing",
				"reordered after dropping by position", "lost by dropping by position",
			},
		},
		"unstable position": {
			records{a0, b1, a2, a3, changed(3, at("00000001-00000001-0000000000000020-00000000"))},
			1,
			[]string{"second position", "kept twice after dropping by position"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJudge(committed)
			for _, r := range test.records {
				j.see(r)
			}
			v := j.conclude()
			require.Equal(t, test.duplicates, v.duplicates)
			var kinds []string
			for kind := range v.faults {
				kinds = append(kinds, kind)
			}
			require.ElementsMatch(t, test.faults, kinds, v)
		})
	}
}
