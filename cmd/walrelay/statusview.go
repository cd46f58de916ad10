package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/checkpoint"
)

// statusView is what `walrelay status` shows: the server's word, and an instance's where that answers.
type statusView struct {
	Stream string    `json:"stream"`
	Time   time.Time `json:"time"`
	State  string    `json:"state"`
	Reason string    `json:"reason,omitempty"`

	Registry string `json:"registry_error,omitempty"` // why the registry tells nothing
	Epoch    uint32 `json:"epoch,omitempty"`
	Delivery string `json:"delivery,omitempty"`

	Slot          slotView `json:"slot"`
	SecondsBehind *float64 `json:"seconds_behind"` // null: unknown

	// ConfirmedPerSecond is bytes of log, EventsPerSecond what the instance has read; null: unknown.
	ConfirmedPerSecond *float64 `json:"confirmed_bytes_per_second"`
	EventsPerSecond    *float64 `json:"events_per_second"`

	Holder   *holderView     `json:"active_session,omitempty"`
	Standbys []holderView    `json:"standbys,omitempty"`
	Instance *instanceAnswer `json:"instance"`

	DeadLetters map[checkpoint.Action]int64 `json:"dead_letters,omitempty"`
	Verdicts    map[string]string           `json:"verdicts,omitempty"` // not carried out yet, by position

	// LeftOut is what an operator has left out on purpose, and Replay the command that publishes it.
	LeftOut string `json:"left_out,omitempty"`
	Replay  string `json:"replay,omitempty"`
	// GivenUp is how the slot ended that kept more log than its budget.
	GivenUp string `json:"given_up,omitempty"`

	paused *cdc.Pause
}

type slotView struct {
	Name           string `json:"name"`
	Exists         bool   `json:"exists"`
	Words          string `json:"wal_status,omitempty"`
	Lost           bool   `json:"lost"`
	Confirmed      string `json:"confirmed_lsn,omitempty"`
	Current        string `json:"current_lsn"`
	ConfirmedBytes int64  `json:"confirmed_bytes"` // not yet confirmed
	RetainedBytes  int64  `json:"retained_bytes"`
	SafeWALBytes   *int64 `json:"safe_wal_bytes,omitempty"`

	confirmed uint64
}

type holderView struct {
	PID         int32     `json:"pid"`
	Application string    `json:"application"`
	Client      string    `json:"client"`
	Since       time.Time `json:"since"`
}

func (v *statusView) register(known *cdc.Summary) {
	v.Epoch, v.Delivery, v.DeadLetters, v.paused = known.Epoch, known.Delivery, known.DeadLetters, known.Pause
	if known.LeftOut != nil {
		v.LeftOut, v.Replay = known.LeftOut.String(), known.LeftOut.Replay()
	}
	if known.GivenUp != nil {
		v.GivenUp = known.GivenUp.String()
	}
	v.Verdicts = make(map[string]string, len(known.Releases))
	for position, verdict := range known.Releases {
		v.Verdicts[position.String()] = string(verdict)
	}
}

func (v *statusView) slot(r *cdc.SlotReport) {
	v.Slot = slotView{Name: r.Name, Exists: r.Exists, Current: r.Current.String()}
	if !r.Exists {
		return
	}
	v.Slot.Words, v.Slot.Lost, v.Slot.Confirmed = walStatus(r), r.Lost(), r.ConfirmedFlush.String()
	v.Slot.ConfirmedBytes, v.Slot.RetainedBytes = r.ConfirmedBytes(), r.RetainedBytes()
	v.Slot.SafeWALBytes, v.Slot.confirmed = r.SafeWALSize, uint64(r.ConfirmedFlush)
	if h := r.Holder; h != nil {
		v.Holder = &holderView{PID: h.PID, Application: h.Application, Client: h.Client, Since: h.Since}
	}
}

// compare takes the rates over the time since the last look.
func (v *statusView) compare(last *statusView) {
	if in := v.Instance; in != nil && in.SecondsBehind != nil {
		switch in.State {
		case "streaming", "stuck", "draining": // it knows better than the server
			v.SecondsBehind = in.SecondsBehind
		}
	}
	if last == nil {
		return
	}
	seconds := v.Time.Sub(last.Time).Seconds()
	if last.Slot.Exists && v.Slot.Exists && v.Slot.confirmed >= last.Slot.confirmed {
		rate := float64(v.Slot.confirmed-last.Slot.confirmed) / seconds
		v.ConfirmedPerSecond = &rate
	}
	now, then := v.Instance, last.Instance
	if now != nil && then != nil && now.Error == "" && then.Error == "" && now.Events >= then.Events {
		rate := float64(now.Events-then.Events) / seconds
		v.EventsPerSecond = &rate
	}
}

// judge finds the one word for it all. The instance that answers may be the standby, so it is believed about
// itself only.
func (v *statusView) judge() {
	in := v.Instance
	switch {
	case v.Slot.Exists && v.Slot.Lost:
		v.State, v.Reason = "lost", strings.TrimPrefix(v.Slot.Words, "lost: ")
	case in != nil && in.State == "stuck":
		v.State, v.Reason = "stuck", in.Reason
	case in != nil && in.State == "backfilling":
		v.State, v.Reason = "backfilling", in.Reason
	case v.paused != nil && v.Holder != nil:
		v.State, v.Reason = "pausing", v.paused.String()
	case v.paused != nil:
		v.State, v.Reason = "paused", v.paused.String()
	case v.Holder != nil:
		v.State = "active"
	case !v.Slot.Exists && v.Epoch == 0:
		v.State, v.Reason = "new", "neither stream nor slot exist"
	case !v.Slot.Exists && v.GivenUp != "":
		v.State, v.Reason = "given up", v.GivenUp
	case !v.Slot.Exists:
		v.State, v.Reason = "without slot", "the slot does not exist"
	default:
		v.State, v.Reason = "inactive", "nobody streams"
	}
}

// text is one screen.
func (v *statusView) text() string {
	var b strings.Builder
	line := func(name, format string, args ...any) { lines(&b, name, format, args...) }
	line("time", "%s", v.Time.UTC().Format(time.RFC3339))
	if v.Registry != "" {
		line("stream", "%s", v.Registry)
	} else {
		line("stream", "%s, epoch %d, %s", v.Stream, v.Epoch, v.Delivery)
	}
	line("state", "%s", strings.TrimSuffix(v.State+": "+v.Reason, ": "))
	if h := v.Holder; h != nil {
		line("active", "server process %d, %s from %s, since %s", h.PID, h.Application, h.Client,
			h.Since.UTC().Format(time.RFC3339))
	}
	for _, s := range v.Standbys {
		line("standby", "server process %d, %s from %s, since %s", s.PID, s.Application, s.Client,
			s.Since.UTC().Format(time.RFC3339))
	}
	v.figures(line)
	if v.LeftOut != "" {
		line("left out", "%s; to publish them: %s", v.LeftOut, v.Replay)
	}
	for _, action := range slices.Sorted(maps.Keys(v.DeadLetters)) {
		line("dead letters", "%d %s", v.DeadLetters[action], action)
	}
	for _, position := range slices.Sorted(maps.Keys(v.Verdicts)) {
		line("verdict", "%s %s, not carried out yet", position, v.Verdicts[position])
	}
	if in := v.Instance; in != nil {
		in.describe(line, v.Reason)
	}
	return b.String()
}

// figures are what changes all the time.
func (v *statusView) figures(line func(name, format string, args ...any)) {
	line("events", "%s", known(v.EventsPerSecond, "%.1f/s", "rate unknown: no instance tells"))
	if !v.Slot.Exists {
		line("slot", "%s does not exist", v.Slot.Name)
		return
	}
	line("slot", "%s, %s", v.Slot.Name, v.Slot.Words)
	line("lag", "%s; %s of log not confirmed", known(v.SecondsBehind, "%.1f s", "seconds unknown"),
		amount(v.Slot.ConfirmedBytes))
	kept := amount(v.Slot.RetainedBytes) + " of log"
	if v.Slot.SafeWALBytes != nil {
		kept += fmt.Sprintf("; the slot may be lost when %s more are written", amount(max(0, *v.Slot.SafeWALBytes)))
	}
	line("retained", "%s", kept)
	if rate := v.ConfirmedPerSecond; rate != nil {
		line("confirming", "%s/s of log", amount(int64(*rate)))
	}
}

// known prints a number that may be unknown.
func known(value *float64, format, otherwise string) string {
	if value == nil {
		return otherwise
	}
	return fmt.Sprintf(format, *value)
}
