package sink

import (
	"slices"
	"time"

	"go.uber.org/zap"
)

// Trouble is something that keeps a topic or a broker from working at present.
type Trouble struct {
	Object string // "topic orders" or "broker host:9092"
	Since  time.Time
	Error  string
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

func (t *trouble) report(object, problem string, at time.Time) {
	p := t.present[object]
	if p == nil {
		p = &troubled{Trouble: Trouble{Object: object, Since: at}}
		t.present[object] = p
	}
	quiet := troubleReminder
	if p.Error != problem {
		quiet = troubleChange
	}
	p.Error = problem
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

// hold notes one reason, kept in held, why events of a topic have to wait.
func (k *Kafka) hold(t *topic, held *bool, problem string) {
	if !*held {
		*held = true
		t.held++
	}
	k.trouble.report("topic "+t.name, problem, now())
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
