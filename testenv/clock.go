package testenv

import (
	"testing"
	"time"
)

// StayWithin waits for the next full hour or day, UTC, if less is left of this one than a test needs whose expectation
// is counted from it.
func StayWithin(t testing.TB, period, needed time.Duration) {
	t.Helper()
	left := time.Until(time.Now().Truncate(period).Add(period))
	if left > needed {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}
