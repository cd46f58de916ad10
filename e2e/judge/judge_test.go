package judge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
)

const topic = "t"

// change is made to an otherwise right record.
type change func(*kgo.Record)

// record is the delivery of event n, at a position made of n and in epoch 1.
func record(n int, key string, partition int32, changes ...change) *kgo.Record {
	r := &kgo.Record{Topic: topic, Value: []byte("v"), Partition: partition, Headers: []kgo.RecordHeader{
		{Key: "id", Value: fmt.Append(nil, n)}, {Key: "walrelay-stream", Value: []byte("s")}, {Key: "walrelay-position"},
	}}
	if key != "" {
		r.Key = []byte(key)
	}
	at(1, n)(r)
	for _, c := range changes {
		c(r)
	}
	return r
}

func at(epoch, n int) change {
	return header(2, fmt.Sprintf("%08X-00000001-0000000000000010-%08X", epoch, n))
}

func header(i int, value string) change {
	return func(r *kgo.Record) { r.Headers[i].Value = []byte(value) }
}

// A judge that finds nothing is worth something only if it finds what is there.
func TestJudge_FindsFaults(t *testing.T) {
	t.Parallel()
	// Events 0 to 5; those of "" have no key.
	ledger := judge.NewLedger()
	for n, key := range []string{"a", "b", "a", "a", "", ""} {
		e := judge.Event{ID: fmt.Sprint(n), Topic: topic, Value: []byte("v")}
		if key != "" {
			e.Key = []byte(key)
		}
		require.NoError(t, ledger.Commit(e))
	}
	a0, b1, a2, a3 := record(0, "a", 0), record(1, "b", 0), record(2, "a", 0), record(3, "a", 0)
	n4, n5 := record(4, "", 0), record(5, "", 1)
	renewed := func(n int, partition int32) *kgo.Record { return record(n, "a", partition, at(2, n)) }

	type (
		records = []*kgo.Record
		kinds   = []judge.Kind
	)
	for name, test := range map[string]struct {
		records    records
		duplicates int
		faults     kinds
	}{
		"all":              {records{a0, b1, a2, a3, n4, n5}, 0, nil},
		"repeated tail":    {records{a0, b1, a2, b1, a2, a3, n4, n5}, 2, nil},
		"repeated twice":   {records{a0, b1, a0, a0, b1, a2, a3, n4, n5}, 3, nil},
		"lost":             {records{a0, b1, a2, n4, n5}, 0, kinds{judge.Lost}},
		"lost in between":  {records{a0, b1, a3, n4, n5}, 0, kinds{judge.Lost}},
		"lost without key": {records{a0, b1, a2, a3, n5}, 0, kinds{judge.Lost}},
		"phantom":          {records{a0, b1, a2, a3, n4, n5, record(6, "a", 0)}, 0, kinds{judge.Phantom}},
		"wrong key":        {records{a0, record(1, "a", 0), a2, a3, n4, n5}, 0, kinds{judge.Altered}},
		"empty key": {
			records{a0, b1, a2, a3, record(4, "", 0, func(r *kgo.Record) { r.Key = []byte{} }), n5},
			0,
			kinds{judge.Altered},
		},
		"null value": {
			records{a0, b1, a2, record(3, "a", 0, func(r *kgo.Record) { r.Value = nil }), n4, n5},
			0,
			kinds{judge.Altered},
		},
		"wrong topic": {
			records{a0, b1, a2, a3, n4, record(5, "", 1, func(r *kgo.Record) { r.Topic = "u" })},
			0,
			kinds{judge.Altered},
		},
		"reordered": {
			records{a0, b1, a3, a2, n4, n5},
			0,
			kinds{judge.Reordered, judge.PositionFell, judge.Dropped},
		},
		"reordered positions": {
			records{a0, b1, record(2, "a", 0, at(1, 3)), record(3, "a", 0, at(1, 2)), n4, n5},
			0,
			kinds{judge.Reordered, judge.PositionFell, judge.Dropped},
		},
		"swapped": {
			records{a0, b1, record(3, "a", 0, at(1, 2)), record(2, "a", 0, at(1, 3)), n4, n5},
			0,
			kinds{judge.Reordered, judge.KeptReordered},
		},
		"swapped without key": {records{a0, b1, a2, a3, record(5, "", 0), n4}, 0, kinds{judge.PositionFell, judge.Dropped}},
		"other partition":     {records{a0, b1, a2, record(3, "a", 1), n4, n5}, 0, kinds{judge.MovedKey}},
		"repeated elsewhere": {
			records{a0, b1, a2, a3, n4, n5, record(4, "", 2)},
			1,
			kinds{judge.MovedKey, judge.KeptTwice},
		},
		"gap in repeats": {records{a0, b1, a2, a0, a2, a3, n4, n5}, 2, kinds{judge.GapInRepeat}},
		"unstable position": {
			records{a0, b1, a2, a3, record(3, "a", 0, at(1, 32)), record(4, "", 2), n5},
			1,
			kinds{judge.SecondPosition, judge.KeptTwice},
		},
		"wrong value": {
			records{a0, b1, a2, record(3, "a", 0, func(r *kgo.Record) { r.Value = []byte("w") }), n4, n5},
			0,
			kinds{judge.Altered},
		},
		"only with a malformed position": {
			records{a0, b1, a2, record(3, "a", 0, header(2, "00000001-00000001-10-0")), n4, n5},
			0,
			kinds{judge.BadHeaders, judge.Lost},
		},
		"malformed position": {
			records{a0, b1, a2, a3, record(3, "a", 0, header(2, "00000001-00000001-10-0")), n4, n5},
			0,
			kinds{judge.BadHeaders},
		},
		"no stream": {
			records{a0, b1, a2, record(3, "a", 0, header(1, "")), n4, n5},
			0,
			kinds{judge.BadHeaders, judge.StreamChanged},
		},
		"other stream": {
			records{a0, b1, a2, record(3, "a", 0, header(1, "z")), n4, n5},
			0,
			kinds{judge.StreamChanged},
		},

		"new epoch": {records{a0, b1, a2, renewed(3, 0), record(4, "", 0, at(2, 4)), n5}, 0, nil},
		"new epoch, repeated": {
			records{a0, b1, a2, a3, renewed(2, 0), renewed(3, 0), record(4, "", 0, at(2, 4)), n5},
			2, nil,
		},
		"new partition":            {records{a0, b1, a2, n4, n5, renewed(3, 3)}, 0, nil},
		"new partition read first": {records{renewed(2, 3), renewed(3, 3), a0, b1, a2, n4, n5}, 1, nil},
		"new partition, reordered": {records{renewed(2, 3), a0, b1, a3, n4, n5}, 0, kinds{judge.Reordered}},
		"new partition, late write of the old epoch": {
			records{a0, b1, record(4, "", 0, at(2, 4)), renewed(2, 3), renewed(3, 3), n5, a2, a3}, 2, nil,
		},
		"new partition read first, late write of the old epoch": {
			records{renewed(2, 3), renewed(3, 3), a0, b1, record(4, "", 0, at(2, 4)), n5, a2}, 1, nil,
		},
		"new epoch, late write in place": {
			records{a0, b1, a2, renewed(3, 0), record(4, "", 0, at(2, 4)), n5, a3, n4}, 2, nil,
		},
		"new epoch, nothing but a late write": {
			records{a0, b1, a2, record(4, "", 0, at(2, 4)), n5, a3},
			0,
			kinds{judge.PositionFell, judge.Dropped},
		},
		"new partition, kept twice": {
			records{renewed(3, 3), a0, b1, a2, n4, n5, record(3, "a", 3, at(2, 9))},
			1,
			kinds{judge.SecondPosition, judge.KeptTwice},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := judge.New(ledger)
			for offset, r := range test.records {
				r := *r
				r.Offset = int64(offset)
				j.See(&r)
			}
			v := j.Conclude()
			require.ElementsMatch(t, test.faults, v.Kinds(), v.Err())
			require.Equal(t, test.duplicates, v.Duplicates)
			require.Equal(t, strings.HasPrefix(name, "new "), len(v.Epochs) > 1)
			require.Equal(t, len(test.faults) == 0, v.Err() == nil)
			require.NoError(t, v.Err(test.faults...))
		})
	}
}

func TestVerdict_CountsAndNamesFaults(t *testing.T) {
	t.Parallel()
	ledger := judge.NewLedger()
	for n := range 3 {
		require.NoError(t, ledger.Commit(judge.Event{ID: fmt.Sprint(n), Topic: topic, Key: []byte("a"), Value: []byte("v")}))
	}
	j := judge.New(ledger)
	for offset, n := range []int{0, 1, 0, 1, 3} {
		r := record(n, "a", 0)
		r.Offset = int64(offset)
		j.See(r)
	}
	v := j.Conclude()
	require.Equal(t, map[uint32]int{1: 4}, v.Epochs)
	require.Equal(t, "committed 3 delivered 2 lost 1 phantom 1 reordered 0 duplicated 2 after-dedup 2", v.String())
	require.ErrorContains(t, v.Err(), `lost: 1, as ["2"]; phantom: 1, as ["3"]`)
	p := judge.Partition{Topic: topic, ID: 0}
	require.Equal(t, 1, v.RepeatsBetween(judge.Offsets{p: 3}, judge.Offsets{p: 5}))
	require.Equal(t, 2, v.RepeatsBetween(nil, judge.Offsets{p: 5}))
}

func TestLedger_ExcusesADeletedTopic(t *testing.T) {
	t.Parallel()
	ledger := judge.NewLedger()
	commit := func(n int, topic string) {
		require.NoError(t, ledger.Commit(judge.Event{ID: fmt.Sprint(n), Topic: topic, Key: []byte("a"), Value: []byte("v")}))
	}
	commit(0, topic)
	commit(1, "u")
	ledger.Excuse(topic)
	commit(2, topic)
	commit(3, topic)

	j := judge.New(ledger)
	j.See(record(3, "a", 0))
	v := j.Conclude()
	require.Equal(t, 1, v.Excused)
	require.ErrorContains(t, v.Err(), `lost: 2, as ["1" "2"]`)
}

func TestLedger_ExcusesAGap(t *testing.T) {
	t.Parallel()
	ledger := judge.NewLedger()
	commit := func(from, to int) {
		for n := from; n < to; n++ {
			require.NoError(t, ledger.Commit(judge.Event{ID: fmt.Sprint(n), Topic: topic, Key: []byte("a"), Value: []byte("v")}))
		}
	}
	commit(0, 2)
	begin := ledger.Len()
	commit(2, 5)
	ledger.Gap(begin, ledger.Len())
	commit(5, 7)

	j := judge.New(ledger)
	for offset, n := range []int{0, 3, 6} { // an event of the gap may arrive all the same
		r := record(n, "a", 0)
		r.Offset = int64(offset)
		j.See(r)
	}
	v := j.Conclude()
	require.Equal(t, 2, v.Excused)
	require.ErrorContains(t, v.Err(), `lost: 2, as ["1" "5"]`)
	require.Equal(t, 2, v.AfterDedup())
	require.Equal(t, map[uint32]int{1: 3}, v.Timelines)
}

// A UUID is kept as a number, and must arrive as it was written all the same.
func TestJudge_ComparesTheSpellingOfIDs(t *testing.T) {
	t.Parallel()
	const id = "00000000-0000-0000-0000-00000000000a"
	for spelling, faults := range map[string][]judge.Kind{
		id:                              nil,
		strings.ToUpper(id):             {judge.Altered},
		strings.ReplaceAll(id, "-", ""): {judge.Altered},
	} {
		ledger := judge.NewLedger()
		require.NoError(t, ledger.Commit(judge.Event{ID: id, Topic: topic, Key: []byte("a"), Value: []byte("v")}))
		j := judge.New(ledger)
		j.See(record(1, "a", 0, header(0, spelling)))
		require.Equal(t, faults, j.Conclude().Kinds(), spelling)
	}
}

func TestLedger_RefusesAnIDTwice(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"7", "00000000-0000-0000-0000-000000000007", "an id that is longer than sixteen bytes"} {
		ledger := judge.NewLedger()
		require.NoError(t, ledger.Commit(judge.Event{ID: id}))
		require.ErrorContains(t, ledger.Commit(judge.Event{ID: id}), id)
		require.Equal(t, 1, ledger.Len())
	}
}

// Routing may be changed at a restart. What was delivered before may come again as it is routed then.
func TestLedger_Reroute(t *testing.T) {
	t.Parallel()
	elsewhere := func(r *kgo.Record) { r.Topic, r.Key = "u", []byte("b") }
	for name, test := range map[string]struct {
		records []*kgo.Record
		faults  []judge.Kind
	}{
		"repeated":      {[]*kgo.Record{record(0, "a", 0), record(0, "a", 2, at(2, 0), elsewhere)}, nil},
		"not delivered": {[]*kgo.Record{record(0, "a", 2, at(2, 0), elsewhere)}, nil},
		"too early":     {[]*kgo.Record{record(0, "a", 2, elsewhere)}, []judge.Kind{judge.Altered}},
		"not at all":    {[]*kgo.Record{record(0, "a", 0, at(2, 0))}, []judge.Kind{judge.Altered}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ledger := judge.NewLedger()
			event := judge.Event{ID: "0", Topic: "u", Key: []byte("b"), Value: []byte("v")}
			require.Error(t, ledger.Reroute(2, event))
			require.NoError(t, ledger.Commit(judge.Event{ID: "0", Topic: topic, Key: []byte("a"), Value: []byte("v")}))
			require.NoError(t, ledger.Reroute(2, event))
			j := judge.New(ledger)
			for _, r := range test.records {
				j.See(r)
			}
			require.Equal(t, test.faults, j.Conclude().Kinds())
		})
	}
}
