package testenv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// KafkaConfig describes a private cluster.
type KafkaConfig struct {
	// Brokers is their number, each of which is also a controller; zero means 1.
	Brokers int
	// Settings go into each server.properties, over the defaults of testenv (see broker.properties).
	Settings map[string]string
	// JVM are options for java, behind the defaults, which suit tests: 512 MB of heap, the serial
	// collector, the fast compiler only. Benchmarks want "-Xmx2g" and "-XX:TieredStopAtLevel=4".
	JVM []string
	// Listener is one more way in, beside the plain one, with a protocol of its own or through a
	// proxy. Nil means none.
	Listener *Listener
}

// Listener describes the additional listener, which Kafka knows by the name CLIENT. So Settings for
// it begin with "listener.name.client.".
type Listener struct {
	Protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
	// Advertise says under which address clients reach a broker's listener (from 0), which itself
	// listens on addr. Called before anything is started. Nil means addr.
	Advertise func(broker int, addr string) string
}

// Cluster is an Apache Kafka cluster in KRaft mode.
type Cluster struct {
	Admin *kadm.Client

	id      string
	config  KafkaConfig
	brokers []*broker
	client  *kgo.Client
	private bool
}

// Kafka returns the single broker that all tests of this process share.
func Kafka(t testing.TB) *Cluster {
	t.Helper()
	return share(t, "Kafka", func() (*Cluster, error) {
		// Nobody kills it, and it would be nobody's leader for a while if it counted as gone on a busy machine.
		return newCluster(KafkaConfig{Settings: map[string]string{"broker.session.timeout.ms": "60000"}})
	})
}

// StartKafka starts a cluster for one test, which may stop, kill and pause its brokers.
func StartKafka(t testing.TB, cfg KafkaConfig) *Cluster {
	t.Helper()
	c, err := newCluster(cfg)
	if err != nil {
		t.Fatalf("start Kafka: %v", err)
	}
	c.private = true
	t.Cleanup(func() { c.cleanup(t) })
	return c
}

func newCluster(cfg KafkaConfig) (*Cluster, error) {
	jars, err := fetch("kafka")
	if err != nil {
		return nil, err
	}
	c := &Cluster{id: newUUID(), config: cfg}
	for i := range max(1, cfg.Brokers) {
		b, err := newBroker(i, jars, cfg)
		if err != nil {
			return nil, err
		}
		c.brokers = append(c.brokers, b)
	}
	if err := c.start(); err != nil {
		_ = c.close()
		return nil, err
	}
	return c, nil
}

// start formats and launches all brokers at once, since a quorum needs most of them.
func (c *Cluster) start() error {
	for _, b := range c.brokers {
		if err := b.configure(c); err != nil {
			return err
		}
		if err := b.launch(); err != nil {
			return err
		}
	}
	for _, b := range c.brokers {
		if err := b.await(); err != nil {
			return err
		}
	}
	var err error
	c.client, err = kgo.NewClient(clientOptions(c.Addrs())...)
	if err != nil {
		return fmt.Errorf("open client: %w", err)
	}
	c.Admin = kadm.NewClient(c.client)
	return nil
}

// clientOptions suit servers that are near, and that come and go.
func clientOptions(addrs []string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(addrs...),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		kgo.DialTimeout(5 * time.Second),
	}
}

func (c *Cluster) cleanup(t testing.TB) {
	if t.Failed() {
		for _, b := range c.brokers {
			t.Logf("log of broker %d ends:\n%s", b.index, b.logTail())
		}
	}
	if err := c.close(); err != nil {
		t.Errorf("stop Kafka: %v", err)
	}
}

// close ends the cluster for good and removes its data.
func (c *Cluster) close() error {
	if c.client != nil {
		c.client.Close()
	}
	for _, b := range c.brokers {
		if b.child != nil {
			if err := b.child.stop(syscall.SIGKILL, time.Minute); err != nil {
				return err
			}
		}
		if err := os.RemoveAll(b.dir); err != nil {
			return err
		}
	}
	return nil
}

// Addrs are the addresses of the plain listeners, host:port, by broker.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, b := range c.brokers {
		addrs = append(addrs, loopback(b.port))
	}
	return addrs
}

// ListenerAddrs are the advertised addresses of the additional listener, by broker.
func (c *Cluster) ListenerAddrs() []string {
	var addrs []string
	for _, b := range c.brokers {
		addrs = append(addrs, b.advertised)
	}
	return addrs
}

// Seeds is Addrs as one comma-separated string.
func (c *Cluster) Seeds() string { return strings.Join(c.Addrs(), ",") }

// Classpath is for java's -cp: Kafka's client, its tools, and all that they need.
func (c *Cluster) Classpath() string { return filepath.Join(c.brokers[0].jars, "*") }

// NodeID is the id by which Kafka knows broker i.
func (c *Cluster) NodeID(i int) int32 { return c.brokers[i].nodeID() }

// BrokerPID is the process of broker i.
func (c *Cluster) BrokerPID(i int) int { return c.brokers[i].child.pid() }

// StopBroker shuts broker i down in order, which moves its leaderships away first.
func (c *Cluster) StopBroker(t testing.TB, i int) {
	t.Helper()
	c.must(t, i, "stop", c.brokers[i].child.stop(syscall.SIGTERM, time.Minute))
}

// KillBroker ends broker i at once.
func (c *Cluster) KillBroker(t testing.TB, i int) {
	t.Helper()
	c.must(t, i, "kill", c.brokers[i].child.stop(syscall.SIGKILL, time.Minute))
}

// StartBroker starts broker i again, on the same ports and data, and waits until it serves.
func (c *Cluster) StartBroker(t testing.TB, i int) {
	t.Helper()
	b := c.brokers[i]
	c.must(t, i, "launch", b.launch())
	c.must(t, i, "await", b.await())
}

// PauseBroker freezes broker i: connections stay, nothing answers.
func (c *Cluster) PauseBroker(t testing.TB, i int) {
	t.Helper()
	c.must(t, i, "pause", c.brokers[i].child.signal(syscall.SIGSTOP))
}

// ResumeBroker ends PauseBroker.
func (c *Cluster) ResumeBroker(t testing.TB, i int) {
	t.Helper()
	c.must(t, i, "resume", c.brokers[i].child.signal(syscall.SIGCONT))
}

// Leader is the broker, by index, that leads a partition; -1 when none does.
func (c *Cluster) Leader(t testing.TB, topic string, partition int32) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	topics, err := c.Admin.ListTopics(ctx, topic)
	if err != nil {
		t.Fatalf("list topic: %v", err)
	}
	leader := topics[topic].Partitions[partition].Leader
	return slices.IndexFunc(c.brokers, func(b *broker) bool { return b.nodeID() == leader })
}

func (c *Cluster) must(t testing.TB, i int, verb string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s broker %d: %v", verb, i, err)
	}
}
