// Package connect makes of column values the bytes that Kafka Connect's converters make of them behind Debezium's
// connector for PostgreSQL: JSON text as Jackson writes it, numbers as Java prints them, schemas as JsonConverter names
// them. It is pure: no I/O, no clock. Facts about types are those of Debezium 3.6 with its default settings
// (time.precision.mode=adaptive, decimal.handling.mode=precise, interval.handling.mode=numeric,
// binary.handling.mode=bytes), and of Kafka Connect 4.1; package e2e/parity compares.
package connect
