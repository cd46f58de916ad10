package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/cdc/retention"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/migrations"
	"github.com/walrelay/walrelay/sink"
)

// doctorTimeout bounds all checks of both sides together.
const doctorTimeout = 30 * time.Second

// The sides of a stream, as --json names them.
const (
	sidePostgres = "postgresql"
	sideKafka    = "kafka"
)

type doctorCommand struct {
	JSON bool `help:"Print one JSON document: findings, and a summary of how many there are of each level."`
}

// Help is what --help says beyond the first line.
func (*doctorCommand) Help() string {
	return "Changes nothing, and may run before the first start and beside a running instance. Each finding says what " +
		"was found, why it matters and what mends it. Exit code: 0 without a fault, 1 with one, 2 for a wrong " +
		"configuration. Warnings, and what could not be looked at, do not fail."
}

// Run examines both sides at the same time: the brokers' as soon as it is known which topics events go to.
func (c *doctorCommand) Run(ctx context.Context, cmd *command) error {
	if err := cmd.validate(cmd.database, cmd.brokers); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	sinkConfig, err := cmd.settings.sinkConfig(zap.NewNop())
	if err != nil {
		return err
	}
	cdcConfig := cmd.settings.cdcConfig(zap.NewNop(), sinkConfig.Topic.Columns())

	if cmd.settings.Retention.Value > 0 {
		cdcConfig.Check = retention.New(cmd.settings.retentionConfig(zap.NewNop())).Check
	}

	brokers := make(chan diagnosis, 1)
	versions := make(chan finding, 1)
	go func() { versions <- cmd.examineSchema(ctx) }()
	outboxes := make(chan diagnosis, 1)
	go func() { outboxes <- cmd.examineOutboxes(ctx, &cdcConfig) }()
	var report diagnosis
	findings := cdc.Examine(ctx, &cdcConfig, func(sample cdc.Sample) {
		report = previewRows(sinkConfig, sample)
		go func() { brokers <- examineBrokers(ctx, sinkConfig, sample) }()
	})
	report = append(diagnosisOf(findings), append(report, <-versions)...)
	report = append(report, <-outboxes...)
	report = append(report, <-brokers...)
	if err := ctx.Err(); err != nil { // what was found of late is only that it was stopped
		return err
	}
	if c.JSON {
		err = report.writeJSON(cmd.stdout)
	} else {
		err = report.writeText(cmd.stdout)
	}
	if err != nil {
		return fmt.Errorf("write the findings: %w", err)
	}
	if report.count(levelFault) > 0 {
		return errFaults
	}
	return nil
}

// errFaults ends a doctor whose findings say it all.
var errFaults = errors.New("at least one fault was found")

// examineSchema asks which migrations are missing.
func (c *command) examineSchema(ctx context.Context) finding {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	f := finding{Side: sidePostgres, Check: "schema-version", Object: "schema walrelay", Level: levelOK}
	db, err := c.openDatabase()
	if err != nil {
		return f.unknown(err)
	}
	defer func() { _ = db.Close() }()
	states, err := migrations.Status(ctx, db)
	if err != nil {
		return f.unknown(err)
	}
	pending := 0
	for _, state := range states {
		if state.Pending() {
			pending++
		}
	}
	f.Found = fmt.Sprintf("%d of %d migrations are applied", len(states)-pending, len(states))
	if pending > 0 {
		f.Level, f.Why, f.Fix = levelFault, "this program reads and writes what they make", "walrelay migrate up"
	}
	return f
}

// examineOutboxes looks at what their tables need from now on. That there is no connection is said elsewhere.
func (c *command) examineOutboxes(ctx context.Context, config *cdc.Config) diagnosis {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	db, err := cdc.Connect(ctx, config)
	if err != nil {
		return nil
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	tables := c.settings.retentionConfig(zap.NewNop())
	return diagnosisOf(retention.Examine(ctx, db, &tables))
}

// previewRows shows what becomes of a row of each table, without any value that an application wrote into
// key, payload or headers.
func previewRows(config sink.Config, sample cdc.Sample) diagnosis {
	var report diagnosis
	preview := sink.NewPreview(&config)
	for i := range sample.Tables {
		table := &sample.Tables[i]
		f := finding{Side: sidePostgres, Check: "mapping", Object: "table " + table.Mapping.Name(), Level: levelOK}
		ev := table.Largest()
		if ev == nil {
			f.Found = fmt.Sprintf("%d rows looked at, none to map", table.Rows)
			report = append(report, f)
			continue
		}
		rec := preview.Record(ev)
		f.Found = fmt.Sprintf("the largest of %d rows looked at becomes: %s", table.Rows, describe(rec, ev.Timestamp != nil))
		if rec.Fault != nil {
			f.Level, f.Found = levelFault, rec.Fault.Error()
			f.Why = "such a row is an event that cannot be delivered: WALRELAY_ON_POISON says what becomes of it"
			f.Fix = "correct WALRELAY_COLUMN_*, WALRELAY_TOPIC, WALRELAY_TABLE_COLUMNS or what the application writes"
		}
		report = append(report, f)
	}
	return report
}

// examineBrokers looks at the brokers, and at the topics that events go to, as far as they are known.
func examineBrokers(ctx context.Context, config sink.Config, sample cdc.Sample) diagnosis {
	return brokersDiagnosis(sink.Examine(ctx, config, probe(config, sample)))
}

// probe derives topics and the size of records from the rows that were looked at.
func probe(config sink.Config, sample cdc.Sample) sink.Probe {
	var p sink.Probe
	topics := make(map[string]struct{})
	preview := sink.NewPreview(&config)
	add := func(ev *decoder.Event) {
		if rec := preview.Record(ev); rec.Topic != "" {
			topics[rec.Topic] = struct{}{}
		}
	}
	if rules := config.TopicRules; rules != nil {
		for _, to := range []map[string]string{rules.ByType, rules.Map} {
			for _, topic := range to {
				topics[topic] = struct{}{}
			}
		}
	}
	if len(config.Topic.Columns()) == 0 { // it goes through the rules as events do
		add(&decoder.Event{Mapping: &decoder.Mapping{}})
	}
	for _, topic := range sample.Topics {
		topics[topic] = struct{}{}
	}
	for i := range sample.Tables {
		table := &sample.Tables[i]
		if own := table.Mapping.Topic; own != nil && len(own.Columns()) == 0 {
			add(&decoder.Event{Mapping: &decoder.Mapping{Topic: own}})
		}
		table.Routes(add)
		p.LargestRecord = max(p.LargestRecord, int(table.RowBytes))
		if ev := table.Largest(); ev != nil {
			p.LargestRecord = max(p.LargestRecord, preview.Record(ev).Size)
		}
	}
	p.Topics = slices.Sorted(maps.Keys(topics))
	return p
}
