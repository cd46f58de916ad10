package main

import (
	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/cdc/retention"
	"github.com/walrelay/walrelay/monitor"
	"github.com/walrelay/walrelay/sink"
)

// shownStatus is the stream's status, and what troubles the sink, as the monitor shows it.
func shownStatus(s cdc.Status, troubles []sink.Trouble) monitor.Status {
	shown := monitor.Status{
		State: monitor.State(s.State), Since: s.Since, Reason: s.Reason,
		Backend: s.Backend, SystemID: s.SystemID, Epoch: s.Epoch, Timeline: s.Timeline,
		Received: monitor.LSN(s.Received), Frontier: monitor.LSN(s.Frontier), Confirmed: monitor.LSN(s.Confirmed),
		InFlightEvents: s.InFlightEvents, InFlightBytes: s.InFlightBytes,
		OldestUnsettled: s.OldestUnsettled, ClockOffset: s.ClockOffset,
		LastReceived: s.LastReceived, LastEvent: s.LastEvent, LastProgress: s.LastProgress,
		LastConfirmed: s.LastConfirmed, LastTick: s.LastTick,
		Transactions: s.Transactions, Events: s.Events, Ignored: s.Ignored,
		Poison: make(map[string]uint64, len(s.Poison)), Reconnects: s.Reconnects, Diverged: s.Diverged, Errors: s.Errors,
		OverBudget: s.OverBudget,
		LastError:  s.LastError, LastErrorAt: s.LastErrorAt,
	}
	for action, n := range s.Poison {
		shown.Poison[string(action)] = n
	}
	for _, t := range troubles {
		shown.Troubles = append(shown.Troubles,
			monitor.Trouble{Object: t.Object, Since: t.Since, Kind: t.Kind, Reason: t.Error})
	}
	if p := s.Stuck; p != nil {
		shown.StuckOn = &monitor.Poison{
			Position: p.Position.String(), EventID: p.EventID, Table: p.Table, Topic: p.Topic,
			Size: p.Size, Reason: p.Reason,
		}
	}
	return shown
}

// shownRetention is what retention did, as the monitor shows it.
func shownRetention(s retention.Stats) *monitor.Retention {
	return &monitor.Retention{
		Rows: s.Rows, Partitions: s.Partitions, Errors: s.Errors, Oldest: s.Oldest, LastRun: s.LastRun,
		LastError: s.LastError, LastErrorAt: s.LastErrorAt,
	}
}

// shownLag is the server's answer as the monitor shows it.
func shownLag(l cdc.Lag) monitor.Lag {
	shown := monitor.Lag{
		Current: monitor.LSN(l.Current), ConfirmedFlush: monitor.LSN(l.ConfirmedFlush), Restart: monitor.LSN(l.Restart),
		ConfirmedBytes: l.ConfirmedBytes, RetainedBytes: l.RetainedBytes,
		Active: l.Active, WALStatus: l.WALStatus, InvalidationReason: l.InvalidationReason,
		SafeWALBytes: l.SafeWALSize, CatalogXminAge: l.CatalogXminAge, ServerTime: l.ServerTime,
	}
	if l.Instances != nil {
		shown.Instances = make([]monitor.Instance, 0, len(l.Instances))
	}
	for _, i := range l.Instances {
		shown.Instances = append(shown.Instances, monitor.Instance(i))
	}
	return shown
}
