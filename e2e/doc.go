// Package e2e tests the whole binary against real PostgreSQL and real Kafka. The judge of delivery
// is an independent consumer, never the relay's own counters.
package e2e
