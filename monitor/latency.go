package monitor

import (
	"math/bits"
	"sync"
	"time"
)

// latencies counts commit-to-acknowledgement times between two samples of the history, for their quantiles.
// The metric's histogram has too few buckets for that, and it never forgets.
type latencies struct {
	mu     sync.Mutex
	counts [latencyBuckets]uint64
	events uint64 // all that were acknowledged
}

// Eight buckets for each doubling of microseconds: a bucket is an eighth of its value wide.
const (
	latencySteps   = 8
	maxLatencyBits = 32 // 71 minutes; what took longer counts as that
	latencyBuckets = (maxLatencyBits - 2) * latencySteps
)

func (l *latencies) add(commits []time.Time, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events += uint64(len(commits))
	for _, commit := range commits {
		l.counts[latencyBucket(now.Sub(commit))]++
	}
}

// latencyBucket numbers the bucket: below 16 microseconds one for each, then eight for each doubling.
func latencyBucket(d time.Duration) int {
	us := uint64(min(max(d.Microseconds(), 0), 1<<maxLatencyBits-1))
	shift := max(bits.Len64(us)-4, 0)
	return shift*latencySteps + int(us>>shift)
}

// bucketSeconds is the middle of a bucket.
func bucketSeconds(bucket int) float64 {
	shift := max(bucket/latencySteps-1, 0)
	low := uint64(bucket-shift*latencySteps) << shift
	return (float64(low) + float64(uint64(1)<<shift)/2) / 1e6
}

// take returns how many events were acknowledged since the last call, and two quantiles of their times in
// seconds, which are nil without any.
func (l *latencies) take() (events uint64, p50, p99 *float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	quantile := func(q float64) *float64 {
		rank, seen := uint64(q*float64(l.events)), uint64(0)
		for bucket, n := range l.counts {
			if seen += n; seen > rank {
				return new(bucketSeconds(bucket))
			}
		}
		return nil
	}
	events, p50, p99 = l.events, quantile(0.5), quantile(0.99)
	l.events = 0
	clear(l.counts[:])
	return events, p50, p99
}
