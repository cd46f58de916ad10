package sink

import (
	"errors"
	"fmt"
	"maps"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// Publish implements cdc.Sink.
func (k *Kafka) Publish(seq uint64, ev *decoder.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.run == nil || k.run.stopped || k.run.failed {
		return
	}
	g := k.run.gather
	if g != nil && g.skip.Covers(ev.Position) {
		k.run.Mailbox.Settle([]uint64{seq})
		return
	}
	e, c, fault := k.record(seq, ev)
	k.name = k.name[:0]
	if ev.Fault == nil {
		var renamed bool
		if k.name, renamed = k.cfg.appendTopic(k.name, ev); renamed {
			k.noteRenamed()
		}
	}
	switch {
	case fault != "":
		k.poison(k.topicName(), e, c, fault)
	case len(k.run.Verdicts) > 0 || len(k.condemned) > 0 || len(k.run.dead) > 0 || len(k.suspects) > 0:
		k.publishJudged(e, c)
	default:
		k.dispatch(e, c)
	}
	if g != nil && !k.run.stopped && g.add(ev.Position, int(e.size), &k.cfg) {
		k.tx.knock()
	}
}

// dispatch sends the present event to its topic.
func (k *Kafka) dispatch(e entry, c content) {
	if t, fault := k.destination(); fault == "" {
		k.place(t, e, c)
	} else {
		k.poison(k.topicName(), e, c, fault)
	}
}

// publishJudged is Publish while some event or key of the stream has been judged before.
func (k *Kafka) publishJudged(e entry, c content) {
	if !k.run.pruned { // the log is read forwards: what lies before a run's first event never comes again
		k.run.pruned = true
		maps.DeleteFunc(k.condemned, func(pos checkpoint.Position, _ refused) bool { return pos.Compare(e.pos) < 0 })
		maps.DeleteFunc(k.suspects, func(pos checkpoint.Position, _ bool) bool { return pos.Compare(e.pos) < 0 })
	}
	name := k.topicName()
	refused, condemned := k.condemned[e.pos]
	reason := refused.event
	v, judged := k.run.Verdicts[e.pos]
	switch {
	case judged && v != checkpoint.VerdictRetry && !condemned:
		reason = "released by the operator"
		fallthrough
	case condemned:
		if refused.stamp {
			e.stamp = 0 // the dead-letter topic would refuse it as well
		}
		k.poison(name, e, c, reason)
	case k.followsDeadKey(name, e, c):
		k.deadLetter(name, e, c, reasonFollows)
	default:
		k.dispatch(e, c)
	}
}

// topicName is the present event's topic. What cannot be one is a column's value, and not told.
func (k *Kafka) topicName() string {
	if checkTopic(k.name) != "" {
		return ""
	}
	return string(k.name)
}

// record gathers what a record is made of. A fault is a reason why the event cannot be one.
func (k *Kafka) record(seq uint64, ev *decoder.Event) (entry, content, string) {
	e := entry{seq: seq, pos: ev.Position, mapping: ev.Mapping, commit: ev.CommitTime.UnixMicro()}
	c := content{id: ev.ID, key: ev.Key, value: ev.Payload, kind: ev.Type, trace: ev.TraceParent}
	stamp, fault := ev.CommitTime, ""
	if e.commit == noCommit() {
		stamp = k.cfg.Now()
	}
	if ev.Timestamp != nil {
		t, err := ev.Time()
		if err != nil {
			fault = err.Error()
		} else {
			stamp = t
		}
	}
	e.stamp = clampMillis(stamp)
	if ev.Headers != nil || ev.Marked || ev.TraceState != nil || ev.SpanContext != nil {
		if reason := k.gatherHeaders(ev); reason != "" {
			fault = reason
		}
		c.headers = k.headers
	}
	if ev.Fault != nil {
		fault = ev.Fault.Error()
	}
	if k.shaper != nil {
		fault = k.shape(ev, &e, &c, fault)
	} else if ev.Partial {
		k.markRaw(&c)
	}
	constant, extra := k.constant, 0
	if e.commit == noCommit() {
		constant, extra = k.constant-commitTimeSize, -1
	}
	if cloud := k.cfg.CloudEvents; cloud == nil {
		e.size = int32(recordSize(c, constant, extra))
	} else {
		if fault == "" {
			fault = cloud.fault(c)
		}
		e.size = int32(cloud.size(e, c, constant, extra))
	}
	return e, c, fault
}

// gatherHeaders encodes the event's own headers into k.headers. A fault is a reason why it cannot have them.
func (k *Kafka) gatherHeaders(ev *decoder.Event) (fault string) {
	k.headers = k.headers[:0]
	if ev.Marked {
		k.headers = appendMarkers(k.headers, ev)
	}
	var err error
	if k.headers, err = k.appendTracing(k.headers, ev); err != nil {
		fault = err.Error()
	}
	if ev.Headers == nil {
		return fault
	}
	own := len(k.headers)
	if k.headers, err = k.appendRowHeaders(k.headers, ev.Headers); err != nil {
		k.headers = appendHeader(k.headers[:own], []byte(headerDeadHeaders), ev.Headers)
		fault = err.Error()
	}
	return fault
}

// shape gives a record its shape, unless there is a fault already: then a dead letter tells that it has none. Its key
// has its format where it can: later events of the key are known by it, and come to the same partition of dead letters.
func (k *Kafka) shape(ev *decoder.Event, e *entry, c *content, fault string) string {
	if c.headers == nil {
		k.headers = k.headers[:0]
	}
	if fault == "" {
		k.headers, fault = k.shaper.apply(ev, e, c, k.headers)
	}
	c.headers = k.headers
	if fault != "" {
		c.key, c.value = k.shaper.keyOf(ev), ev.Payload
		k.markRaw(c)
	}
	return fault
}

// markRaw says in a record's headers that key and value are not those of the event.
func (k *Kafka) markRaw(c *content) {
	if c.headers == nil {
		k.headers = k.headers[:0]
	}
	k.headers = appendHeader(k.headers, []byte(headerDeadRaw), []byte{})
	c.headers = k.headers
}

// errReserved names no names, since those are a row's.
var errReserved = errors.New("a name is one that walrelay sets itself " +
	"(id, eventType, walrelay-*, with CloudEvents content-type and ce_*)")

// reserved are the names that a row's own headers cannot have, since walrelay sets them.
func (k *Kafka) reserved(name string) bool {
	return reserved(name) || k.cfg.CloudEvents != nil && cloudHeader(name)
}

// reserved are those of every record.
func reserved(name string) bool {
	return name == headerID || name == headerType || len(name) >= 9 && name[:9] == "walrelay-"
}

func (k *Kafka) appendRowHeaders(dst, object []byte) ([]byte, error) {
	err := decoder.ParseHeaders(object, func(key, value []byte) error {
		if k.reserved(string(key)) {
			return fmt.Errorf("headers: %w", errReserved)
		}
		dst = appendHeader(dst, key, value)
		return nil
	})
	return dst, err
}
