package judge_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
)

// marked is a record with the headers of its place: the index-th event of the transaction at an LSN. A count of 0 is
// none.
func marked(n int, partition int32, lsn string, index, count int, changes ...change) *kgo.Record {
	place := fmt.Sprintf("00000001-%016s", lsn)
	r := record(n, "a", partition, header(2, fmt.Sprintf("00000001-%s-%08X", place, index)))
	r.Headers = append(r.Headers,
		kgo.RecordHeader{Key: "walrelay-transaction-id", Value: []byte(place)},
		kgo.RecordHeader{Key: "walrelay-transaction-index", Value: fmt.Append(nil, index)})
	if count > 0 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "walrelay-transaction-count", Value: fmt.Append(nil, count)})
	}
	for _, c := range changes {
		c(r)
	}
	return r
}

func TestJudge_PutsTransactionsTogether(t *testing.T) {
	t.Parallel()
	ledger := judge.NewLedger()
	commit := func(from, to int) { // events of no key, which may lie in any partition
		var events []judge.Event
		for n := from; n < to; n++ {
			events = append(events, judge.Event{ID: fmt.Sprint(n), Topic: topic, Value: []byte("v")})
		}
		require.NoError(t, ledger.Commit(events...))
	}
	commit(0, 1)
	commit(1, 4)
	begin := ledger.Len()
	commit(4, 6)
	ledger.Gap(begin, ledger.Len())
	keyless := func(r *kgo.Record) { r.Key = nil }
	see := func(n int, partition int32, lsn string, index, count int, changes ...change) *kgo.Record {
		return marked(n, partition, lsn, index, count, append(changes, keyless)...)
	}
	without := func(i int) change {
		return func(r *kgo.Record) { r.Headers = append(r.Headers[:i:i], r.Headers[i+1:]...) }
	}
	e0, e1, e2, e3 := see(0, 0, "10", 0, 1), see(1, 0, "20", 0, 0), see(2, 1, "20", 1, 0), see(3, 0, "20", 2, 3)
	epoch2 := func(lsn string) change {
		return header(2, fmt.Sprintf("00000002-00000001-%016s-%08X", lsn, 2))
	}

	type records []*kgo.Record
	wrong, torn, lost := []judge.Kind{judge.WrongMarkers}, []judge.Kind{judge.Torn}, []judge.Kind{judge.Lost}
	for name, test := range map[string]struct {
		records records
		faults  []judge.Kind
	}{
		"whole":                   {records{e0, e1, e2, e3}, nil},
		"of a gap, in part":       {records{e0, e1, e2, e3, see(5, 0, "30", 1, 2)}, nil},
		"repeated":                {records{e0, e1, e2, e3, e3}, nil},
		"repeated in a new epoch": {records{e0, e1, e2, e3, see(3, 0, "20", 2, 3, epoch2("20"))}, nil},
		"without an id":           {records{e0, e1, see(2, 1, "20", 1, 0, without(3)), e3}, wrong},
		"without an index":        {records{e0, e1, see(2, 1, "20", 1, 0, without(4)), e3}, wrong},
		"without the count":       {records{e0, e1, e2, see(3, 0, "20", 2, 0)}, wrong},
		"with a wrong count":      {records{e0, e1, e2, see(3, 0, "20", 2, 2)}, wrong},
		"with a second count":     {records{e0, e1, see(2, 1, "20", 1, 2), e3}, wrong},
		"with another's id": {
			records{e0, e1, see(2, 1, "20", 1, 0, header(3, "00000001-0000000000000030")), e3},
			wrong,
		},
		"an index is skipped":    {records{e0, e1, see(2, 1, "20", 2, 0), e3}, wrong},
		"marked otherwise later": {records{e0, e1, e2, e3, see(3, 0, "20", 2, 0)}, wrong},
		"torn":                   {records{e0, e1, see(2, 1, "21", 1, 0), e3}, torn},
		"joined with another":    {records{see(0, 1, "20", 0, 1), e1, e2, e3}, torn},
		"lost":                   {records{e0, e1, e3}, lost},
		"moved in a new epoch":   {records{e0, e1, e2, e3, see(3, 0, "22", 2, 3, epoch2("22"))}, torn},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := judge.New(ledger)
			j.Transactions = true
			for _, r := range test.records {
				j.See(r)
			}
			v := j.Conclude()
			require.ElementsMatch(t, test.faults, v.Kinds(), v.Err())
		})
	}
}

func TestJudge_ReadsAsItIsTold(t *testing.T) {
	t.Parallel()
	ledger := judge.NewLedger()
	require.NoError(t, ledger.Commit(judge.Event{ID: "0", Topic: topic, Key: []byte("a"), Value: []byte("v")}))
	for name, test := range map[string]struct {
		read func(r *kgo.Record) (judge.Event, error)
		err  string
	}{
		"right": {func(r *kgo.Record) (judge.Event, error) {
			return judge.Event{ID: "0", Topic: r.Topic, Key: r.Key, Value: r.Value[1:]}, nil
		}, ""},
		"other value": {func(r *kgo.Record) (judge.Event, error) {
			return judge.Event{ID: "0", Topic: r.Topic, Key: r.Key, Value: r.Value}, nil
		}, `altered: 1, as ["0"]`},
		"other id": {func(r *kgo.Record) (judge.Event, error) {
			return judge.Event{ID: "1", Topic: r.Topic, Key: r.Key, Value: r.Value[1:]}, nil
		}, `altered: 1, as ["0"]`},
		"unreadable": {func(*kgo.Record) (judge.Event, error) {
			return judge.Event{}, errors.New("no JSON")
		}, `altered: 1, as ["0: no JSON"]`},
	} {
		j := judge.New(ledger)
		j.Read = test.read
		j.See(record(0, "a", 0, func(r *kgo.Record) { r.Value = []byte("wv") }))
		err := j.Conclude().Err()
		if test.err == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, test.err, name)
		}
	}
}
