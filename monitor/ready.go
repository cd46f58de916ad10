package monitor

import (
	"fmt"
	"strings"
	"time"
)

// Limits are the ages from which a stream counts as not ready or not alive.
type Limits struct {
	// ReadyLag is the age of the oldest unsettled transaction from which the stream is not ready.
	ReadyLag time.Duration
	// Receive is the silence of the server from which a streaming connection counts as dead.
	Receive time.Duration
	// Tick is how long the stream's loop may take to go round, waiting for a retry included.
	Tick time.Duration
}

// Ready decides /readyz and says why. A stream is ready when it
//
//   - stands by: another session holds the slot and this one will take over;
//   - or streams, the server was heard within Receive (or streaming began within it), and the oldest
//     unsettled transaction is younger than ReadyLag on the server's clock.
//
// Catching up with an old backlog is therefore not ready, however fast, and neither is a stuck
// stream, whatever its age.
func (l Limits) Ready(s *Status, now time.Time) (ready bool, reason string) {
	switch s.State {
	case Standby:
		return true, "standby: another session holds the slot"
	case Streaming:
		return l.progress(s, now)
	case Stuck:
		return false, s.stuck()
	case Connecting, Draining, Stopped:
	}
	reason = string(s.State)
	if s.Reason != "" {
		reason += ": " + s.Reason
	}
	return false, reason
}

func (l Limits) progress(s *Status, now time.Time) (ready bool, reason string) {
	heard := s.LastReceived
	if heard.Before(s.Since) {
		heard = s.Since
	}
	if silence := now.Sub(heard); silence > l.Receive {
		return false, fmt.Sprintf("streaming: nothing received from PostgreSQL for %s (limit %s)",
			silence.Round(time.Second), l.Receive)
	}
	if !s.OldestUnsettled.IsZero() {
		if age := now.Add(s.ClockOffset).Sub(s.OldestUnsettled); age > l.ReadyLag {
			return false, fmt.Sprintf("streaming: the oldest undelivered transaction is %s old (limit %s)",
				age.Round(time.Second), l.ReadyLag)
		}
	}
	return true, "streaming"
}

// stuck names the event and the command that releases it.
func (s *Status) stuck() string {
	p := s.StuckOn
	if p == nil {
		return "stuck: " + s.Reason
	}
	var b strings.Builder
	fmt.Fprintf(&b, "stuck: event %q of table %s", p.EventID, p.Table)
	if p.Topic != "" {
		fmt.Fprintf(&b, ", topic %s", p.Topic)
	}
	fmt.Fprintf(&b, ", cannot be delivered: %s\nposition: %s\n", p.Reason, p.Position)
	fmt.Fprintf(&b, "release: walrelay stream release %s --verdict retry|skip|dead-letter", p.Position)
	return b.String()
}

// alive decides /livez: the loop has gone round within Tick. A stream that does not tell is alive.
func (l Limits) alive(s *Status, now time.Time) (alive bool, reason string) {
	if age := now.Sub(s.LastTick); !s.LastTick.IsZero() && age > l.Tick {
		return false, fmt.Sprintf("the stream's loop has not gone round for %s (limit %s)", age.Round(time.Second), l.Tick)
	}
	return true, "alive"
}
