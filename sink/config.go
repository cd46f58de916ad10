package sink

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/zap"
)

// Policy says what becomes of an event that cannot be delivered.
type Policy string

// The poison policies.
const (
	Stop       Policy = "stop"        // freeze the stream until the operator decides
	DeadLetter Policy = "dead-letter" // produce it to the dead-letter topic
	Skip       Policy = "skip"        // drop it, recorded and counted
)

// Config configures a Kafka sink.
type Config struct {
	Stream string // name of the stream, in every record's headers
	// Replay is the name of a replay: rows that are published again, beside the stream. Their records
	// carry it in place of a position, and Kafka transactions hold no state. Empty: a stream.
	Replay  string
	Brokers []string // bootstrap addresses, host:port

	ClientID string
	// TLS is asked for at each connection, so that certificates that were renewed are taken up. Nil: plaintext.
	TLS  func() (*tls.Config, error)
	SASL *SASL // nil: none

	Topic        *Template    // of events whose mapping has none of its own
	TopicRules   *TopicRules  // nil: Topic alone decides
	CloudEvents  *CloudEvents // nil: records as docs/wire-format.md has them
	Shape        *Shape       // nil: key and value are the columns' bytes
	CreateTopics bool         // create a missing topic instead of waiting for it
	Partitions   int32        // of created topics; 0: the broker's default
	Replication  int16        // of created topics; 0: the broker's default
	OnPoison     Policy
	DeadTopic    string // dead-letter topic; needed when OnPoison is DeadLetter or a verdict asks for it
	FollowKey    bool   // later events of a dead-lettered event's key go to the dead-letter topic too
	Compression  sarama.CompressionCodec
	BatchBytes   int           // most bytes, uncompressed, that a batch of several records takes
	RequestBytes int           // most bytes, uncompressed, of a request of several batches
	Timeout      time.Duration // for the answer to a request; half of it is the broker's to wait for its replicas
	BackoffMin   time.Duration // between attempts, doubling, jittered; here never more than two seconds
	BackoffMax   time.Duration

	// ExactlyOnce writes events, and the position that they reach, in Kafka transactions.
	ExactlyOnce         bool
	StateTopic          string        // topic of the positions reached
	TransactionInterval time.Duration // over which events are gathered into one Kafka transaction
	TransactionEvents   int           // or when there are so many
	TransactionBytes    int64         // or so many bytes of records, uncompressed
	TransactionTimeout  time.Duration // after which the brokers end a transaction that nobody ends

	MissingAfter  time.Duration // a topic missing for so long is subject to the poison policy, unless that is Stop
	MetadataEvery time.Duration // refresh of leaders and partition counts while nothing fails

	Tracing  *Tracing // nil: none
	Logger   *zap.Logger
	Observer Observer
	// Now is the database server's clock, in which commit times are given. Safe for concurrent use.
	Now func() time.Time
}

// Observer is told what the broker answered. Its methods are called from several goroutines, and
// must neither block nor keep the slice.
type Observer interface {
	// Acked reports an acknowledged batch: bytes uncompressed, the commit times of its events and
	// the moment of the acknowledgement, both on the database server's clock.
	Acked(topic string, bytes int, commits []time.Time, now time.Time)
	// Renamed reports an event whose topic got other characters than the template gave it, see TopicRules.
	Renamed(topic string)
	// Throttled reports that the broker's quota delays requests for this topic.
	Throttled(topic string, d time.Duration)
}

// Validate lists every fault of the configuration.
func (c *Config) Validate() error {
	var errs []error
	rule := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	rule(c.Stream != "", "sink: Stream is empty")
	rule(len(c.Brokers) > 0, "sink: Brokers is empty")
	rule(c.Topic != nil, "sink: Topic is nil")
	if c.Shape != nil {
		errs = append(errs, c.Shape.Validate())
	}
	rule(c.OnPoison == Stop || c.OnPoison == DeadLetter || c.OnPoison == Skip,
		"sink: unknown poison policy %q", c.OnPoison)
	rule(c.Replay == "" || c.OnPoison == Skip, "sink: a replay reports what it cannot deliver: OnPoison must be %q", Skip)
	rule(c.OnPoison != DeadLetter || c.DeadTopic != "", "sink: the dead-letter policy needs DeadTopic")
	if c.DeadTopic != "" {
		reason := checkTopic([]byte(c.DeadTopic))
		rule(reason == "", "sink: DeadTopic: %s", reason)
	}
	if c.ExactlyOnce {
		reason := checkTopic([]byte(c.StateTopic))
		rule(reason == "", "sink: StateTopic: %s", reason)
		rule(c.StateTopic != c.DeadTopic, "sink: StateTopic and DeadTopic are the same")
		rule(c.TransactionInterval > 0 && c.TransactionEvents > 0 && c.TransactionBytes > 0,
			"sink: TransactionInterval, TransactionEvents and TransactionBytes must be positive")
		rule(c.TransactionTimeout > c.TransactionInterval, "sink: TransactionTimeout must exceed TransactionInterval")
	}
	rule(c.BatchBytes > 0, "sink: BatchBytes must be positive")
	rule(c.Timeout > 0, "sink: Timeout must be positive")
	rule(c.BackoffMin > 0 && c.BackoffMin <= c.BackoffMax, "sink: want 0 < BackoffMin <= BackoffMax")
	rule(c.Logger != nil && c.Observer != nil && c.Now != nil, "sink: Logger, Observer and Now are needed")
	return errors.Join(errs...)
}

// replicaWait is how long a broker may wait for its replicas. What has not come back in Timeout never will.
func (c *Config) replicaWait() time.Duration { return c.Timeout / 2 }

func (c *Config) setDefaults() {
	if c.RequestBytes == 0 {
		c.RequestBytes = 256 << 10
	}
	if c.MissingAfter == 0 {
		c.MissingAfter = 30 * time.Second
	}
	if c.MetadataEvery == 0 {
		c.MetadataEvery = 30 * time.Second
	}
}
