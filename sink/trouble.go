package sink

import (
	"errors"
	"net"
	"slices"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/zap"
)

// Trouble is something that keeps a topic or a broker from working at present.
type Trouble struct {
	Object string // "topic orders", "broker host:9092", or "brokers" when none tells of the topics
	Since  time.Time
	Error  string
	Kind   string // one of a few words for Error
}

// trouble keeps the present troubles and logs their beginning, change and end, and a reminder once
// in a while, so that an outage is a few lines and not thousands. Guarded by Kafka.mu.
type trouble struct {
	log     *zap.Logger
	present map[string]*troubled
}

type troubled struct {
	Trouble
	logged time.Time
}

const (
	troubleReminder = time.Minute
	// troubleChange is how often at most a change is logged: two partitions may differ in what they suffer from.
	troubleChange = 5 * time.Second
)

func newTrouble(log *zap.Logger) *trouble { return &trouble{log: log, present: map[string]*troubled{}} }

func (t *trouble) report(object string, err error, at time.Time) {
	problem := err.Error()
	p := t.present[object]
	if p == nil {
		p = &troubled{Trouble: Trouble{Object: object, Since: at}}
		t.present[object] = p
	}
	quiet := troubleReminder
	if p.Error != problem {
		quiet = troubleChange
	}
	p.Error, p.Kind = problem, kindOf(err)
	if at.Sub(p.logged) < quiet {
		return
	}
	p.logged = at
	t.log.Warn("delivery is held up, retrying", zap.String("object", object), zap.String("error", problem),
		zap.Duration("for", at.Sub(p.Since)))
}

func (t *trouble) clear(object string, at time.Time) {
	if p := t.present[object]; p != nil {
		delete(t.present, object)
		t.log.Info("delivery goes on", zap.String("object", object), zap.Duration("after", at.Sub(p.Since)))
	}
}

// forget drops what concerns nobody any more.
func (t *trouble) forget(object string) { delete(t.present, object) }

func (t *trouble) list() []Trouble {
	list := make([]Trouble, 0, len(t.present))
	for _, p := range t.present {
		list = append(list, p.Trouble)
	}
	slices.SortFunc(list, func(a, b Trouble) int { return a.Since.Compare(b.Since) })
	return list
}

// kindOf sorts an error, whose text may name ports and the like, into one of a few kinds.
func kindOf(err error) string {
	var code sarama.KError
	var network net.Error
	switch {
	case errors.As(err, &code):
		return kindOfAnswer(code)
	case errors.As(err, &network) && network.Timeout():
		return "timeout"
	default:
		return "connection"
	}
}

func kindOfAnswer(code sarama.KError) string {
	switch code {
	case sarama.ErrUnknownTopicOrPartition:
		return "missing"
	case sarama.ErrNotLeaderForPartition, sarama.ErrLeaderNotAvailable, sarama.ErrFencedLeaderEpoch,
		sarama.ErrUnknownLeaderEpoch, sarama.ErrReplicaNotAvailable, sarama.ErrBrokerNotAvailable:
		return "leader"
	case sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend:
		return "replicas"
	case sarama.ErrRequestTimedOut:
		return "timeout"
	case sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed, sarama.ErrSASLAuthenticationFailed:
		return "authorization"
	case sarama.ErrThrottlingQuotaExceeded:
		return "quota"
	default:
		return "broker"
	}
}

// hold notes one reason, kept in held, why events of a topic have to wait.
func (k *Kafka) hold(t *topic, held *bool, err error) {
	if !*held {
		*held = true
		t.held++
	}
	k.trouble.report("topic "+t.name, err, now())
}

// unhold takes the reason back. The topic is out of trouble with its last one.
func (k *Kafka) unhold(t *topic, held *bool) {
	if !*held {
		return
	}
	*held = false
	if t.held--; t.held == 0 {
		k.trouble.clear("topic "+t.name, now())
	}
}
