package sink

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// rights are the operations that we need on the topic, as Kafka's tools name them.
func (t *view) rights() []string {
	if t.role == stateTopic {
		return []string{"Describe", "DescribeConfigs", "Read", "Write"}
	}
	return []string{"Describe", "DescribeConfigs", "Write"}
}

// may tells an operation's bit from those that the cluster says we may do (KIP-430).
func may(operations int32, op sarama.AclOperation) bool { return operations&(1<<uint(op)) != 0 }

// allowed compares what we may do with the topic with what is needed.
func (t *view) allowed() {
	const check = "topic-rights"
	granted := t.meta.TopicAuthorizedOperations
	if granted == math.MinInt32 {
		t.bad(LevelUnknown, check, "the brokers do not tell, for which they need Kafka 2.3", "a missing right on the topic "+
			"holds up the stream", "")
		return
	}
	ops := map[string]sarama.AclOperation{
		"Describe": sarama.AclOperationDescribe, "DescribeConfigs": sarama.AclOperationDescribeConfigs,
		"Read": sarama.AclOperationRead, "Write": sarama.AclOperationWrite,
	}
	var lacks, needed []string
	for _, right := range t.rights() {
		if may(granted, ops[right]) {
			continue
		}
		lacks = append(lacks, right)
		if right != "DescribeConfigs" {
			needed = append(needed, right)
		}
	}
	switch {
	case len(needed) > 0:
		t.bad(LevelFault, check, "lacking: "+strings.Join(lacks, ", "), "nothing is delivered to the topic",
			t.x.grant("--topic "+t.object, lacks...))
	case len(lacks) > 0:
		t.bad(LevelWarning, check, "lacking: DescribeConfigs", fmt.Sprintf("walrelay cannot read the topic's limits and "+
			"assumes a max.message.bytes of %d", defaultMaxMessageBytes), t.x.grant("--topic "+t.object, lacks...))
	default:
		t.ok(check, "%s", strings.Join(t.rights(), ", "))
	}
}

// rights finds out whether we may produce idempotently and use the transactional id. For the first we
// take a producer id, which costs the cluster one of 2^63 and fences nobody.
func (x *examiner) rights(ctx context.Context) {
	f := findings{object: "cluster"}
	const check = "idempotent-write"
	var id producerID
	err := x.patiently(ctx, func(ctx context.Context) (err error) {
		id, err = x.admin.initProducerID(ctx)
		return err
	})
	switch {
	case err == nil:
		f.ok(check, "a producer id is given")
	case errors.Is(err, sarama.ErrClusterAuthorizationFailed):
		f.bad(LevelFault, check, err.Error(), "nothing is delivered: every batch needs a producer id",
			x.grant("--cluster", "IdempotentWrite")+" # or Write on some topic, since Kafka 2.8")
	default:
		f.bad(LevelUnknown, check, err.Error(), "without a producer id nothing is delivered", "")
	}
	x.add(f.all...)
	if x.cfg.ExactlyOnce {
		x.transactions(ctx, id)
	}
}

// patiently makes a request again while the answer is one that passes by itself, as of a coordinator
// that is being elected, within the time for one request.
func (x *examiner) patiently(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, x.cfg.Timeout, fmt.Errorf("no answer within %s", x.cfg.Timeout))
	defer cancel()
	for {
		err := request(ctx)
		passes := errors.Is(err, sarama.ErrOffsetsLoadInProgress) || errors.Is(err, sarama.ErrConcurrentTransactions) ||
			errors.Is(err, sarama.ErrConsumerCoordinatorNotAvailable) || errors.Is(err, sarama.ErrNotCoordinatorForConsumer)
		if !passes || !pause(ctx, 100*time.Millisecond) {
			return err
		}
	}
}

// transactions looks at the transactional id and its coordinator. other is a producer id that is
// nobody's.
func (x *examiner) transactions(ctx context.Context, other producerID) {
	c := newCoordinator(&Kafka{cfg: *x.cfg, admin: x.admin})
	resource := "--transactional-id " + c.id
	f := findings{object: "transactional id " + c.id}
	defer func() { x.add(f.all...) }()
	const check = "transactional-id"
	var addrs []string
	err := x.patiently(ctx, func(ctx context.Context) (err error) {
		addrs, err = c.find(ctx)
		return err
	})
	switch {
	case errors.Is(err, sarama.ErrTransactionalIDAuthorizationFailed):
		f.bad(LevelFault, check, err.Error(), "the stream does not start", x.grant(resource, "Describe", "Write"))
		return
	case errors.Is(err, sarama.ErrConsumerCoordinatorNotAvailable):
		f.bad(LevelFault, check, err.Error(), "the stream does not start", "see that __transaction_state has leaders, and "+
			"that the brokers' transaction.state.log.replication.factor is not above their number")
		return
	case err != nil:
		f.bad(LevelFault, check, err.Error(), "the stream does not start", "")
		return
	}
	f.ok(check, "coordinated by %s", addrs[0])
	l := x.to(addrs[0])
	defer l.close()
	x.takeover(ctx, &f, l, c.id, other)
	x.open(ctx, &f, l, c.id)
}

// takeover finds out whether we may write with the transactional id, by ending a transaction with a
// producer id that is not its own: the coordinator checks the right first, and then refuses, whatever
// the state of the transaction. To initialise the id would fence the instance that is running.
func (x *examiner) takeover(ctx context.Context, f *findings, l *link, id string, other producerID) {
	const check = "transactional-write"
	if other.id < 0 {
		f.bad(LevelUnknown, check, "it takes a producer id to find out, and none is given", "without the right to write "+
			"with the transactional id the stream does not start", "")
		return
	}
	err := x.patiently(ctx, func(ctx context.Context) error {
		return l.do(ctx, func(b *sarama.Broker) error {
			res, err := b.EndTxn(&sarama.EndTxnRequest{
				Version: 3, TransactionalID: id, ProducerID: other.id, ProducerEpoch: other.epoch,
			})
			if err != nil {
				return err
			}
			return answered(res.Err)
		})
	})
	var code sarama.KError
	switch {
	case errors.Is(err, sarama.ErrTransactionalIDAuthorizationFailed):
		f.bad(LevelFault, check, err.Error(), "the stream does not start", x.grant("--transactional-id "+id, "Write"))
	case errors.Is(err, sarama.ErrInvalidProducerIDMapping):
		f.ok(check, "allowed")
	case err != nil && !errors.As(err, &code):
		f.bad(LevelFault, check, "the coordinator does not answer: "+err.Error(), "the stream does not start",
			"see the finding about that broker")
	default:
		f.bad(LevelUnknown, check, fmt.Sprintf("the coordinator answers: %v", err), "without the right to write with the "+
			"transactional id the stream does not start", "")
	}
}

// errTransactionalIDNotFound is a code that sarama has no name for:
// https://kafka.apache.org/protocol.html#protocol_error_codes.
const errTransactionalIDNotFound sarama.KError = 105

// open tells the state of the id's transaction.
func (x *examiner) open(ctx context.Context, f *findings, l *link, id string) {
	const check = "transaction"
	var state sarama.TransactionState
	err := x.patiently(ctx, func(ctx context.Context) error {
		return l.do(ctx, func(b *sarama.Broker) error {
			res, err := b.DescribeTransactions(&sarama.DescribeTransactionsRequest{TransactionalIDs: []string{id}})
			if err != nil {
				return err
			}
			if len(res.TransactionStates) != 1 {
				return sarama.ErrIncompleteResponse
			}
			state = res.TransactionStates[0]
			return answered(state.ErrorCode)
		})
	})
	switch {
	case errors.Is(err, errTransactionalIDNotFound):
		f.ok(check, "the id was not used yet")
	case err != nil:
		f.bad(LevelUnknown, check, err.Error(), "one that was left open hides later events from read_committed consumers", "")
	default:
		f.ok(check, "%s, producer id %d, epoch %d", state.TransactionState, state.ProducerID, state.ProducerEpoch)
	}
}
