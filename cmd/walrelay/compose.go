package main

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/cdc/replay"
	"github.com/walrelay/walrelay/cdc/retention"
	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/monitor"
	"github.com/walrelay/walrelay/sink"
)

// connectTimeout limits one attempt to connect to one host of PostgreSQL.
const connectTimeout = 10 * time.Second

// cdcConfig is what the stream needs; route lists the columns of the topic template.
func (s *Settings) cdcConfig(log *zap.Logger, route []string) cdc.Config {
	config := cdc.Config{
		ConnString: cdc.Secret(s.DatabaseURL.Reveal()),

		ReadConnString: s.readConnString(),

		Stream:      s.StreamName(),
		Slot:        s.Slot.Text,
		Publication: s.Publication.Text,
		Failover:    s.SlotFailover.Value,
		Mappings:    s.Mappings(route),
		Messages:    s.messages(route),
		RefuseStray: s.MessageNontransactional.Text == "refuse",
		Routing:     s.routing(),
		Delivery:    s.Delivery.Text,
		Nullability: s.described(),
		OnUpdate:    cdc.UpdatePolicy(s.OnUpdate.Text),

		MarkTransactions: s.TransactionHeaders.Value,

		ConnectTimeout:  connectTimeout,
		StatusInterval:  s.StatusInterval.Value,
		ReceiveTimeout:  s.ReceiveTimeout.Value,
		ShutdownTimeout: s.ShutdownTimeout.Value,
		BackoffMin:      s.BackoffMin.Value,
		BackoffMax:      s.BackoffMax.Value,

		Window:          s.window(),
		MaxMessageBytes: int(s.MaxMessageBytes.Bytes),
		FollowKey:       s.DeadLetterFollowKey.Value,
		Budget: cdc.Budget{
			Bytes: s.WALBudget.Bytes, Action: cdc.BudgetAction(s.WALBudgetAction.Text), Pause: s.budgetPause(),
		},
		Logger: log.Named("cdc"),
	}
	if s.Backfill.Value {
		config.Backfill = &backfill{settings: s, config: config, log: log.Named("backfill")}
	}
	return config
}

// retentionConfig is what retention needs.
func (s *Settings) retentionConfig(log *zap.Logger) retention.Config {
	config := retention.Config{Limit: s.Retention.Value, Stream: s.StreamName(), Logger: log.Named("retention")}
	for _, m := range s.Mappings(nil) {
		config.Tables = append(config.Tables, retention.Outbox{Mapping: m, Column: s.timeColumn(&m)})
	}
	return config
}

// timeColumn is the column of a row's time in a table.
func (s *Settings) timeColumn(m *decoder.Mapping) string {
	if column, own := s.TableColumns.tables[Table{m.Schema, m.Table}][partRetention]; own {
		return column
	}
	return s.RetentionColumn.Text
}

// timeColumns gives a selection those of the tables.
func (s *Settings) timeColumns(selection *replay.Selection) {
	selection.TimeColumn = s.RetentionColumn.Text
	for _, m := range s.Mappings(nil) {
		if column := s.timeColumn(&m); column != selection.TimeColumn {
			if selection.TimeColumns == nil {
				selection.TimeColumns = map[string]string{}
			}
			selection.TimeColumns[m.Name()] = column
		}
	}
}

// routing is everything that decides about an event's topic, key and partition: when it changes, the
// stream's epoch is raised. The id counts, since it stands in for a key that is NULL, and so do the
// prefixes, since messages that become events shift the index of those behind them. They are only named where
// they are set: a stream that was recorded without goes on as it is.
func (s *Settings) routing() string {
	routing := fmt.Sprintf("topic=%q key=%q id=%q", s.Topic.Text, s.ColumnKey.Text, s.ColumnID.Text)
	if s.MessagePrefix.Text != "" {
		routing += fmt.Sprintf(" messages=%q", s.MessagePrefix.Text)
	}
	if s.MessageBinaryPrefix.Text != "" {
		routing += fmt.Sprintf(" binary-messages=%q", s.MessageBinaryPrefix.Text)
	}
	if s.KeyTemplate.Text != "" {
		routing += fmt.Sprintf(" key_template=%q", s.KeyTemplate.Text)
	}
	if tables := s.TableColumns.text(); tables != "" {
		routing += " tables=" + tables
	}
	return routing + s.topicRouting() + s.shapeRouting()
}

// window is what may be in flight. A transaction of Kafka holds half of it at most, and costs the brokers the
// same whatever it holds: so exactly-once delivery needs more.
func (s *Settings) window() checkpoint.Window {
	bytes := s.InFlightBytes.Bytes
	switch {
	case s.InFlightBytes.raw != "":
	case s.Delivery.Text == cdc.ExactlyOnce:
		bytes = 8 << 20
	default:
		bytes = 2 << 20
	}
	return checkpoint.Window{Events: s.InFlightEvents.Value, Bytes: bytes}
}

// sinkConfig is what the sink needs but for its observer and its clock.
func (s *Settings) sinkConfig(log *zap.Logger) (sink.Config, error) {
	template, err := s.template()
	if err != nil {
		return sink.Config{}, err
	}
	config := sink.Config{
		Stream:   s.StreamName(),
		Brokers:  s.KafkaBrokers.Addrs,
		ClientID: s.KafkaClientID.Text,
		SASL:     s.kafkaSASL(),

		Topic:        template,
		TopicRules:   s.topicRules(),
		CloudEvents:  s.cloudEvents(),
		Shape:        s.shape(),
		CreateTopics: s.CreateTopics.Value,
		Partitions:   int32(s.TopicPartitions.Value),
		Replication:  int16(s.TopicReplication.Value),
		OnPoison:     sink.Policy(s.OnPoison.Text),
		DeadTopic:    s.DeadLetterTopic.Text,
		FollowKey:    s.DeadLetterFollowKey.Value,
		BatchBytes:   int(s.BatchBytes.Bytes),
		Timeout:      s.ProduceTimeout.Value,
		BackoffMin:   s.BackoffMin.Value,
		BackoffMax:   s.BackoffMax.Value,

		ExactlyOnce:         s.Delivery.Text == cdc.ExactlyOnce,
		StateTopic:          s.StateTopic.Text,
		TransactionInterval: s.TransactionInterval.Value,
		TransactionTimeout:  s.TransactionTimeout.Value,
		// Half of what may be in flight, so that the next transaction fills while one is committed.
		TransactionEvents: max(s.InFlightEvents.Value/2, 1),
		TransactionBytes:  s.window().Bytes / 2,

		Logger: log.Named("sink"),
	}
	if s.KafkaTLS.Value {
		config.TLS = s.kafkaTLS
	}
	if err := config.Compression.UnmarshalText([]byte(s.Compression.Text)); err != nil {
		return sink.Config{}, fmt.Errorf("read the compression: %w", err)
	}
	return config, nil
}

// monitorConfig is what the monitor needs; status and lag are asked of the stream.
func (s *Settings) monitorConfig(
	log *zap.Logger, status func() monitor.Status, lag func(context.Context) (monitor.Lag, error),
) monitor.Config {
	v := buildVersion()
	return monitor.Config{
		Addr:   s.AdminAddr.Text,
		Token:  s.adminToken(),
		Stream: s.StreamName(), Slot: s.Slot.Text,
		Version: v.version, Revision: v.revision,
		Status: status, Lag: lag,
		Limits: monitor.Limits{
			Progress: s.ProgressTimeout.Value,
			// What is delivered is recorded within one interval and reported within the next.
			Confirm: s.ProgressTimeout.Value + 2*s.StatusInterval.Value,
			Receive: s.ReceiveTimeout.Value,
			// A round may wait for a connection that is silent and then for the longest pause.
			Tick: 2 * (s.ReceiveTimeout.Value + s.BackoffMax.Value + connectTimeout),
		},
		Logger: log.Named("monitor"),
	}
}
