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

// ends is where the next records of topics will go. A partition may have no leader for a while, and so no end: when its
// broker has just been started, or was taken for gone on a busy machine.
func (s *setup) ends(topics ...string) judge.Offsets {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), wait)
	defer cancel()
	ends, err := judge.EndOffsets(ctx, s.cluster.Admin, topics...)
	if err != nil {
		require.Eventually(s.t, func() bool {
			ends, err = judge.EndOffsets(ctx, s.cluster.Admin, topics...)
			return err == nil
		}, wait, tick, err.Error())
	}
	return ends
}
