// Package cdc reads a logical replication slot: it connects, checks the server, registers the
// stream, decodes, hands events to a Sink, and confirms what the sink has settled.
//
// # States
//
//	          ┌───────────── an error that trying can mend, after a pause ◄─────────────┐
//	          ▼                                                                         │
//	     connecting ──► another session holds the slot: standby ──► connecting          │
//	          │                                                                         │
//	          └──► slot acquired, sink begun: streaming ──► stuck at a poison event     │
//	                       │      ▲                               │                     │
//	                       │      └── verdict: a new session ◄────┘                     │
//	                       ├──────────────────────────────────────────────────────────► ┘
//	                       ├──► stop asked for: draining ──► stopped
//	                       └──► paused by the operator: draining ──► paused ──► resumed: connecting
//
//	the registry says paused at the start: paused, before the slot is touched
//
//	a *FatalError at any point: stopped, and Run returns it
//
// # Who owns what
//
// The stream (stream.go) makes one attempt (attempt.go) after another. The session's goroutine (session.go;
// its beginning: begin.go, what it reads: receive.go, what it waits for: wait.go, what the sink reports: mail.go,
// its end: drain.go) owns the replication connection, the decoder and the tracker. The guard (guard.go) owns the
// SQL connection: it checks the publication and records positions and poison (poison.go) before the session may
// confirm anything; others use the connection between its rounds. They meet in the guard's few guarded fields and
// in the mailbox, into which the sink puts outcomes.
//
// # Order at the start
//
// Register (row, publication, slot, if the stream never had one) ─► START_REPLICATION, which is the
// lock ─► Claim (look again, now that nobody else can change it) ─► Sink.Begin ─► read.
//
// # What may be confirmed
//
// The frontier of checkpoint.Tracker, once a round of the guard that began after it was reached has
// found the publication whole and has recorded it in walrelay.streams. So the registry is never
// behind the slot, and a slot beyond the registry was moved by somebody else.
//
// # A failover of the database
//
// Timelines give rows from before a promotion the positions that they had. The registry of the new primary
// may be older than what was published; the witness (witness.go), which lives as long as the process, knows
// better: it passes over a primary that was left behind, tells what the new one lacks, and keeps the epoch
// from falling.
package cdc
