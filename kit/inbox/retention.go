package inbox

import (
	"errors"
	"fmt"
	"time"
)

// Retention says how long records are kept. A message that comes again after its record has gone is
// applied again, so records have to outlive whatever may deliver it: the retention of the topic (a
// consumer may be set back to its beginning), or the time over which a provider repeats its webhooks.
type Retention struct {
	// Keep is the age at which a record may be removed.
	Keep time.Duration
	// RetryWindow is the longest time after which the same message may still come.
	RetryWindow time.Duration
}

// ErrRetention is returned for a Keep that is not longer than the RetryWindow, or without a RetryWindow.
var ErrRetention = errors.New("records must be kept for longer than the longest retry window")

// Validate reports whether the retention is long enough.
func (r Retention) Validate() error {
	if r.RetryWindow <= 0 || r.Keep <= r.RetryWindow {
		return fmt.Errorf("keep %s, retry window %s: %w", r.Keep, r.RetryWindow, ErrRetention)
	}
	return nil
}
