package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/IBM/sarama"
	kafkaevents "github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
)

// cloudEvents are messages in structured mode.
func cloudEvents() *shape {
	s := messages()
	s.name, s.about = "cloudevents", "the same in CloudEvents' structured mode"
	maps.Copy(s.settings, map[string]string{
		"WALRELAY_FORMAT":             "cloudevents-structured",
		"WALRELAY_CLOUDEVENTS_SOURCE": cloudSource,
	})
	s.form.Read = readCloudEvent
	return s
}

// binaries have payloads that are no text, in CloudEvents' binary mode.
func binaries() *shape {
	const (
		value = `'\xff00'::bytea || value` // notText
		emit  = `walrelay_kit.emit('campaign.binary', jsonb_build_object('aggregatetype', kind), key, 'happened', ` +
			value + `, id => id::text)`
	)
	return &shape{
		name: "binary", about: "rows with bytea, and messages with a binary envelope; CloudEvents' binary mode",
		tables: outboxSQL("bytea"), part: listPart,
		places: append(insertSQL("kind", "'happened'", value), emitSQL("campaign.binary", emit)),
		form: judge.Form{Read: func(r *kgo.Record) (judge.Event, error) {
			e, err := readCloudEvent(r)
			if e.Value == nil {
				return e, err
			}
			text, found := bytes.CutPrefix(e.Value, []byte(notText))
			if !found {
				return e, errors.New("the payload begins otherwise")
			}
			e.Value = text
			return e, err
		}},
		remark: "SELECT count(*) || ' messages outside of a transaction were refused' FROM walrelay.dead_letters",
		settings: map[string]string{
			"WALRELAY_MESSAGE_BINARY_PREFIX":    "campaign.binary",
			"WALRELAY_MESSAGE_NONTRANSACTIONAL": "refuse",
			"WALRELAY_TOPIC":                    prefix + "{aggregatetype}",
			"WALRELAY_FORMAT":                   "cloudevents-binary",
			"WALRELAY_CLOUDEVENTS_SOURCE":       cloudSource,
			"WALRELAY_CLOUDEVENTS_CONTENT_TYPE": "application/octet-stream",
		},
	}
}

const (
	cloudSource = "//campaign.example/shop"
	notText     = "\xff\x00" // stands before payloads that are no text
)

// readCloudEvent reads a record of either mode by the official SDK.
func readCloudEvent(r *kgo.Record) (judge.Event, error) {
	m := &sarama.ConsumerMessage{Topic: r.Topic, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, &sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
	}
	cloud, err := binding.ToEvent(context.Background(), kafkaevents.NewMessageFromConsumerMessage(m))
	if err != nil {
		return judge.Event{}, fmt.Errorf("read as CloudEvents: %w", err)
	}
	e := judge.Event{ID: cloud.ID(), Topic: r.Topic, Key: r.Key}
	if data := cloud.Data(); len(data) > 0 { // writers write no empty payload
		e.Value = data
	}
	return e, checkCloudEvent(cloud, e)
}

// checkCloudEvent looks at the attributes that are no part of an event.
func checkCloudEvent(cloud *event.Event, e judge.Event) error {
	if err := cloud.Validate(); err != nil {
		return fmt.Errorf("validate event: %w", err)
	}
	if cloud.Source() != cloudSource || cloud.Subject() != string(e.Key) ||
		cloud.Type() != "happened" && cloud.Type() != "audited" ||
		(cloud.DataContentType() == "") != (e.Value == nil) {
		return fmt.Errorf("the attributes are others: %v", cloud.Context)
	}
	return nil
}
