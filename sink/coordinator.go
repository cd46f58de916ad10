package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// coordinator speaks transaction protocol 1 with the broker that coordinates our transactional id:
// https://cwiki.apache.org/confluence/display/KAFKA/KIP-98. Its calls try again what passes by
// itself, until their context ends; what they return only a new run can mend.
type coordinator struct {
	*link
	k  *Kafka
	id string // transactional id
}

// transactionalID is the stream's, or a replay's beside it, which no stream's name can make. Whoever
// takes it over fences the one before.
func transactionalID(stream, replay string) string {
	if replay != "" {
		return "walrelay-" + stream + ":" + replay
	}
	return "walrelay-" + stream
}

func newCoordinator(k *Kafka) *coordinator {
	c := &coordinator{k: k, id: transactionalID(k.cfg.Stream, k.cfg.Replay)}
	c.link = newLink(c.find)
	return c
}

// find asks any broker where the coordinator is.
func (c *coordinator) find(ctx context.Context) ([]string, error) {
	var addr string
	err := c.k.admin.do(ctx, func(b *sarama.Broker) error {
		res, err := b.FindCoordinator(&sarama.FindCoordinatorRequest{
			Version: 2, CoordinatorKey: c.id, CoordinatorType: sarama.CoordinatorTransaction,
		})
		if err != nil {
			return err
		}
		if res.Err != sarama.ErrNoError {
			return res.Err
		}
		addr = res.Coordinator.Addr()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find the coordinator of %s: %w", c.id, err)
	}
	return []string{addr}, nil
}

// init takes the transactional id over: what a predecessor has left open is aborted, and what it
// sends from now on is refused.
func (c *coordinator) init(ctx context.Context) (producerID, error) {
	id := producerID{id: -1}
	err := c.try(ctx, "initialise the transactional producer", func(b *sarama.Broker) error {
		res, err := b.InitProducerID(&sarama.InitProducerIDRequest{
			Version: 4, TransactionalID: &c.id, TransactionTimeout: c.k.cfg.TransactionTimeout,
			ProducerID: -1, ProducerEpoch: -1,
		})
		if err != nil {
			return err
		}
		id = producerID{id: res.ProducerID, epoch: res.ProducerEpoch}
		return answered(res.Err)
	})
	return id, err
}

// add makes partitions part of the transaction, and begins it with the first call.
func (c *coordinator) add(ctx context.Context, id producerID, partitions map[string][]int32) error {
	return c.try(ctx, "add partitions to the transaction", func(b *sarama.Broker) error {
		res, err := b.AddPartitionsToTxn(&sarama.AddPartitionsToTxnRequest{
			Version: 3, TransactionalID: c.id, ProducerID: id.id, ProducerEpoch: id.epoch, TopicPartitions: partitions,
		})
		if err != nil {
			return err
		}
		// Without the right to one partition the others are not attempted: the real reason counts.
		var found error
		for topic, partitions := range res.Errors {
			for _, p := range partitions {
				if p.Err != sarama.ErrNoError && (found == nil || errors.Is(found, sarama.ErrOperationNotAttempted)) {
					found = fmt.Errorf("%s-%d: %w", topic, p.Partition, p.Err)
				}
			}
		}
		return found
	})
}

// commit ends the transaction. An attempt without an answer is repeated: the coordinator answers for
// a transaction that it has committed already under this epoch as if it were the first time.
func (c *coordinator) commit(ctx context.Context, id producerID) error {
	return c.try(ctx, "commit the transaction", func(b *sarama.Broker) error {
		res, err := b.EndTxn(&sarama.EndTxnRequest{
			Version: 3, TransactionalID: c.id, ProducerID: id.id, ProducerEpoch: id.epoch, TransactionResult: true,
		})
		if err != nil {
			return err
		}
		return answered(res.Err)
	})
}

func answered(code sarama.KError) error {
	if code == sarama.ErrNoError {
		return nil
	}
	return code
}

// busyPause is between two attempts while the markers of the last transaction are being written,
// which is the normal course of things and takes milliseconds.
const busyPause = 2 * time.Millisecond

// try repeats a request for as long as its answer is one that passes.
func (c *coordinator) try(ctx context.Context, verb string, request func(*sarama.Broker) error) error {
	object := "transactional id " + c.id
	began := now()
	for attempt := 0; ; {
		err := c.do(ctx, request)
		if ctx.Err() != nil {
			return ended(ctx, verb, err)
		}
		wait := busyPause
		var code sarama.KError
		coded := errors.As(err, &code)
		switch {
		case err == nil:
			c.k.mu.Lock()
			c.k.trouble.clear(object, now())
			c.k.mu.Unlock()
			return nil
		case coded && classifyTransaction(code).class != retry:
			return explained(verb, err)
		case code == sarama.ErrConcurrentTransactions && now().Sub(began) < time.Second:
		default:
			attempt++
			wait = c.k.backoff(attempt)
			c.k.mu.Lock()
			c.k.trouble.report(object, explained(verb, err), now())
			c.k.mu.Unlock()
		}
		if coded && moved(code) {
			c.forget()
		}
		if !pause(ctx, wait) {
			return ended(ctx, verb, err)
		}
	}
}

// explained is the error of a request, with what its answer means where it is one.
func explained(verb string, err error) error {
	var code sarama.KError
	if login := (*LoginError)(nil); errors.As(err, &login) || !errors.As(err, &code) {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return fmt.Errorf("%s: %w (%s)", verb, err, classifyTransaction(code).reason)
}

// ended is the error of a request whose context has ended, and with it the last answer. Even an answer
// that came at the last moment is of no use to a run that is over.
func ended(ctx context.Context, verb string, last error) error {
	if cause := context.Cause(ctx); last == nil || errors.Is(last, cause) {
		return cause
	}
	return fmt.Errorf("%w: %s: %w", context.Cause(ctx), verb, last)
}

// moved says that another broker may be the coordinator now.
func moved(code sarama.KError) bool {
	return code == sarama.ErrNotCoordinatorForConsumer || code == sarama.ErrConsumerCoordinatorNotAvailable
}

// forget makes the next request look for the coordinator again.
func (c *coordinator) forget() {
	c.turn <- struct{}{}
	c.disconnect()
	<-c.turn
}

// classifyTransaction is the one place that decides about the answers of the transaction protocol
// other than produce. Codes: https://kafka.apache.org/protocol.html#protocol_error_codes.
func classifyTransaction(code sarama.KError) verdict {
	switch code {
	case sarama.ErrNoError:
		return verdict{class: acked, reason: "done"}
	case sarama.ErrConcurrentTransactions:
		return verdict{class: retry, reason: "the end of the last transaction is still being written"}
	case sarama.ErrOffsetsLoadInProgress:
		return verdict{class: retry, reason: "the coordinator is loading its state"}
	case sarama.ErrConsumerCoordinatorNotAvailable, sarama.ErrNotCoordinatorForConsumer:
		return verdict{class: retry, reason: "the coordinator moves; it is looked for again"}
	case sarama.ErrUnknownTopicOrPartition, sarama.ErrOperationNotAttempted:
		return verdict{class: retry, reason: "a partition is being created or moved"}
	case sarama.ErrTopicAuthorizationFailed:
		return verdict{class: retry, reason: "the principal lacks WRITE on a topic; an ACL mends it"}
	case sarama.ErrTransactionalIDAuthorizationFailed:
		return verdict{class: retry, reason: "the principal lacks WRITE on the transactional id; an ACL mends it"}
	case sarama.ErrClusterAuthorizationFailed:
		return verdict{class: retry, reason: "the principal lacks a right on the cluster; an ACL mends it"}
	case sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend, sarama.ErrRequestTimedOut,
		sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition, sarama.ErrKafkaStorageError,
		sarama.ErrNetworkException, sarama.ErrBrokerNotAvailable, sarama.ErrUnknown:
		return verdict{class: retry, reason: "the coordinator cannot write its log at present"}
	case sarama.ErrThrottlingQuotaExceeded:
		return verdict{class: retry, reason: "a quota delays the request"}
	case sarama.ErrSASLAuthenticationFailed:
		return verdict{class: retry, reason: "the broker does not know us; an operator mends it"}
	case sarama.ErrInvalidProducerEpoch, sarama.ErrProducerFenced:
		return verdict{
			class:  rewind,
			reason: "another instance took over, or the brokers ended a transaction that had lasted too long",
		}
	case sarama.ErrInvalidProducerIDMapping:
		return verdict{class: rewind, reason: "the coordinator forgot the id (transactional.id.expiration.ms)"}
	case sarama.ErrInvalidTxnState:
		return verdict{
			class:  rewind,
			reason: "the coordinator has the transaction in another state; what became of it is read, not guessed",
		}
	case sarama.ErrInvalidTransactionTimeout:
		return verdict{class: rewind, reason: "the brokers' transaction.max.timeout.ms is below WALRELAY_TRANSACTION_TIMEOUT"}
	default:
		return verdict{class: rewind, reason: "not an answer that these requests are known to get"}
	}
}
