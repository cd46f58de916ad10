// Package checkpoint decides which LSN may be confirmed to PostgreSQL.
//
// It is pure: no I/O, no goroutine, no clock, no log. The session (package cdc)
// tells it what the write-ahead log brought, the sink tells it what the broker
// acknowledged, and it answers with the frontier: the end LSN of the last
// transaction of which every event, and every event before it, is settled.
//
//	Position   names one event of a stream for ever: epoch, timeline, commit LSN, index
//	Tracker    contiguous acknowledged prefix over transactions, in-flight window
//	Mailbox    how outcomes travel from the sink's goroutines to the session's
//	Poison     an event that cannot be delivered, and what was done about it
package checkpoint
