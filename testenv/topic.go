package testenv

import (
	"context"
	"testing"
	"time"
)

// replicas is how many copies a topic gets.
func (c *Cluster) replicas() int { return min(3, len(c.brokers)) }

// Topic creates a topic for one test, with a copy on each broker (three at most), and returns its
// name when every partition has a leader. It is deleted at the end of the test.
func (c *Cluster) Topic(t testing.TB, partitions int, configs map[string]string) string {
	t.Helper()
	name := uniqueName(t)
	c.CreateTopic(t, name, partitions, configs)
	return name
}

// CreateTopic is Topic for a name that the test needs.
func (c *Cluster) CreateTopic(t testing.TB, name string, partitions int, configs map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	values := map[string]*string{}
	for key, value := range configs {
		values[key] = &value
	}

	_, err := c.Admin.CreateTopic(ctx, int32(partitions), int16(c.replicas()), values, name)
	if err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
	t.Cleanup(func() {
		if c.private { // which goes as a whole, if it is still there
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := c.Admin.DeleteTopic(ctx, name); err != nil {
			t.Errorf("delete topic %s: %v", name, err)
		}
	})
	c.awaitLeaders(ctx, t, name, partitions)
}

// awaitLeaders waits until the brokers tell of that many partitions, each of which has a leader. They learn of a change
// after the controller has answered.
func (c *Cluster) awaitLeaders(ctx context.Context, t testing.TB, name string, partitions int) {
	t.Helper()
	if !poll(time.Minute, func() bool {
		topics, err := c.Admin.ListTopics(ctx, name)
		if err != nil || len(topics[name].Partitions) != partitions {
			return false
		}
		for _, p := range topics[name].Partitions {
			if p.Err != nil || p.Leader < 0 {
				return false
			}
		}
		return true
	}) {
		t.Fatalf("topic %s gets no leaders", name)
	}
}

// AddPartitions raises the partition count of a topic by n, and returns when every partition has a leader.
func (c *Cluster) AddPartitions(t testing.TB, topic string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	before, err := c.Admin.ListTopics(ctx, topic)
	if err != nil {
		t.Fatalf("list topic: %v", err)
	}
	answers, err := c.Admin.CreatePartitions(ctx, n, topic)
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		t.Fatalf("add partitions to %s: %v", topic, err)
	}
	c.awaitLeaders(ctx, t, topic, len(before[topic].Partitions)+n)
}
