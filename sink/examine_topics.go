package sink

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/IBM/sarama"
)

// topics looks at every topic that the stream uses.
func (x *examiner) topics(ctx context.Context) {
	names, roles := x.names()
	if len(x.probe.Topics) == 0 {
		x.add(Finding{
			Check: "topic", Object: "topics of events", Level: LevelUnknown, Found: "no topic of an event is known",
			Why: "a topic that is missing, small or weak is only found when the first event goes there",
			Fix: "insert an event, or run the check again when there are some",
		})
	}
	if len(names) == 0 {
		return
	}
	var res *sarama.MetadataResponse
	err := x.ask(ctx, x.admin.link, func(b *sarama.Broker) (err error) {
		req := sarama.NewMetadataRequest(x.admin.conf.Version, names)
		req.AllowAutoTopicCreation, req.IncludeTopicAuthorizedOperations = false, true
		res, err = b.GetMetadata(req)
		return err
	})
	var values map[string]settings
	var refused map[string]error
	if err == nil {
		values, refused, err = x.describe(ctx, x.admin.link, sarama.TopicResource, names...)
	}
	if err != nil {
		x.add(Finding{Check: "topic", Object: "topics", Level: LevelUnknown, Found: err.Error()})
		return
	}
	limits := 0 // the largest max.message.bytes of an event topic
	for _, name := range names {
		for _, m := range res.Topics {
			if m.Name != name {
				continue
			}
			t := &view{x: x, role: roles[name], meta: m, set: values[name], findings: findings{object: name}}
			t.look(ctx, refused[name], limits)
			if t.role == eventTopic {
				limits = max(limits, int(t.number("max.message.bytes")))
			}
			x.add(t.all...)
		}
	}
}

// view is what is seen of one topic.
type view struct {
	findings
	x    *examiner
	role role
	meta *sarama.TopicMetadata
	set  settings // nil when it may not be read
}

func (t *view) number(key string) int64 {
	n, _ := strconv.ParseInt(t.set[key], 10, 64)
	return n
}

// look runs the checks of a topic. limit is the largest max.message.bytes of the topics of events.
func (t *view) look(ctx context.Context, refused error, limit int) {
	switch t.meta.Err {
	case sarama.ErrNoError, sarama.ErrLeaderNotAvailable: // the latter: of some partition, see leaders
	case sarama.ErrUnknownTopicOrPartition:
		t.missing(ctx)
		return
	case sarama.ErrTopicAuthorizationFailed:
		t.bad(LevelFault, "topic", "we may not even know whether it exists", "nothing is delivered to it",
			t.x.grant("--topic "+t.object, t.rights()...))
		return
	default:
		t.bad(LevelFault, "topic", t.meta.Err.Error(), "nothing is delivered to it", "")
		return
	}
	t.ok("topic", "exists, for %s, with %d partitions", t.role, len(t.meta.Partitions))
	t.leaders()
	t.allowed()
	if t.set == nil {
		found := "its configuration is not answered"
		if refused != nil {
			found = refused.Error()
		}
		t.bad(LevelUnknown, "topic-config", found, fmt.Sprintf("replication, limits and clean-up could not be looked at, "+
			"and walrelay assumes a max.message.bytes of %d", defaultMaxMessageBytes),
			t.x.grant("--topic "+t.object, "DescribeConfigs"))
		return
	}
	t.replication()
	t.cleanup()
	t.size(limit)
	t.timestamps()
}

// missing says what becomes of a topic that is not there, and lets the cluster check its creation
// without carrying it out.
func (t *view) missing(ctx context.Context) {
	cfg := t.x.cfg
	detail := (&Kafka{cfg: *cfg}).newTopic(t.object)
	create := t.x.command("kafka-topics", "--create --topic %s", t.object)
	if detail.NumPartitions > 0 {
		create += fmt.Sprintf(" --partitions %d", detail.NumPartitions)
	}
	if detail.ReplicationFactor > 0 {
		create += fmt.Sprintf(" --replication-factor %d", detail.ReplicationFactor)
	}
	level, why := LevelFault, "events for it wait, and hold up the stream"
	switch {
	case t.role == stateTopic:
		create += " --config cleanup.policy=compact"
		why = "the stream does not start without it"
	case t.role == deadTopic && cfg.OnPoison != DeadLetter:
		level, why = LevelWarning, "a stuck event cannot be released to it with the verdict dead-letter"
	case t.role == deadTopic:
		why = "an event that cannot be delivered holds up the stream until it is there"
	}
	if t.role != stateTopic && !cfg.CreateTopics {
		t.bad(level, "topic", "does not exist, and WALRELAY_CREATE_TOPICS is off", why, create)
		return
	}
	err := t.x.validate(ctx, t.object, detail)
	switch {
	case err == nil:
		t.ok("topic", "does not exist; walrelay will create it")
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed), errors.Is(err, sarama.ErrClusterAuthorizationFailed):
		t.bad(level, "topic", "does not exist, and we may not create it", why, t.x.grant("--topic "+t.object, "Create"))
	default:
		t.bad(level, "topic", "does not exist, and the cluster would refuse to create it: "+err.Error(), why, create)
	}
}

// validate asks whether a topic could be created, without creating it.
func (x *examiner) validate(ctx context.Context, name string, detail *sarama.TopicDetail) error {
	if detail.NumPartitions == 0 {
		detail.NumPartitions = -1
	}
	if detail.ReplicationFactor == 0 {
		detail.ReplicationFactor = -1
	}
	topics := map[string]*sarama.TopicDetail{name: detail}
	req := sarama.NewCreateTopicsRequest(x.admin.conf.Version, topics, x.cfg.Timeout, true)
	return x.ask(ctx, x.admin.link, func(b *sarama.Broker) error {
		res, err := b.CreateTopics(req)
		if err != nil {
			return err
		}
		e := res.TopicErrors[name]
		switch {
		case e == nil || e.Err == sarama.ErrNoError || e.Err == sarama.ErrTopicAlreadyExists:
			return nil
		case e.ErrMsg != nil:
			return fmt.Errorf("%w: %s", e.Err, *e.ErrMsg)
		default:
			return e.Err
		}
	})
}

// leaders says which partitions cannot be written to.
func (t *view) leaders() {
	var leaderless []string
	for _, p := range t.meta.Partitions {
		if p.Leader < 0 {
			leaderless = append(leaderless, strconv.Itoa(int(p.ID)))
		}
	}
	if len(leaderless) == 0 {
		t.ok("leaders", "every partition has a leader")
		return
	}
	t.bad(LevelFault, "leaders", "no leader for partition "+strings.Join(leaderless, ", "),
		"events of these partitions wait, and hold up the stream", "start the brokers that hold them: "+
			t.x.command("kafka-topics", "--describe --unavailable-partitions"))
}

// replication looks at what keeps an acknowledged event.
func (t *view) replication() {
	replicas, inSync := len(t.meta.Partitions[0].Replicas), len(t.meta.Partitions[0].Isr)
	for _, p := range t.meta.Partitions {
		replicas = min(replicas, len(p.Replicas))
		inSync = min(inSync, len(p.Isr))
	}
	required := int(t.number("min.insync.replicas"))
	if replicas < 3 {
		t.bad(LevelWarning, "replication", fmt.Sprintf("%d of the 3 replicas that are wanted", replicas),
			"the loss of a broker's disk may lose events that were acknowledged, or stop the stream",
			t.x.command("kafka-reassign-partitions", "--execute --reassignment-json-file three-replicas.json")+
				" # needs 3 brokers; see the tool's --generate")
	} else {
		t.ok("replication", "%d replicas", replicas)
	}
	switch {
	case inSync < required:
		t.bad(LevelFault, "min-isr", fmt.Sprintf("%d replicas are in sync, min.insync.replicas is %d", inSync, required),
			"the brokers refuse events of that partition, and the stream waits", "start the brokers that are down: "+
				t.x.command("kafka-topics", "--describe --under-min-isr-partitions"))
	case required < 2:
		fix := t.x.configure(t.object, "min.insync.replicas", "2")
		if replicas < 3 {
			fix += " # after raising the replication to 3"
		}
		t.bad(LevelWarning, "min-isr", fmt.Sprintf("min.insync.replicas is %d", required),
			"an event counts as delivered when one broker has it, and is lost with that broker's disk", fix)
	case required >= replicas:
		t.bad(LevelWarning, "min-isr", fmt.Sprintf("min.insync.replicas is %d, of %d replicas", required, replicas),
			"one broker that is down, or restarts, stops the stream", t.x.configure(t.object, "min.insync.replicas",
				strconv.Itoa(max(replicas-1, 1))))
	default:
		t.ok("min-isr", "min.insync.replicas is %d, of %d replicas, %d in sync", required, replicas, inSync)
	}
	if t.set["unclean.leader.election.enable"] == "true" {
		t.bad(LevelWarning, "unclean-election", "unclean.leader.election.enable is on",
			"a replica that lacks acknowledged events may become the leader, and they are lost",
			t.x.configure(t.object, "unclean.leader.election.enable", "false"))
	} else {
		t.ok("unclean-election", "off")
	}
}
