package main

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/sink"
)

// validate lists every fault of the values that were given. What a command requires on top is its own
// affair: see requireDatabase and requireBrokers.
func (s *Settings) validate(settings []declared, f *faults) {
	for _, d := range settings {
		in := d.value.given()
		if c, ok := d.value.(*Choice); ok && !slices.Contains(d.choices, c.Text) {
			in.err = choiceError(d.choices)
		}
		if in.err != nil {
			f.add(in, in.err.Error())
		}
	}
	s.loadSecrets(f)
	s.checkDatabase(f)
	s.checkStream(f)
	s.checkTables(f)
	s.checkTopics(f)
	s.checkTopicRules(f)
	s.checkFormat(f)
	s.checkShape(f)
	s.checkTransactions(f)
	s.checkLimits(f)
	s.checkBudget(f)
	s.checkSecurity(f)
	s.checkOperation(f)
}

type choiceError []string

func (e choiceError) Error() string {
	return "must be one of " + strings.TrimPrefix(strings.Join(e, ", "), ", ")
}

func (s *Settings) checkStream(f *faults) {
	// The server's rule: src/backend/replication/slot.c, ReplicationSlotValidateName.
	f.check(slotName.MatchString(s.Slot.Text), &s.Slot.input, "must be 1 to 63 of a-z, 0-9 and _")
	f.check(streamName.MatchString(s.StreamName()), &s.Stream.input,
		"must be 1 to 100 of letters, digits, '.', '_' and '-'")
	f.checkName(&s.Publication)
}

var (
	slotName   = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)
	streamName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)
)

// checkName checks a name that is written as in the catalog.
func (f *faults) checkName(t *Text) {
	if err := identifierFault(t.Text); err != nil {
		f.add(&t.input, err.Error())
		return
	}
	quoted := len(t.Text) > 1 && strings.HasPrefix(t.Text, `"`) && strings.HasSuffix(t.Text, `"`)
	f.check(!quoted, &t.input, "must be written without quotes, in the catalog's case")
}

func (s *Settings) checkTables(f *faults) {
	for _, required := range []*Text{&s.ColumnID, &s.ColumnKey, &s.ColumnPayload, &s.RetentionColumn} {
		f.checkName(required)
	}
	if s.KeyTemplate.Text != "" {
		if fault := keyFault(s.KeyTemplate.Text); fault != "" {
			f.add(&s.KeyTemplate.input, fault)
		}
	}
	for _, optional := range []*Text{
		&s.ColumnType, &s.ColumnHeaders, &s.ColumnTimestamp, &s.ColumnTraceparent, &s.ColumnTracestate,
		&s.ColumnTracingspancontext,
	} {
		if optional.Text != "" {
			f.checkName(optional)
		}
	}
}

func (s *Settings) checkTopics(f *faults) {
	// The server ends a prefix at a NUL, as does the wire format.
	for _, prefix := range []*Text{&s.MessagePrefix, &s.MessageBinaryPrefix} {
		f.check(!strings.ContainsRune(prefix.Text, 0), &prefix.input, "must not have a NUL")
	}
	f.check(s.MessageBinaryPrefix.Text == "" || s.MessageBinaryPrefix.Text != s.MessagePrefix.Text,
		&s.MessageBinaryPrefix.input, "must not be %s", s.MessagePrefix.variable)
	if fault := topicFault(s.Topic.Text); fault != "" {
		f.add(&s.Topic.input, fault)
	} else if template, err := sink.ParseTemplate(s.Topic.Text); err == nil {
		s.checkTableColumns(f, template.Columns())
	}
	f.check(sink.LegalTopic(s.DeadLetterTopic.Text), &s.DeadLetterTopic.input, topicRule)
	f.check(s.DeadLetterTopic.Text != s.Topic.Text, &s.DeadLetterTopic.input, "must not be %s", s.Topic.variable)
	f.check(s.TopicReplication.Value <= 1<<15-1, &s.TopicReplication.input, "must be at most 32767")
}

const topicRule = "must be 1 to 249 of letters, digits, '.', '_' and '-', neither '.' nor '..', " +
	"and no topic of Kafka's own"

func (s *Settings) checkTransactions(f *faults) {
	f.check(sink.LegalTopic(s.StateTopic.Text), &s.StateTopic.input, topicRule)
	f.check(s.StateTopic.Text != s.Topic.Text, &s.StateTopic.input, "must not be %s", s.Topic.variable)
	f.check(s.StateTopic.Text != s.DeadLetterTopic.Text, &s.StateTopic.input, "must not be %s", s.DeadLetterTopic.variable)
	f.check(s.TransactionInterval.Value > 0, &s.TransactionInterval.input, "must be more than 0s")
	// The protocol has the time-out in milliseconds, as an int32.
	f.check(s.TransactionTimeout.Value <= math.MaxInt32*time.Millisecond, &s.TransactionTimeout.input,
		"must be at most %s", math.MaxInt32*time.Millisecond)
	if s.TransactionTimeout.err == nil {
		f.check(s.TransactionInterval.Value < s.TransactionTimeout.Value/2, &s.TransactionInterval.input,
			"must be less than half of %s=%s", s.TransactionTimeout.variable, s.TransactionTimeout.raw)
	}
}

func (s *Settings) checkLimits(f *faults) {
	// sarama refuses to encode a request over 100 MiB (sarama.MaxRequestSize).
	f.check(s.BatchBytes.Bytes >= 1<<10 && s.BatchBytes.Bytes <= 100<<20, &s.BatchBytes.input,
		"must be from 1KiB to 100MiB")
	f.check(s.InFlightEvents.Value >= 1, &s.InFlightEvents.input, "must be at least 1")
	if s.BatchBytes.err == nil {
		f.check(s.window().Bytes >= s.BatchBytes.Bytes, &s.InFlightBytes.input,
			"must be at least %s=%s", s.BatchBytes.variable, s.BatchBytes.raw)
	}
	// The server builds a message in one allocation of at most 1 GiB (MaxAllocSize).
	f.check(s.MaxMessageBytes.Bytes >= 64<<10 && s.MaxMessageBytes.Bytes <= 1<<30, &s.MaxMessageBytes.input,
		"must be from 64KiB to 1GiB")
	f.check(s.StatusInterval.Value >= 100*time.Millisecond, &s.StatusInterval.input, "must be at least 100ms")
	if s.StatusInterval.err == nil {
		f.check(s.ReceiveTimeout.Value >= 2*s.StatusInterval.Value, &s.ReceiveTimeout.input,
			"must be at least twice %s=%s", s.StatusInterval.variable, s.StatusInterval.raw)
	}
	f.check(s.ProduceTimeout.Value >= 100*time.Millisecond, &s.ProduceTimeout.input, "must be at least 100ms")
	f.check(s.ShutdownTimeout.Value > 0, &s.ShutdownTimeout.input, "must be more than 0s")
	f.check(s.BackoffMin.Value > 0, &s.BackoffMin.input, "must be more than 0s")
	if s.BackoffMin.err == nil {
		f.check(s.BackoffMax.Value >= s.BackoffMin.Value, &s.BackoffMax.input,
			"must be at least %s=%s", s.BackoffMin.variable, s.BackoffMin.raw)
	}
}

// minDropBudget keeps a slip of the pen, as 64 for 64GB, from costing a slot: a healthy slot keeps a few segments.
const minDropBudget = 64 << 20

func (s *Settings) checkBudget(f *faults) {
	action, names := s.WALBudgetAction.Text, s.budgetPause()
	f.check(action == string(cdc.BudgetAlert) || s.WALBudget.Bytes > 0, &s.WALBudgetAction.input,
		"needs %s", s.WALBudget.variable)
	f.check(action != string(cdc.BudgetDrop) || s.WALBudget.Bytes == 0 || s.WALBudget.Bytes >= minDropBudget,
		&s.WALBudget.input, "must be at least 64MiB with %s=%s", s.WALBudgetAction.variable, cdc.BudgetDrop)
	f.check((action == string(cdc.BudgetPause)) == (len(names) > 0), &s.WALBudgetPause.input,
		"must name streams if, and only if, %s=%s", s.WALBudgetAction.variable, cdc.BudgetPause)
	for _, name := range names {
		f.check(streamName.MatchString(name) && name != s.StreamName(), &s.WALBudgetPause.input,
			"must be names of other streams, comma-separated; %q is not", name)
	}
}

// budgetPause lists the streams that are paused for the budget.
func (s *Settings) budgetPause() []string {
	var names []string
	for name := range strings.SplitSeq(s.WALBudgetPause.Text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func (s *Settings) checkSecurity(f *faults) {
	for _, t := range []*Text{
		&s.KafkaTLSCAFile, &s.KafkaTLSCertFile, &s.KafkaTLSKeyFile, &s.KafkaTLSServerName,
	} {
		f.check(t.Text == "" || s.KafkaTLS.Value, &t.input, "needs %s=true", s.KafkaTLS.variable)
	}
	f.check(s.KafkaTLSCertFile.Text == "" || s.KafkaTLSKeyFile.Text != "", &s.KafkaTLSCertFile.input,
		"needs %s", s.KafkaTLSKeyFile.variable)
	f.check(s.KafkaTLSKeyFile.Text == "" || s.KafkaTLSCertFile.Text != "", &s.KafkaTLSKeyFile.input,
		"needs %s", s.KafkaTLSCertFile.variable)
	if s.KafkaTLS.Value {
		if _, err := s.kafkaTLS(); err != nil {
			f.add(&s.KafkaTLS.input, "cannot be used: "+err.Error())
		}
	}
	s.checkSASL(f)
}

func (s *Settings) checkOperation(f *faults) {
	if s.AdminAddr.Text != "" {
		_, _, err := splitAddr(s.AdminAddr.Text)
		f.check(err == nil, &s.AdminAddr.input, "must be host:port or :port, or empty for no admin server")
	}
	f.check(s.AdminToken.Reveal() == "" || bearerToken.MatchString(s.AdminToken.Reveal()), &s.AdminToken.input,
		"must be %s", adminRule)
	f.check(s.ProgressTimeout.Value > 0, &s.ProgressTimeout.input, "must be more than 0s")
}

// adminRule is what bearerToken asks for.
const adminRule = "at least 16 of letters, digits and -._~+/="

// bearerToken has the characters that a header may carry, by RFC 6750, section 2.1.
var bearerToken = regexp.MustCompile(`^[A-Za-z0-9._~+/=-]{16,}$`)

// requireBrokers is for the commands that publish.
func (s *Settings) requireBrokers(f *faults) {
	f.check(s.KafkaBrokers.raw != "", &s.KafkaBrokers.input, "is required, as in kafka-1:9092,kafka-2:9092")
}
