package sink

import "github.com/IBM/sarama"

// class says what an answer means for the batch that it answers.
type class string

const (
	acked  class = "acknowledged" // the records are in the log
	retry  class = "retried"      // resend the same bytes: the cause passes, or an operator mends it
	refuse class = "poison"       // a record is to blame: find it and apply the poison policy
	order  class = "order"        // retried behind a batch that is not resolved yet, else a new run
	rewind class = "new run"      // only a new run helps
)

// verdict is a class and its reason, one a line in docs/guarantees.md.
type verdict struct {
	class  class
	reason string
	// ambiguous: the records may be in the log although the answer is an error.
	ambiguous bool
}

// classify is the one place that decides about the broker's answers to a produce request. Codes:
// https://kafka.apache.org/protocol.html#protocol_error_codes.
func classify(code sarama.KError) verdict {
	switch code {
	case sarama.ErrNoError:
		return verdict{class: acked, reason: "written to the leader and its in-sync replicas"}
	case sarama.ErrDuplicateSequenceNumber:
		return verdict{class: acked, reason: "an earlier attempt had been written; only its answer was lost"}

	case sarama.ErrNotLeaderForPartition, sarama.ErrLeaderNotAvailable, sarama.ErrFencedLeaderEpoch,
		sarama.ErrUnknownLeaderEpoch, sarama.ErrReplicaNotAvailable, sarama.ErrBrokerNotAvailable:
		return verdict{class: retry, reason: "the leader moves, maybe after it wrote; metadata is fetched", ambiguous: true}
	case sarama.ErrUnknownTopicOrPartition:
		return verdict{class: retry, reason: "the topic is being created or was deleted; it is waited for"}
	case sarama.ErrNotEnoughReplicas:
		return verdict{class: retry, reason: "fewer in-sync replicas than min.insync.replicas; nothing was written"}
	case sarama.ErrNotEnoughReplicasAfterAppend:
		return verdict{
			class: retry, ambiguous: true,
			reason: "written to the leader but to too few replicas; the sequence keeps it single",
		}
	case sarama.ErrRequestTimedOut:
		return verdict{
			class: retry, ambiguous: true,
			reason: "the replicas did not answer in time; the sequence keeps it single",
		}
	case sarama.ErrNetworkException:
		return verdict{class: retry, reason: "the broker lost a connection of its own", ambiguous: true}
	case sarama.ErrKafkaStorageError, sarama.ErrLogDirNotFound:
		return verdict{class: retry, reason: "the leader's disk fails; another replica will lead", ambiguous: true}
	case sarama.ErrUnknown:
		return verdict{class: retry, reason: "the broker failed unexpectedly; the sequence keeps it single", ambiguous: true}
	case sarama.ErrInvalidMessage:
		return verdict{class: retry, reason: "the batch arrived damaged (checksum)"}
	case sarama.ErrThrottlingQuotaExceeded:
		return verdict{class: retry, reason: "a quota delays the request"}
	case sarama.ErrTopicAuthorizationFailed:
		return verdict{class: retry, reason: "the principal lacks WRITE on the topic; an ACL mends it"}
	case sarama.ErrClusterAuthorizationFailed:
		return verdict{class: retry, reason: "the principal lacks IDEMPOTENT_WRITE on the cluster; an ACL mends it"}
	case sarama.ErrReassignmentInProgress, sarama.ErrPreferredLeaderNotAvailable, sarama.ErrStaleBrokerEpoch:
		return verdict{class: retry, reason: "the cluster is being rearranged"}

	case sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge, sarama.ErrInvalidTimestamp,
		sarama.ErrInvalidRecord, sarama.ErrInvalidTopic:
		return verdict{class: refuse, reason: blame(code)}

	case sarama.ErrOutOfOrderSequenceNumber:
		return verdict{
			class:  order,
			reason: "behind an unresolved batch it follows from that; else the broker lost our state",
		}

	case sarama.ErrUnknownProducerID:
		return verdict{class: rewind, reason: "the broker forgot the producer (retention removed its records)"}
	case sarama.ErrInvalidProducerEpoch, sarama.ErrProducerFenced, sarama.ErrInvalidProducerIDMapping:
		return verdict{class: rewind, reason: "another producer took over the id"}
	case sarama.ErrUnsupportedCompressionType, sarama.ErrUnsupportedForMessageFormat, sarama.ErrUnsupportedVersion:
		return verdict{class: rewind, reason: "the topic's format does not take our batches; configuration must change"}
	case sarama.ErrConcurrentTransactions, sarama.ErrTransactionalIDAuthorizationFailed, sarama.ErrInvalidTxnState:
		return classifyTransaction(code) // the leader asked the coordinator about the transaction
	default:
		return verdict{class: rewind, reason: "not an answer that a produce request is known to get"}
	}
}

// blame says what of a record makes a broker refuse it.
func blame(code sarama.KError) string {
	switch code {
	case sarama.ErrInvalidTimestamp:
		return "the record timestamp is outside what the topic accepts (message.timestamp.before/after.max.ms)"
	case sarama.ErrInvalidRecord:
		return "the broker refuses the record (a compacted topic takes no null key)"
	case sarama.ErrInvalidTopic:
		return "the topic is one of Kafka's own, which clients may not write"
	default:
		return "larger than the topic's max.message.bytes, which was lowered meanwhile"
	}
}
