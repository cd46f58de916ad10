package monitor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLimits_Ready(t *testing.T) {
	t.Parallel()
	limits := Limits{Progress: time.Minute, Confirm: 2 * time.Minute, Receive: 30 * time.Second}
	ago := func(d time.Duration) time.Time { return noon().Add(-d) }

	for name, test := range map[string]struct {
		change func(*Status)
		ready  bool
		reason string
	}{
		"streaming":         {func(*Status) {}, true, "streaming"},
		"nothing in flight": {func(s *Status) { s.OldestUnsettled = time.Time{} }, true, "streaming"},
		"just started": {func(s *Status) {
			s.Since, s.LastReceived = ago(time.Second), time.Time{}
		}, true, "streaming"},
		"heard before a reconnect": {func(s *Status) {
			s.Since, s.LastReceived = ago(time.Second), ago(time.Hour)
		}, true, "streaming"},
		"catching up with an old backlog": {func(s *Status) {
			s.InFlightEvents, s.LastProgress, s.OldestUnsettled = 7, ago(time.Second), ago(time.Hour)
		}, true, "streaming"},
		"no acknowledgement at the limit": {func(s *Status) {
			s.InFlightEvents, s.LastProgress, s.Since = 7, ago(time.Minute), ago(time.Hour)
		}, true, "streaming"},
		"no acknowledgement over the limit": {func(s *Status) {
			s.InFlightEvents, s.LastProgress, s.Since = 7, ago(time.Minute+time.Second), ago(time.Hour)
		}, false, "7 events wait, and the oldest has not been acknowledged for 1m1s (limit 1m0s)"},
		"what holds delivery up has a name": {func(s *Status) {
			s.InFlightEvents, s.LastProgress, s.Since = 7, ago(time.Hour), ago(time.Hour)
			s.Troubles = []Trouble{{Object: "topic a", Reason: "no such topic"}, {Object: "broker b:9092", Reason: "refused"}}
		}, false, "(limit 1m0s)\ntopic a: no such topic\nbroker b:9092: refused"},
		"trouble, and progress all the same": {func(s *Status) {
			s.Troubles = []Trouble{{Object: "topic a"}}
		}, true, "streaming"},
		"confirmed at the limit": {func(s *Status) {
			s.LastConfirmed, s.Since = ago(2*time.Minute), ago(time.Hour)
		}, true, "streaming"},
		"confirmed over the limit": {func(s *Status) {
			s.LastConfirmed, s.Since = ago(2*time.Minute+time.Second), ago(time.Hour)
		}, false, "1/200 is delivered, and the confirmed position has stayed at 1/100 for 2m1s (limit 2m0s)"},
		"confirmed before a reconnect": {func(s *Status) {
			s.LastConfirmed, s.Since = ago(time.Hour), ago(time.Minute)
		}, true, "streaming"},
		"no acknowledgement needed": {func(s *Status) {
			s.InFlightEvents, s.LastProgress, s.Since = 0, ago(time.Hour), ago(time.Hour)
		}, true, "streaming"},
		"silence at the limit": {func(s *Status) { s.LastReceived = ago(30 * time.Second) }, true, "streaming"},
		"silence over the limit": {func(s *Status) {
			s.LastReceived = ago(31 * time.Second)
		}, false, "nothing received from PostgreSQL for 31s (limit 30s)"},
		"never heard":          {func(s *Status) { s.LastReceived = time.Time{} }, false, "nothing received"},
		"standby":              {func(s *Status) { s.State, s.LastReceived = Standby, time.Time{} }, true, "standby"},
		"standby with old lag": {func(s *Status) { s.State, s.OldestUnsettled = Standby, ago(time.Hour) }, true, "standby"},
		"paused": {func(s *Status) {
			s.State, s.Reason, s.LastReceived = Paused, "paused since noon by me", time.Time{}
		}, true, "paused since noon by me"},
		"connecting": {func(s *Status) {
			s.State, s.Reason = Connecting, "connection refused"
		}, false, "connecting: connection refused"},
		"draining":      {func(s *Status) { s.State = Draining }, false, "draining"},
		"stopped":       {func(s *Status) { s.State = Stopped }, false, "stopped"},
		"unknown state": {func(s *Status) { s.State = "" }, false, ""},
		"stuck for no time": {func(s *Status) {
			s.State, s.Reason, s.OldestUnsettled = Stuck, "why", time.Time{}
		}, false, "stuck: why"},
		"stuck on an event": {func(s *Status) {
			s.State, s.StuckOn = Stuck, &Poison{
				Position: "00000001-P", EventID: "e1", Table: "public.outbox", Topic: "outbox.event.order",
				Reason: "record is larger than the topic allows",
			}
		}, false, "stuck: event \"e1\" of table public.outbox, topic outbox.event.order, cannot be delivered: " +
			"record is larger than the topic allows\nposition: 00000001-P\n" +
			"release: walrelay stream release 00000001-P --verdict retry|skip|dead-letter"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := streaming()
			test.change(&status)
			ready, reason := limits.Ready(&status, noon())
			require.Equal(t, test.ready, ready, reason)
			require.Contains(t, reason, test.reason)
		})
	}
}

func TestLimits_Alive(t *testing.T) {
	t.Parallel()
	limits := Limits{Tick: time.Minute}
	for name, test := range map[string]struct {
		tick  time.Time
		alive bool
	}{
		"ticks":         {noon().Add(-time.Minute), true},
		"hangs":         {noon().Add(-time.Minute - time.Second), false},
		"does not tell": {time.Time{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// No other trouble counts: an outage must not restart the process.
			alive, reason := limits.alive(&Status{State: Stuck, LastTick: test.tick}, noon())
			require.Equal(t, test.alive, alive, reason)
		})
	}
}
