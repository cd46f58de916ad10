package monitor

import (
	"fmt"
	"strings"
	"time"
)

// Limits are the ages from which a stream counts as not ready or not alive.
type Limits struct {
	// Progress is how long the oldest event in flight may go without an acknowledgement.
	Progress time.Duration
	// Confirm is how long the confirmed position may stay behind what is delivered without moving.
	Confirm time.Duration
	// Receive is the silence of the server from which a streaming connection counts as dead.
	Receive time.Duration
	// Tick is how long the stream's loop may take to go round, waiting for a retry included.
	Tick time.Duration
}

// Ready decides /readyz and says why. A stream is ready when it
//
//   - stands by: another session holds the slot and this one will take over;
//   - or publishes the rows from before its slot, of which some were acknowledged within Progress;
//   - or rests at the operator's word: nothing is amiss with it, and a rollout must not wait;
//   - or streams, the server was heard within Receive, and the oldest event in flight was acknowledged
//     within Progress and what is delivered confirmed within Confirm, as far as there was any (or streaming
//     began within these times).
//
// Catching up with a backlog is ready, however old that is; a stuck stream never is.
func (l Limits) Ready(s *Status, now time.Time) (ready bool, reason string) {
	switch s.State {
	case Standby:
		return true, "standby: another session holds the slot"
	case Paused:
		return true, s.Reason
	case Streaming:
		ready, reason = l.progress(s, now)
		if s.OverBudget {
			reason += fmt.Sprintf("\nthe server keeps more write-ahead log for the slot than WALRELAY_WAL_BUDGET, %d bytes",
				s.WALBudget)
		}
		return ready, reason
	case Backfilling:
		return l.backfilling(s, now)
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

func (l Limits) backfilling(s *Status, now time.Time) (ready bool, reason string) {
	last := s.LastProgress
	if last.Before(s.Since) {
		last = s.Since
	}
	if still := now.Sub(last); still > l.Progress {
		return false, fmt.Sprintf("backfilling: no row has been acknowledged for %s (limit %s); %s",
			still.Round(time.Second), l.Progress, s.Reason)
	}
	return true, "backfilling: " + s.Reason
}

func (l Limits) progress(s *Status, now time.Time) (ready bool, reason string) {
	since := func(moment time.Time) time.Duration {
		if moment.Before(s.Since) {
			moment = s.Since
		}
		return now.Sub(moment)
	}
	if silence := since(s.LastReceived); silence > l.Receive {
		return false, fmt.Sprintf("streaming: nothing received from PostgreSQL for %s (limit %s)",
			silence.Round(time.Second), l.Receive)
	}
	if still := since(s.LastProgress); s.InFlightEvents > 0 && still > l.Progress {
		return false, fmt.Sprintf("streaming: %d events wait, and the oldest has not been acknowledged for %s (limit %s)%s",
			s.InFlightEvents, still.Round(time.Second), l.Progress, s.troubles())
	}
	if still := since(s.LastConfirmed); still > l.Confirm {
		return false, fmt.Sprintf("streaming: %s is delivered, and the confirmed position has stayed at %s for %s (limit %s)",
			s.Frontier, s.Confirmed, still.Round(time.Second), l.Confirm)
	}
	return true, "streaming"
}

// troubles names what holds delivery up, one a line.
func (s *Status) troubles() string {
	var b strings.Builder
	for i, t := range s.Troubles {
		if i == shownTroubles {
			fmt.Fprintf(&b, "\nand %d more", len(s.Troubles)-i)
			break
		}
		fmt.Fprintf(&b, "\n%s: %s", t.Object, t.Reason)
	}
	return b.String()
}

// shownTroubles limits what /readyz and /metrics name: topics come from the rows, so there may be many.
const shownTroubles = 20

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
	b.WriteString("release: " + p.Release())
	return b.String()
}

// Release is the command that releases the event.
func (p *Poison) Release() string {
	return "walrelay stream release " + p.Position + " --verdict retry|skip|dead-letter"
}

// alive decides /livez: the loop has gone round within Tick. A stream that does not tell is alive.
func (l Limits) alive(s *Status, now time.Time) (alive bool, reason string) {
	if age := now.Sub(s.LastTick); !s.LastTick.IsZero() && age > l.Tick {
		return false, fmt.Sprintf("the stream's loop has not gone round for %s (limit %s)", age.Round(time.Second), l.Tick)
	}
	return true, "alive"
}
