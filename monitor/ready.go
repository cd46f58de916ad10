package monitor

import (
	"fmt"
	"strings"
	"time"
)

// Limits are the ages from which a stream counts as not ready or not alive.
type Limits struct {
	// Progress is how long a stream with events in flight may go without an acknowledgement.
	Progress time.Duration
	// Receive is the silence of the server from which a streaming connection counts as dead.
	Receive time.Duration
	// Tick is how long the stream's loop may take to go round, waiting for a retry included.
	Tick time.Duration
}

// Ready decides /readyz and says why. A stream is ready when it
//
//   - stands by: another session holds the slot and this one will take over;
//   - or streams, the server was heard within Receive, and nothing is in flight or something was
//     acknowledged within Progress (or streaming began within these times).
//
// Catching up with a backlog is ready, however old that is; a stuck stream never is.
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
	moved := s.LastProgress
	if moved.Before(s.Since) {
		moved = s.Since
	}
	if still := now.Sub(moved); s.InFlightEvents > 0 && still > l.Progress {
		return false, fmt.Sprintf("streaming: %d events wait, and the brokers have acknowledged nothing for %s (limit %s)",
			s.InFlightEvents, still.Round(time.Second), l.Progress)
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
