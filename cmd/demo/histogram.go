package main

import (
	"math"
	"time"
)

// Buckets grow by a twentieth, from 10 µs to about six minutes.
const (
	buckets      = 360
	bucketGrowth = 1.05
	bucketFirst  = 10 * time.Microsecond
)

// histogram counts durations with an error of at most a twentieth.
type histogram [buckets]uint32

func (h *histogram) add(d time.Duration) {
	i := math.Ceil(math.Log(float64(max(d, bucketFirst))/float64(bucketFirst)) / math.Log(bucketGrowth))
	h[min(int(i), buckets-1)]++
}

// quantile is the upper bound of the bucket below which that share of the durations lies. It is 0 when
// there are none.
func (h *histogram) quantile(q float64) time.Duration {
	var total uint64
	for _, n := range h {
		total += uint64(n)
	}
	var seen uint64
	for i, n := range h {
		if seen += uint64(n); n > 0 && float64(seen) >= q*float64(total) {
			return time.Duration(float64(bucketFirst) * math.Pow(bucketGrowth, float64(i)))
		}
	}
	return 0
}

// window is the histogram of the last ten seconds.
type window struct {
	seconds [10]histogram
	second  int64 // the Unix second of the newest
}

// at returns the histogram of the second that has begun, after clearing those that are too old.
func (w *window) at(now time.Time) *histogram {
	second := now.Unix()
	w.second = max(w.second, second-int64(len(w.seconds)))
	for w.second < second {
		w.second++
		w.seconds[w.second%int64(len(w.seconds))] = histogram{}
	}
	return &w.seconds[w.second%int64(len(w.seconds))]
}

func (w *window) sum(now time.Time) (total histogram) {
	w.at(now)
	for i := range w.seconds {
		for bucket, n := range w.seconds[i] {
			total[bucket] += n
		}
	}
	return total
}
