// Package decoder turns the bytes of pgoutput (protocol version 1) into transactions and events.
//
// It is pure: no I/O, no goroutine, no clock, no log. Inserts are decoded without allocation, since
// they are the hot path; malformed bytes are an error with the offset, never a panic, never a skip.
// Message formats: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
package decoder
