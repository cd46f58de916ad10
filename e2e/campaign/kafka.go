package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// kafkaFaults are those of the brokers and what their operators do.
func kafkaFaults() []*fault {
	const group = "kafka"
	return []*fault{
		{
			group: group, name: "broker-kill", about: "SIGKILL of a broker, and start",
			most: 5 * time.Second, strike: killBrokers(1),
		},
		{
			group: group, name: "broker-stop", about: "orderly shutdown of a broker, and start",
			most: 3 * time.Second,
			strike: func(_ context.Context, w *world, hold func()) error {
				i := w.random.IntN(brokers)
				w.cluster.StopBroker(w.t, i)
				hold()
				w.cluster.StartBroker(w.t, i)
				return nil
			},
		},
		{
			group: group, name: "two-brokers-kill", about: "SIGKILL of two brokers, fewer than min.insync.replicas are left",
			least: time.Second, most: 6 * time.Second, strike: killBrokers(2),
		},
		{
			group: group, name: "broker-pause", about: "SIGSTOP and SIGCONT of a broker",
			least: time.Second, most: 12 * time.Second,
			strike: func(_ context.Context, w *world, hold func()) error {
				i := w.random.IntN(brokers)
				w.cluster.PauseBroker(w.t, i)
				defer w.cluster.ResumeBroker(w.t, i)
				hold()
				return nil
			},
		},
		{
			group: group, name: "move-leaders", about: "another replica order and a preferred election for each partition",
			strike: moveLeaders,
		},
		{
			group: group, name: "add-partitions", about: "one more partition for a topic, which raises the epoch",
			strike: func(ctx context.Context, w *world, _ func()) error {
				answers, err := w.cluster.Admin.CreatePartitions(ctx, 1, pick(w.random, w.topics...))
				if err == nil {
					err = answers.Error()
				}
				return err
			},
		},
		{
			group: group, name: "lower-max-message-bytes", about: "a topic takes small messages only, for a while",
			least: 2 * time.Second, most: 5 * time.Second, strike: lowerMaxMessageBytes,
		},
		{
			group: group, name: "recreate-topic", about: "a topic of its own is deleted, with what it holds, and created again",
			least: time.Second, most: 5 * time.Second, strike: recreateTopic,
		},
		{
			group: group, name: "kafka-credentials", about: "another password for walrelay's user, and the old one again",
			least: time.Second, most: 6 * time.Second, strike: changeKafkaPassword,
		},
		{
			group: group, name: "disk-full", about: "a broker cannot write to one of its disks, or to any, and is restarted",
			least: time.Second, most: 6 * time.Second, strike: fillDisk,
		},
		{
			group: group, name: "no-leader", about: "SIGKILL of the only replica of one partition, and start",
			least: time.Second, most: 6 * time.Second, strike: loseLeader,
		},
	}
}

// killBrokers kills n brokers at once: now and then the leader of some partition, always of some.
func killBrokers(n int) func(context.Context, *world, func()) error {
	return func(_ context.Context, w *world, hold func()) error {
		killed := w.random.Perm(brokers)[:n]
		for _, i := range killed {
			w.cluster.KillBroker(w.t, i)
		}
		hold()
		for _, i := range killed {
			w.cluster.StartBroker(w.t, i)
		}
		return nil
	}
}

// moveLeaders makes the replica after the leader the preferred one and elects it.
func moveLeaders(ctx context.Context, w *world, _ func()) error {
	topics, err := w.cluster.Admin.ListTopics(ctx, w.topics...)
	if err != nil {
		return fmt.Errorf("list topics: %w", err)
	}
	var assignment kadm.AlterPartitionAssignmentsReq
	var elect kadm.TopicsSet
	topics.EachPartition(func(p kadm.PartitionDetail) {
		order := slices.Clone(p.Replicas)
		assignment.Assign(p.Topic, p.Partition, append(order[1:], order[0]))
		elect.Add(p.Topic, p.Partition)
	})
	answers, err := w.cluster.Admin.AlterPartitionAssignments(ctx, assignment)
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		return fmt.Errorf("alter assignments: %w", err)
	}
	// Each partition answers for itself: one that is led by the preferred replica already is an error.
	if _, err := w.cluster.Admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, elect); err != nil {
		return fmt.Errorf("elect leaders: %w", err)
	}
	return nil
}

// lowerMaxMessageBytes makes events too large for their topic. walrelay stops at the first, and the
// operator, who has raised the limit again, tells it to try that one again.
func lowerMaxMessageBytes(ctx context.Context, w *world, hold func()) error {
	topic := pick(w.random, w.topics...)
	const limit = "max.message.bytes"
	if err := w.setTopic(ctx, topic, limit, "20000"); err != nil {
		return err
	}
	hold()
	if err := w.setTopic(ctx, topic, limit, "1048588"); err != nil { // the default
		return err
	}
	return w.relays.release(ctx)
}

// recreateTopic excuses what the deleted topic may have held. A broker acknowledges for a moment
// longer than the topic is listed, and what was acknowledged is committed, though it may not be in the
// ledger yet: so some more is excused.
func recreateTopic(ctx context.Context, w *world, hold func()) error {
	const topic = prefix + notices
	admin := w.cluster.Admin
	if _, err := admin.DeleteTopic(ctx, topic); err != nil {
		return fmt.Errorf("delete topic: %w", err)
	}
	if !await(ctx, stepLimit, func(ctx context.Context) bool {
		topics, err := admin.ListTopics(ctx)
		return err == nil && !topics.Has(topic)
	}) {
		return fmt.Errorf("topic %s does not go", topic)
	}
	pause(ctx, 2*time.Second)
	w.ledger.Excuse(topic)
	hold() // what is committed from here on is waiting for the topic
	if _, err := admin.CreateTopic(ctx, partitions, brokers, nil, topic); err != nil {
		return fmt.Errorf("create topic again: %w", err)
	}
	w.pulse.forget(topic)
	return nil
}
