package cdc

import (
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walrelay/walrelay/checkpoint"
)

// State is what a stream is doing.
type State string

// The states of a stream.
const (
	StateConnecting  State = "connecting"  // reaching PostgreSQL or the brokers, or waiting to try again
	StateStandby     State = "standby"     // another session holds the slot; this one waits for it
	StateBackfilling State = "backfilling" // publishing the rows from before the slot
	StateStreaming   State = "streaming"   // reading the log and publishing
	StatePaused      State = "paused"      // resting at the operator's word, and letting no other stream
	StateStuck       State = "stuck"       // a poison event waits for the operator's verdict
	StateDraining    State = "draining"    // stopping: waiting for acknowledgements
	StateStopped     State = "stopped"     // Run has returned
)

// Status is a snapshot of a stream. Times are the local clock's unless said otherwise; zero times
// and positions mean: not yet.
type Status struct {
	Stream, Slot, Publication string

	State  State
	Since  time.Time // when State was entered
	Reason string    // why the stream is not streaming; empty when it is

	// Backend is the server's process that serves this instance: the WAL sender once it has the slot, a
	// session that does nothing else while it stands by. 0: none.
	Backend int32

	SystemID string
	Epoch    uint32
	Timeline uint32 // of the server's current session

	Received  pglogrepl.LSN // highest position that the server has sent
	Frontier  pglogrepl.LSN // everything before it is settled
	Confirmed pglogrepl.LSN // last reported to the server as flushed

	InFlightEvents int
	InFlightBytes  int64
	// OldestUnsettled is the commit time, on the server's clock, of the oldest transaction that is
	// not wholly settled.
	OldestUnsettled time.Time
	// ClockOffset is the server's clock minus the local one, as last measured.
	ClockOffset time.Duration

	LastReceived time.Time // last byte from the server
	LastEvent    time.Time // last event read
	LastTick     time.Time // the stream's loop last went round, in any state
	// LastProgress is when the oldest event in flight was last settled, or nothing was found in flight.
	LastProgress time.Time
	// LastConfirmed is when the confirmed position last moved, or had nothing to move to.
	LastConfirmed time.Time

	Transactions uint64
	Events       uint64
	Ignored      map[string]uint64 // by kind: update, delete, truncate, insert (into no outbox), message, stray-message
	Poison       map[checkpoint.Action]uint64
	Reconnects   uint64
	Diverged     uint64            // events published, and not in the database that took over
	Errors       map[string]uint64 // by kind: postgres, kafka, decode

	// OverBudget says that the server keeps more log for the slot than Config.Budget allows, as last measured.
	OverBudget bool

	LastError   string
	LastErrorAt time.Time
	Stuck       *checkpoint.Poison // the event that waits for a verdict
}

// Lag is what the server says of the slot at one moment. Bytes are of write-ahead log.
type Lag struct {
	Current        pglogrepl.LSN // the server's write position (or its replay position in recovery)
	ConfirmedFlush pglogrepl.LSN
	Restart        pglogrepl.LSN

	ConfirmedBytes int64 // Current - ConfirmedFlush: not yet confirmed
	RetainedBytes  int64 // Current - Restart: kept on the server's disk for this slot

	Active             bool
	ActivePID          int32
	WALStatus          string // reserved, extended, unreserved, lost
	InvalidationReason string // PostgreSQL 16 says "conflict", 17 and later the reason; empty when valid
	SafeWALSize        *int64 // bytes until the slot may be lost, negative when that is due; nil: no limit
	CatalogXminAge     int64  // transactions

	// Instances are the active session and those that wait for the slot; nil when the role may not see them.
	Instances []Instance

	ServerTime time.Time // the server's clock when it answered
}
