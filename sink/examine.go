package sink

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// examineWait limits every request of an examination, so that one of a cluster that is down ends soon.
const examineWait = 10 * time.Second

// Examine looks at everything on Kafka's side that the stream depends on: brokers, topics, rights,
// transactions. It changes nothing there, and neither fences nor disturbs an instance that is
// running. Every request is limited in time, and what does not answer does not keep the rest from
// being looked at. Of the configuration it needs no logger, observer or clock.
func Examine(ctx context.Context, cfg Config, probe Probe) []Finding {
	cfg.setDefaults()
	cfg.Timeout = min(cfg.Timeout, examineWait)
	if cfg.Timeout <= 0 {
		cfg.Timeout = examineWait
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x := &examiner{cfg: &cfg, probe: &probe, dial: &dialer{ctx: ctx, timeout: cfg.Timeout}}
	var err error
	if x.conf, err = cfg.sarama(ctx, x.dial); err != nil {
		x.add(Finding{Check: "cluster", Object: "cluster", Level: LevelUnknown, Found: err.Error()})
		return x.found
	}

	alive := x.brokers(ctx)
	if len(alive) == 0 {
		x.add(Finding{
			Check: "cluster", Object: "cluster", Level: LevelUnknown, Found: "no broker answers",
			Why: "topics, rights and transactions could not be looked at",
		})
		return x.found
	}
	x.admin = newAdmin(alive)
	x.admin.open(&cfg, x.conf, x.dial)
	defer x.admin.close()
	x.topics(ctx)
	x.rights(ctx)
	x.limits(ctx)
	x.quotas(ctx)
	x.clock()
	return x.found
}

// examiner holds what an examination has found out so far.
type examiner struct {
	cfg   *Config
	probe *Probe
	dial  *dialer
	conf  *sarama.Config
	admin *admin // of the brokers that answer

	reached []*meeting // with the brokers of the cluster that answer
	ahead   []string   // "topic: duration", how far timestamps may be ahead of the brokers' clock
	found   []Finding
}

func (x *examiner) add(f ...Finding) { x.found = append(x.found, f...) }

// ask sends a request on a link, within the time for it.
func (x *examiner) ask(ctx context.Context, l *link, request func(*sarama.Broker) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, x.cfg.Timeout, fmt.Errorf("no answer within %s", x.cfg.Timeout))
	defer cancel()
	return l.do(ctx, request)
}

// to is a link to one address. The caller closes it.
func (x *examiner) to(addr string) *link {
	l := newLink(func(context.Context) ([]string, error) { return []string{addr}, nil })
	l.open(x.cfg, x.conf, x.dial)
	return l
}

// role is what a topic is for.
type role string

const (
	eventTopic role = "events"
	deadTopic  role = "dead letters"
	stateTopic role = "states"
)

// names are the topics that the stream uses, by what for, in the order in which they are shown.
func (x *examiner) names() (names []string, roles map[string]role) {
	roles = map[string]role{}
	add := func(name string, r role) {
		if name != "" && roles[name] == "" {
			names, roles[name] = append(names, name), r
		}
	}
	for _, name := range slices.Sorted(slices.Values(x.probe.Topics)) {
		add(name, eventTopic)
	}
	add(x.cfg.DeadTopic, deadTopic)
	if x.cfg.ExactlyOnce {
		add(x.cfg.StateTopic, stateTopic)
	}
	return names, roles
}

// settings are the values of a topic's or a broker's configuration, by name.
type settings map[string]string

// describe reads the configuration of topics or of one broker, which only that one answers for.
func (x *examiner) describe(
	ctx context.Context, l *link, kind sarama.ConfigResourceType, names ...string,
) (map[string]settings, map[string]error, error) {
	req := &sarama.DescribeConfigsRequest{Version: 4}
	for _, name := range names {
		req.Resources = append(req.Resources, &sarama.ConfigResource{Type: kind, Name: name})
	}
	values, refused := map[string]settings{}, map[string]error{}
	err := x.ask(ctx, l, func(b *sarama.Broker) error {
		res, err := b.DescribeConfigs(req)
		if err != nil {
			return err
		}
		for _, r := range res.Resources {
			if code := sarama.KError(r.ErrorCode); code != sarama.ErrNoError {
				refused[r.Name] = code
				continue
			}
			s := settings{}
			for _, e := range r.Configs {
				s[e.Name] = e.Value
			}
			values[r.Name] = s
		}
		return nil
	})
	return values, refused, err
}
