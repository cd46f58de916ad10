package sink

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Finding is one line of a diagnosis.
type Finding struct {
	Check  string // stable id in kebab case, as "min-isr"
	Object string // what was looked at: a broker, a topic, a transactional id
	Level  Level
	Found  string // what was found; for LevelUnknown, why it could not be looked at
	Why    string // why it matters; empty when ok
	Fix    string // the command or setting that mends it; empty when ok, or when nothing here mends it
}

// Level says how bad a finding is.
type Level string

// The levels.
const (
	LevelOK      Level = "ok"
	LevelWarning Level = "warning" // it works, and may cost something one day
	LevelFault   Level = "fault"   // it does not work, or not for every event
	LevelUnknown Level = "unknown" // could not be looked at
)

// Probe is what Examine needs to know beside the configuration.
type Probe struct {
	Topics        []string // that events go to, as far as they are known
	LargestRecord int      // bytes of the largest record that is to be expected, uncompressed; 0: unknown
}

// findings collects what the checks of one object say.
type findings struct {
	object string
	all    []Finding
}

func (f *findings) ok(check, found string, args ...any) {
	f.all = append(f.all, Finding{Check: check, Object: f.object, Level: LevelOK, Found: fmt.Sprintf(found, args...)})
}

// bad adds a finding that is not ok.
func (f *findings) bad(level Level, check, found, why, fix string) {
	f.all = append(f.all, Finding{Check: check, Object: f.object, Level: level, Found: found, Why: why, Fix: fix})
}

// command is the call of one of Kafka's own tools that mends something.
func (x *examiner) command(tool, format string, args ...any) string {
	call := tool + ".sh --bootstrap-server " + x.cfg.Brokers[0]
	if x.cfg.TLS != nil || x.cfg.SASL != nil {
		call += " --command-config admin.properties"
	}
	return call + " " + fmt.Sprintf(format, args...)
}

// grant is the command that gives us operations on a resource, as "--topic orders".
func (x *examiner) grant(resource string, operations ...string) string {
	return x.command("kafka-acls", "--add --allow-principal '%s' --operation %s %s",
		x.principal(), strings.Join(operations, " --operation "), resource)
}

// principal is who we are to the brokers, as far as we know.
func (x *examiner) principal() string {
	switch {
	case x.cfg.SASL != nil && x.cfg.SASL.OAuth != nil:
		return "User:<the subject of the token>"
	case x.cfg.SASL != nil && x.cfg.SASL.MSK != nil:
		return "User:<the identity at AWS>"
	case x.cfg.SASL != nil:
		return "User:" + x.cfg.SASL.Username
	case x.cfg.TLS == nil:
		return "User:ANONYMOUS"
	}
	if config, err := x.cfg.TLS(); err == nil && len(config.Certificates) == 0 {
		return "User:ANONYMOUS"
	}
	return "User:<the subject of WALRELAY_KAFKA_TLS_CERT_FILE>"
}

// configure is the command that sets a topic's configuration.
func (x *examiner) configure(topic, key, value string) string {
	return x.command("kafka-configs", "--alter --entity-type topics --entity-name %s --add-config %s=%s",
		topic, key, value)
}

// millis writes a setting in milliseconds for people.
func millis(ms int64) string {
	if ms < 0 || ms > math.MaxInt64/int64(time.Millisecond) { // longer than a Duration can be
		return "without limit"
	}
	return (time.Duration(ms) * time.Millisecond).String()
}
