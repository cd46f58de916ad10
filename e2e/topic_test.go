package e2e

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/e2e/judge"
)

// event is what must arrive of a row that insert or insertOwn writes.
func (s *setup) event(id, key, payload string) judge.Event {
	return judge.Event{ID: id, Topic: s.topic, Key: []byte(key), Value: []byte(payload)}
}

// judge compares the whole topic, as it is now, with what was committed, and forgives nothing but
// duplicates. No epoch may have been raised: what is right only then would pass otherwise.
func (s *setup) judge(ledger *judge.Ledger) *judge.Verdict {
	s.t.Helper()
	v := s.verdict(ledger, s.topic)
	require.NoError(s.t, v.Err(), v)
	require.Len(s.t, v.Epochs, 1)
	return v
}

// verdict is what the judge finds in topics as they are now.
func (s *setup) verdict(ledger *judge.Ledger, topics ...string) *judge.Verdict {
	s.t.Helper()
	if s.committed {
		s.marked()
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	v, err := judge.Topics(ctx, judge.Source{
		Brokers: s.cluster.Addrs(), Topics: topics, Committed: s.committed,
	}, ledger)
	require.NoError(s.t, err)
	return v
}

// ends is where the next records of a topic will go.
func (s *setup) ends(topic string) judge.Offsets {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), wait)
	defer cancel()
	ends, err := judge.EndOffsets(ctx, s.cluster.Admin, topic)
	require.NoError(s.t, err)
	return ends
}
