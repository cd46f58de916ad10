// Package parity compares walrelay with Debezium's outbox event router, record by record: the same rows of the same
// table go through Debezium on a real Kafka Connect and through walrelay, and an independent consumer reads both.
package parity
