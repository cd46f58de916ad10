package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 6
	// retentionBytes bounds what the broker of this process keeps of a partition in memory. It is many
	// minutes' worth, and the consumer is never more than an outage behind.
	retentionBytes = "16777216"
)

// broker is where events go: a fake one in this process, or the user's.
type broker struct {
	addrs   []string
	topic   string
	cluster *kfake.Cluster // nil: the user's
	gate    *gate

	mu       sync.Mutex
	next     time.Time // of the next outage; zero: none is planned
	downFrom time.Time // zero: up
	outages  int
	downtime time.Duration // of the outages that are over
}

// openBroker starts a broker, unless addrs names some, and makes the topic.
func openBroker(ctx context.Context, topic string, addrs []string) (*broker, error) {
	b := &broker{addrs: addrs, topic: topic}
	if len(addrs) == 0 {
		if err := b.start(); err != nil {
			return nil, err
		}
	}
	if err := b.createTopic(ctx); err != nil {
		if b.cluster != nil {
			b.cluster.Close()
		}
		return nil, err
	}
	return b, nil
}

func (b *broker) start() error {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ListenFn(func(network, addr string) (net.Listener, error) {
		l, err := net.Listen(network, addr)
		if err != nil {
			return nil, err
		}
		b.gate = newGate(l)
		return b.gate, nil
	}))
	if err != nil {
		return fmt.Errorf("start broker: %w", err)
	}
	b.cluster, b.addrs = cluster, cluster.ListenAddrs()
	return nil
}

func (b *broker) createTopic(ctx context.Context) error {
	return b.asAdmin(ctx, func(ctx context.Context, admin *kadm.Client) error {
		limit := retentionBytes
		_, err := admin.CreateTopic(ctx, partitions, -1, map[string]*string{"retention.bytes": &limit}, b.topic)
		if err != nil {
			return fmt.Errorf("create topic: %w", err)
		}
		return nil
	})
}

// ends returns the offset after the last record of each partition.
func (b *broker) ends(ctx context.Context) (map[int32]int64, error) {
	ends := make(map[int32]int64, partitions)
	err := b.asAdmin(ctx, func(ctx context.Context, admin *kadm.Client) error {
		listed, err := admin.ListEndOffsets(ctx, b.topic)
		if err := errors.Join(err, listed.Error()); err != nil {
			return fmt.Errorf("list offsets: %w", err)
		}
		listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
		return nil
	})
	return ends, err
}

// close deletes the topic, or stops our broker.
func (b *broker) close() error {
	if b.cluster != nil {
		b.cluster.Close()
		return nil
	}
	return b.asAdmin(context.Background(), func(ctx context.Context, admin *kadm.Client) error {
		if _, err := admin.DeleteTopic(ctx, b.topic); err != nil {
			return fmt.Errorf("delete topic %s: %w", b.topic, err)
		}
		return nil
	})
}

func (b *broker) asAdmin(ctx context.Context, use func(context.Context, *kadm.Client) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addrs...))
	if err != nil {
		return fmt.Errorf("open Kafka client: %w", err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	return use(ctx, kadm.NewClient(client))
}

// outagePlan says when the broker fails.
type outagePlan struct {
	first  time.Duration // after the shop has opened
	length time.Duration
	every  time.Duration // from the end of one to the beginning of the next
}

// planOutages fits the outages into the time that the shop is open; 0 is without end.
func planOutages(open time.Duration) outagePlan {
	plan := outagePlan{first: 12 * time.Second, length: 5 * time.Second, every: 40 * time.Second}
	if open > 0 {
		plan.first = min(plan.first, open/3)
		plan.length = min(plan.length, open/5)
	}
	return plan
}

// fail stops and starts the broker as planned, until ctx ends. Then it is up. An outage that would not
// be over by then is left out.
func (b *broker) fail(ctx context.Context, plan outagePlan) {
	defer b.setDown(false)
	end, ends := ctx.Deadline()
	for pause := plan.first; !ends || time.Until(end) > pause+plan.length; pause = plan.every {
		b.plan(time.Now().Add(pause))
		if !wait(ctx, pause) {
			return
		}
		b.setDown(true)
		if !wait(ctx, plan.length) {
			return
		}
		b.setDown(false)
	}
}

// wait says whether the time has passed, rather than ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (b *broker) plan(next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = next
}

// setDown begins or ends an outage of our broker, which keeps its records meanwhile.
func (b *broker) setDown(down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if down != b.downFrom.IsZero() {
		return
	}
	b.next = time.Time{}
	b.gate.set(down)
	if down {
		b.downFrom = time.Now()
		b.outages++
		return
	}
	b.downtime += time.Since(b.downFrom)
	b.downFrom = time.Time{}
}

// brokerState is what the broker is at one moment.
type brokerState struct {
	ours     bool
	down     time.Duration // so far; 0: it is up
	next     time.Duration // until the next outage; 0: none is planned
	outages  int           // begun so far
	downtime time.Duration // of the outages that are over
}

func (b *broker) state(now time.Time) brokerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := brokerState{ours: b.cluster != nil, outages: b.outages, downtime: b.downtime}
	if !b.downFrom.IsZero() {
		s.down = max(now.Sub(b.downFrom), 1)
	}
	if !b.next.IsZero() {
		s.next = max(b.next.Sub(now), 0)
	}
	return s
}
