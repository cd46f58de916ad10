package sink

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// cleanup looks at what the topic removes.
func (t *view) cleanup() {
	policy := t.set["cleanup.policy"]
	compacts := strings.Contains(policy, "compact")
	forever := strings.Contains(policy, "delete") && t.number("retention.ms") < 0 && t.number("retention.bytes") < 0
	switch {
	case t.role == stateTopic && policy != "compact":
		t.bad(LevelFault, "cleanup-policy", "cleanup.policy is "+policy, "the topic of states would lose the position that "+
			"the stream reached; the stream does not start with it", t.x.configure(t.object, "cleanup.policy", "compact"))
	case t.role == stateTopic:
		t.ok("cleanup-policy", "compact")
	case compacts:
		t.bad(LevelWarning, "cleanup-policy", "cleanup.policy is "+policy, "the brokers refuse events whose key is NULL, "+
			"and keep only the last one of each key", t.x.configure(t.object, "cleanup.policy", "delete"))
	case t.role == deadTopic && !forever:
		t.bad(LevelWarning, "cleanup-policy", "dead letters are removed after "+millis(t.number("retention.ms")),
			"what was not redriven by then is in the outbox table at most", t.x.configure(t.object, "retention.ms", "-1"))
	case forever:
		t.ok("cleanup-policy", "delete, never")
	default:
		t.ok("cleanup-policy", "%s, after %s", policy, millis(t.number("retention.ms")))
	}
}

// size compares the largest record with what the topic takes. limit is the largest max.message.bytes
// of the topics of events.
func (t *view) size(limit int) {
	const check = "max-message-bytes"
	most := int(t.number("max.message.bytes"))
	found := fmt.Sprintf("max.message.bytes is %d", most)
	largest := t.x.probe.LargestRecord
	switch {
	case t.role == stateTopic:
		t.ok(check, "%s", found)
	case largest > most:
		t.bad(LevelFault, check, fmt.Sprintf("%s, the largest record to be expected takes %d", found, largest),
			"such an event cannot be delivered, and the policy WALRELAY_ON_POISON is applied to it",
			t.x.configure(t.object, "max.message.bytes", strconv.Itoa(roundUp(largest))))
	case t.role == deadTopic && most <= limit:
		t.bad(LevelWarning, check, fmt.Sprintf("%s, and a topic of events has %d", found, limit),
			"an event that is too large for its topic is too large for this one as well, and then only the outbox table has it",
			t.x.configure(t.object, "max.message.bytes", strconv.Itoa(max(10*limit, roundUp(largest)))))
	case largest > 0:
		t.ok(check, "%s, the largest record to be expected takes %d", found, largest)
	default:
		t.ok(check, "%s", found)
	}
}

// roundUp gives a record half as much room again, in whole MiB.
func roundUp(size int) int {
	const mib = 1 << 20
	return (size + size/2 + mib - 1) / mib * mib
}

// timestamps looks at which ones the brokers refuse.
func (t *view) timestamps() {
	const check = "timestamps"
	if t.role == stateTopic {
		return
	}
	if t.set["message.timestamp.type"] == "LogAppendTime" {
		t.bad(LevelWarning, check, "message.timestamp.type is LogAppendTime",
			"records carry the time when the broker wrote them; the commit's is only in the header walrelay-commit-time",
			t.x.configure(t.object, "message.timestamp.type", "CreateTime"))
		return
	}
	// Kafka before 3.6 has one setting for both directions.
	ahead, before := t.reach("message.timestamp.after.max.ms"), t.reach("message.timestamp.before.max.ms")
	t.x.ahead = append(t.x.ahead, fmt.Sprintf("%s: %s", t.object, millis(ahead)))
	if week := int64(7 * 24 * time.Hour / time.Millisecond); before < week {
		t.bad(LevelWarning, check, "timestamps older than "+millis(before)+" are refused",
			"after an outage of that length, events are refused although nothing is wrong with them",
			t.x.configure(t.object, "message.timestamp.before.max.ms", strconv.FormatInt(1<<63-1, 10)))
		return
	}
	t.ok(check, "accepted from %s before to %s after the broker's clock", millis(before), millis(ahead))
}

func (t *view) reach(key string) int64 {
	if _, known := t.set[key]; !known {
		key = "message.timestamp.difference.max.ms"
	}
	if _, known := t.set[key]; !known {
		return 1<<63 - 1
	}
	return t.number(key)
}
