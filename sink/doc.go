// Package sink delivers events to Kafka: it routes them, batches them by partition, produces the
// batches idempotently and reports every outcome to the run's mailbox.
//
// It is a fail-stop producer on sarama's broker layer. The source can be replayed, so there is no
// retry queue per message and no channel per message: an event is copied into the open batch of its
// partition, a batch is the unit of everything that follows, and an error that resending the same
// bytes cannot mend ends the run. The session then starts another one and reads the log again.
//
//	Publish ──► topic (metadata known?) ──► partition.open ──► partition.queue ──► sender ──► broker
//	               no: topic.limbo            closes when full,      one goroutine      │
//	                                          or when the input ran  per broker         ▼
//	                                          dry and the sender                    Mailbox ◄── answer
//	                                          is free
//
// # Order and idempotence
//
// A batch carries (producer id, epoch, first sequence). The broker accepts sequences of a partition
// only in order and drops repeats, but a broker that holds no state for a producer id accepts any
// first sequence (KAFKA-15591). Therefore a partition has one batch in flight until this id and
// epoch has been acknowledged there, and again after any error and while the records acknowledged last
// are older than an hour, by which the broker counts; up to five otherwise, which is as many batches as
// the broker remembers.
//
// A partition whose batch met a retriable error is muted until all its batches in flight have
// answered; then they go back to the head of the queue and are resent unchanged, in order, each
// alone: what is written behind one that is tried again and again could push it out of the five.
//
// # Exactly once
//
// A transactor cuts what was gathered into Kafka transactions, each with the stream's state: the
// position that it reaches, in a compacted topic. Batches leave only while a transaction is open;
// events are settled when it is committed. The transactional id is the stream's, so beginning a run
// fences whoever had it before, and the state says where to go on. Nothing is ever aborted by
// choice: a run whose transaction cannot be committed ends, and the next one finds out.
//
// # Poison
//
// A record that its topic does not take is found before it is sent when it is too large, and
// otherwise by the broker's refusal: the broker names it, or its batch is halved until it is alone.
// Nothing of a refused batch was written, so the partition's sequences begin again with it. Only the
// culprit is affected; under the policy Stop nothing that follows it in its partition leaves in
// this run, while everything else that was accepted does. In exactly-once delivery a refused batch
// ends the run, and the next one applies the policy, or sends each suspect alone until the culprit is
// known.
//
// # Ending a run
//
// In at-least-once delivery the next run takes the producer epoch raised by one and starts sequences
// at 0, so that whatever is still under way from the earlier run is refused once the new run has
// written to a partition.
// KIP-360 lets an idempotent producer raise its epoch by itself. A new producer id is taken only at
// start and when the epoch is used up.
//
// # Locking
//
// Kafka.mu guards topics, partitions, batches and senders' counters. It is held for memory only.
// Callbacks of sarama run on the goroutine that reads answers: they take mu, never block on
// anything else and never call the broker.
package sink
