package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
)

// loseLeader leaves one partition to a single broker and kills that. The other partitions of the topic
// have leaders elsewhere. What the broker had acknowledged is in the page cache, which a SIGKILL spares.
func loseLeader(ctx context.Context, w *world, hold func()) error {
	topic, partition := pick(w.random, w.topics...), w.random.Int32N(partitions)
	alone := w.random.IntN(brokers)
	if err := w.setTopic(ctx, topic, "min.insync.replicas", "1"); err != nil {
		return err
	}
	if err := w.reassign(ctx, topic, partition, w.cluster.NodeID(alone)); err != nil {
		return err
	}
	w.cluster.KillBroker(w.t, alone)
	if !await(ctx, stepLimit, func(ctx context.Context) bool {
		topics, err := w.cluster.Admin.ListTopics(ctx, topic)
		return err == nil && topics[topic].Partitions[partition].Leader == -1
	}) {
		return fmt.Errorf("partition %d of %s keeps its leader", partition, topic)
	}
	hold()
	w.cluster.StartBroker(w.t, alone)
	all := []int32{w.cluster.NodeID(alone)} // which is the leader, and stays preferred
	for i := range brokers {
		if i != alone {
			all = append(all, w.cluster.NodeID(i))
		}
	}
	if err := w.reassign(ctx, topic, partition, all...); err != nil {
		return err
	}
	return w.setTopic(ctx, topic, "min.insync.replicas", "2")
}

// reassign gives a partition its replicas and waits until they, and no others, are in sync.
func (w *world) reassign(ctx context.Context, topic string, partition int32, replicas ...int32) error {
	var assignment kadm.AlterPartitionAssignmentsReq
	assignment.Assign(topic, partition, replicas)
	answers, err := w.cluster.Admin.AlterPartitionAssignments(ctx, assignment)
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		return fmt.Errorf("alter assignment: %w", err)
	}
	wanted := slices.Sorted(slices.Values(replicas))
	var p kadm.PartitionDetail
	if !await(ctx, stepLimit, func(ctx context.Context) bool {
		topics, err := w.cluster.Admin.ListTopics(ctx, topic)
		if err != nil {
			return false
		}
		p = topics[topic].Partitions[partition]
		return p.Leader >= 0 && slices.Equal(slices.Sorted(slices.Values(p.Replicas)), wanted) &&
			slices.Equal(slices.Sorted(slices.Values(p.ISR)), wanted)
	}) {
		return fmt.Errorf("partition %d of %s is not moved to %v: replicas %v, in sync %v, leader %d",
			partition, topic, replicas, p.Replicas, p.ISR, p.Leader)
	}
	return nil
}

// setTopic sets a topic's configuration.
func (w *world) setTopic(ctx context.Context, topic, name, value string) error {
	config := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}
	answers, err := w.cluster.Admin.AlterTopicConfigs(ctx, config, topic)
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return nil
}
