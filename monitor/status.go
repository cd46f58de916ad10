package monitor

import (
	"fmt"
	"time"
)

// LSN is a position in the write-ahead log, in bytes.
type LSN uint64

// String returns PostgreSQL's notation, as in 16/B374D848.
func (l LSN) String() string { return fmt.Sprintf("%X/%X", uint32(l>>32), uint32(l)) }

// MarshalText implements encoding.TextMarshaler.
func (l LSN) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// State is what the stream is doing.
type State string

// The states that the monitor knows how to judge; any other is not ready.
const (
	Connecting  State = "connecting"
	Standby     State = "standby"
	Streaming   State = "streaming"
	Paused      State = "paused"
	Backfilling State = "backfilling" // publishing rows from before the slot
	Stuck       State = "stuck"
	Draining    State = "draining"
	Stopped     State = "stopped"
)

// Status is a snapshot of a stream. Zero times and positions mean: not yet. Times are the local
// clock's unless said otherwise.
type Status struct {
	State  State     `json:"state"`
	Since  time.Time `json:"since"` // when State was entered
	Reason string    `json:"reason,omitempty"`

	// Backend is the server's process that serves this instance.
	Backend int32 `json:"backend_pid,omitempty"`

	SystemID string `json:"system_id,omitempty"`
	Epoch    uint32 `json:"epoch"`
	Timeline uint32 `json:"timeline"`

	Received  LSN `json:"received_lsn"`
	Frontier  LSN `json:"frontier_lsn"`
	Confirmed LSN `json:"confirmed_lsn"`

	InFlightEvents int   `json:"in_flight_events"`
	InFlightBytes  int64 `json:"in_flight_bytes"`

	// OldestUnsettled is the commit time of the oldest unsettled transaction, on the server's clock.
	OldestUnsettled time.Time `json:"oldest_unsettled,omitzero"`
	// ClockOffset is the server's clock minus the local one.
	ClockOffset time.Duration `json:"clock_offset_ns"`

	LastReceived time.Time `json:"last_received,omitzero"`
	LastEvent    time.Time `json:"last_event,omitzero"`
	// LastProgress is when the oldest event in flight was last settled, or nothing was found in flight.
	LastProgress time.Time `json:"last_progress,omitzero"`
	// LastConfirmed is when the confirmed position last moved, or had nothing to move to.
	LastConfirmed time.Time `json:"last_confirmed,omitzero"`
	// LastTick is when the stream's loop last went round, in any state; zero when it does not tell.
	LastTick time.Time `json:"last_tick,omitzero"`

	Transactions uint64            `json:"transactions"`
	Events       uint64            `json:"events"`
	Ignored      map[string]uint64 `json:"ignored_changes,omitempty"` // by kind of change
	Poison       map[string]uint64 `json:"poison_events,omitempty"`   // by what was done
	Reconnects   uint64            `json:"reconnects"`
	Diverged     uint64            `json:"diverged_events"`  // published, and unknown to the database that took over
	Errors       map[string]uint64 `json:"errors,omitempty"` // by kind

	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`

	// StuckOn is the event that waits for a verdict.
	StuckOn *Poison `json:"stuck_on,omitempty"`
	// Troubles is what holds delivery up at present, oldest first.
	Troubles []Trouble `json:"troubles,omitempty"`
	// WALBudget is how much log the server may keep for the slot, in bytes; 0: no limit.
	WALBudget int64 `json:"wal_budget_bytes,omitempty"`
	// OverBudget says that it keeps more.
	OverBudget bool `json:"over_wal_budget,omitempty"`
	// Retention is nil when it is off.
	Retention *Retention `json:"retention,omitempty"`
	// Spans is nil when there is no tracing.
	Spans *Spans `json:"spans,omitempty"`
}

// Retention is what was deleted of the outbox tables since the process started.
type Retention struct {
	Rows       uint64 `json:"deleted_rows"`
	Partitions uint64 `json:"dropped_partitions"`
	Errors     uint64 `json:"errors"`

	// Oldest is the time of the oldest row, on the server's clock; zero when no index tells it.
	Oldest time.Time `json:"oldest_row,omitzero"`
	// LastRun is when all tables had last been gone through.
	LastRun time.Time `json:"last_run,omitzero"`

	LastError   string    `json:"last_error,omitempty"` // empty once a run went through again
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// Spans is what became of the spans of batches since the process started.
type Spans struct {
	Exported uint64 `json:"exported"`
	Failed   uint64 `json:"failed"`  // the collector did not take them
	Dropped  uint64 `json:"dropped"` // it was too slow for all of them
}

// Trouble is a topic or broker that cannot be worked with at present.
type Trouble struct {
	Object string    `json:"object"` // "topic orders", "broker host:9092", "brokers"
	Since  time.Time `json:"since"`
	Kind   string    `json:"kind"` // one of a few words
	Reason string    `json:"reason"`
}

// Poison is an event that cannot be delivered. It holds nothing of the row but its id.
type Poison struct {
	Position string `json:"position"`
	EventID  string `json:"event_id"`
	Table    string `json:"table"`
	Topic    string `json:"topic,omitempty"`
	Size     int    `json:"size"` // bytes of the record
	Reason   string `json:"reason"`
}

// Lag is what the server says of the slot at one moment. Bytes are of write-ahead log.
type Lag struct {
	Current        LSN `json:"current_lsn"`
	ConfirmedFlush LSN `json:"confirmed_flush_lsn"`
	Restart        LSN `json:"restart_lsn"`

	ConfirmedBytes int64 `json:"confirmed_bytes"` // not yet confirmed
	RetainedBytes  int64 `json:"retained_bytes"`  // kept on the server's disk for the slot

	Active             bool   `json:"active"`
	WALStatus          string `json:"wal_status"` // reserved, extended, unreserved, lost
	InvalidationReason string `json:"invalidation_reason,omitempty"`
	SafeWALBytes       *int64 `json:"safe_wal_bytes,omitempty"` // until the slot may be lost; nil: no limit
	CatalogXminAge     int64  `json:"catalog_xmin_age"`

	// Instances are those at the slot, the active one first; null when the server does not show them.
	Instances []Instance `json:"instances"`

	ServerTime time.Time `json:"server_time"` // the server's clock when it answered
}

// knownBehind is SecondsBehind where this process can know it: while it does not read the slot, only what it
// has left unsettled tells, and nothing left means nothing known.
func (s *Status) knownBehind(serverTime time.Time) *float64 {
	reads := s.State == Streaming || s.State == Stuck || s.State == Draining
	if s.OldestUnsettled.IsZero() && !reads {
		return nil
	}
	return new(s.SecondsBehind(serverTime))
}

// Instance is a walrelay process at the slot, as the server sees it. What the role may not see is left out.
type Instance struct {
	PID         int32     `json:"pid"`    // of the server's process
	Active      bool      `json:"active"` // it reads the slot; others wait for it
	Application string    `json:"application_name,omitempty"`
	Client      string    `json:"client_addr,omitempty"`
	Since       time.Time `json:"since,omitzero"`  // the server's clock
	State       string    `json:"state,omitempty"` // of the active one: startup, catchup, streaming, stopping
}

// Shows says whether the server shows its instances at all.
func (l *Lag) Shows() bool { return l.Instances != nil }

// Standbys counts the instances that wait for the slot.
func (l *Lag) Standbys() (n int) {
	for _, i := range l.Instances {
		if !i.Active {
			n++
		}
	}
	return n
}

// SecondsBehind is the age of the oldest unsettled transaction, both times on the server's clock; 0
// when everything is settled.
func (s *Status) SecondsBehind(serverTime time.Time) float64 {
	if s.OldestUnsettled.IsZero() {
		return 0
	}
	return max(0, serverTime.Sub(s.OldestUnsettled).Seconds())
}
