package main

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// errLoss is the verdict on events that were lost, invented or out of order. The summary shows it.
var errLoss = errors.New("events were lost, invented or out of order")

// summarise prints what came of it; the last line is for programs. It returns the verdict.
func (p *play) summarise(out io.Writer) error {
	now := time.Now()
	t, state := p.ledger.totals(), p.broker.state(now)
	_, latency := p.ledger.latencies(now)
	lagSeconds, lagBytes := p.relay.highest()
	lost := t.inFlight()

	_, _ = fmt.Fprintf(out, `
walrelay demo, %s with PostgreSQL %s
  committed      %10s events
  rolled back    %10s events, of which %d arrived
  delivered      %10s events
  lost           %10s
  duplicates     %10s
  out of order   %10s within a customer
  outages        %10s of the broker, %s in all
  highest lag    %10s, %s
  latency        %10s p50, %s p99 from COMMIT to consumer, outages too

`,
		clock(now.Sub(p.began)), p.database.version,
		thousands(t.committed), thousands(t.rolledBack), t.phantoms, thousands(t.delivered),
		thousands(lost), thousands(t.duplicates), thousands(t.disorder),
		thousands(state.outages), seconds(state.downtime.Seconds()),
		seconds(lagSeconds), size(lagBytes),
		short(latency.quantile(0.5)), short(latency.quantile(0.99)))
	_, _ = fmt.Fprintf(out, "committed %d delivered %d lost %d duplicates %d\n",
		t.committed, t.delivered, lost, t.duplicates)
	if lost > 0 || t.phantoms > 0 || t.disorder > 0 {
		return errLoss
	}
	return nil
}
