package testenv

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed" // for log4j2.properties
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

//go:embed log4j2.properties
var log4j []byte

// broker is one node of a cluster, controller and broker in one process.
type broker struct {
	index          int
	port           int    // of the listener PLAINTEXT
	controllerPort int    // of the listener CONTROLLER
	listener       string // address of the listener CLIENT; empty when there is none
	advertised     string // how clients reach that
	dir            string
	jars           string
	jvm            []string
	child          *child
}

func newBroker(index int, jars string, cfg KafkaConfig) (*broker, error) {
	b := &broker{index: index, jars: jars, jvm: cfg.JVM}
	var err error
	if b.port, err = reservePort(); err != nil {
		return nil, err
	}
	if b.controllerPort, err = reservePort(); err != nil {
		return nil, err
	}
	if l := cfg.Listener; l != nil {
		port, err := reservePort()
		if err != nil {
			return nil, err
		}
		b.listener = loopback(port)
		b.advertised = b.listener
		if l.Advertise != nil {
			b.advertised = l.Advertise(index, b.listener)
		}
	}
	b.dir, err = serverDir("kafka")
	return b, err
}

func (b *broker) nodeID() int32 { return int32(b.index) + 1 }

// properties are what a small machine starts quickly and what serves many small tests.
func (b *broker) properties(c *Cluster) map[string]string {
	var voters []string
	for _, o := range c.brokers {
		voters = append(voters, fmt.Sprintf("%d@%s", o.nodeID(), loopback(o.controllerPort)))
	}
	listeners := "PLAINTEXT://" + loopback(b.port)
	p := map[string]string{
		"process.roles":                        "broker,controller",
		"node.id":                              strconv.Itoa(int(b.nodeID())),
		"controller.quorum.voters":             strings.Join(voters, ","),
		"controller.listener.names":            "CONTROLLER",
		"listeners":                            listeners + ",CONTROLLER://" + loopback(b.controllerPort),
		"advertised.listeners":                 listeners,
		"inter.broker.listener.name":           "PLAINTEXT",
		"listener.security.protocol.map":       "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs":                             filepath.Join(b.dir, "data"),
		"auto.create.topics.enable":            "false",
		"num.network.threads":                  "2",
		"num.io.threads":                       "4",
		"background.threads":                   "2",
		"log.cleaner.dedupe.buffer.size":       "16777216", // bytes; the default of 128 MB is our heap
		"offsets.topic.num.partitions":         "1",
		"transaction.state.log.num.partitions": "1",
		"group.initial.rebalance.delay.ms":     "0",
		"log.initial.task.delay.ms":            "1000",
		"broker.heartbeat.interval.ms":         "500",
		"broker.session.timeout.ms":            "6000", // a frozen or killed broker counts as gone then
	}
	replicas := c.replicas()
	for _, topic := range []string{"offsets.topic", "transaction.state.log", "share.coordinator.state.topic"} {
		p[topic+".replication.factor"] = strconv.Itoa(replicas)
	}
	for _, topic := range []string{"transaction.state.log", "share.coordinator.state.topic"} {
		p[topic+".min.isr"] = strconv.Itoa((replicas + 1) / 2)
	}
	if b.listener != "" {
		p["listeners"] += ",CLIENT://" + b.listener
		p["advertised.listeners"] += ",CLIENT://" + b.advertised
		p["listener.security.protocol.map"] += ",CLIENT:" + c.config.Listener.Protocol
	}
	maps.Copy(p, c.config.Settings)
	return p
}

// configure writes what the broker reads at its start and formats its storage.
func (b *broker) configure(c *Cluster) error {
	var text strings.Builder
	properties := b.properties(c)
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		// A value may hold lines, like a certificate: they continue behind a backslash.
		fmt.Fprintf(&text, "%s=%s\n", key, strings.ReplaceAll(properties[key], "\n", "\\n\\\n"))
	}
	err := errors.Join(
		os.WriteFile(filepath.Join(b.dir, "server.properties"), []byte(text.String()), 0o600),
		os.WriteFile(filepath.Join(b.dir, "log4j2.properties"), log4j, 0o600),
	)
	if err != nil {
		return fmt.Errorf("write broker configuration: %w", err)
	}
	format := b.java("kafka.tools.StorageTool", "format", "-t", c.id, "-c", "server.properties")
	var out bytes.Buffer
	format.Stdout, format.Stderr = &out, &out
	if _, err := runChild(format); err != nil {
		return fmt.Errorf("format storage: %w\n%s", err, tail(out.Bytes(), 30))
	}
	return nil
}

// java runs a class of Kafka: with little memory, and with the fast compiler only unless the
// configuration says otherwise, for a test has ended before the other one is worth its while.
func (b *broker) java(class string, args ...string) *exec.Cmd {
	options := []string{
		"-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Djava.awt.headless=true", "-Dlog4j2.configurationFile=log4j2.properties",
	}
	options = append(options, b.jvm...)
	options = append(options, "-cp", filepath.Join(b.jars, "*"), class)
	cmd := exec.Command("java", append(options, args...)...)
	cmd.Dir = b.dir
	return cmd
}

func (b *broker) launch() error {
	log, err := os.OpenFile(b.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open broker log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the broker has a descriptor of its own
	cmd := b.java("kafka.Kafka", "server.properties")
	cmd.Stdout, cmd.Stderr = log, log
	b.child, err = startChild(cmd)
	return err
}

// await returns when the broker itself lists itself: then it serves, and knows what the others know.
func (b *broker) await() error {
	client, err := kgo.NewClient(append(clientOptions([]string{loopback(b.port)}), kgo.MetadataMaxAge(time.Minute))...)
	if err != nil {
		return fmt.Errorf("open client: %w", err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if poll(startLimit, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		var meta kadm.Metadata
		meta, err = admin.BrokerMetadata(ctx)
		return b.child.exited() || err == nil && slices.Contains(meta.Brokers.NodeIDs(), b.nodeID())
	}) && !b.child.exited() {
		return nil
	}
	err = errors.Join(errors.New("it does not serve"), err)
	return fmt.Errorf("await broker %d: %w; its log ends:\n%s", b.index, err, b.logTail())
}

func (b *broker) logFile() string { return filepath.Join(b.dir, "server.log") }

func (b *broker) logTail() []byte {
	text, _ := os.ReadFile(b.logFile())
	return tail(text, 30)
}

// newUUID is a random cluster id in Kafka's form: 16 bytes in unpadded base64. Its tools refuse one
// that looks like an option.
func newUUID() string {
	for {
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails
		if s := base64.RawURLEncoding.EncodeToString(id[:]); s[0] != '-' {
			return s
		}
	}
}
