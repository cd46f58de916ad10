package sink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/testenv"
)

// diagnosis is what an examination found.
type diagnosis struct {
	t   testing.TB
	all []Finding
}

func examine(t testing.TB, brokers []string, probe Probe, change func(*Config)) diagnosis {
	t.Helper()
	cfg := testConfig(t, brokers, change)
	cfg.Logger, cfg.Observer, cfg.Now = nil, nil, nil
	d := diagnosis{t, Examine(t.Context(), cfg, probe)}
	for _, f := range d.all {
		require.NotEmpty(t, f.Check)
		require.NotEmpty(t, f.Object, "%+v", f)
		require.NotEmpty(t, f.Found, "%+v", f)
		if f.Level == LevelOK {
			require.Empty(t, f.Why+f.Fix, "%+v", f)
		} else {
			require.NotEmpty(t, f.Why, "%+v", f)
		}
	}
	return d
}

// finding is the one of a check about an object, of which the name's end is enough.
func (d diagnosis) finding(check, object string) Finding {
	d.t.Helper()
	var found []Finding
	for _, f := range d.all {
		if f.Check == check && strings.HasSuffix(f.Object, object) {
			found = append(found, f)
		}
	}
	require.Len(d.t, found, 1, "%s of %s in %+v", check, object, d.all)
	return found[0]
}

func (d diagnosis) is(level Level, check, object string, parts ...string) Finding {
	d.t.Helper()
	f := d.finding(check, object)
	require.Equal(d.t, level, f.Level, "%+v", f)
	for _, part := range parts {
		require.Contains(d.t, f.Found+" "+f.Fix, part)
	}
	return f
}

func once(c *Config) {
	c.ExactlyOnce, c.StateTopic = true, c.Stream+".state"
	c.TransactionInterval, c.TransactionTimeout = 10*time.Millisecond, time.Minute
	c.TransactionEvents, c.TransactionBytes = 1000, 1<<20
}

const tick = 50 * time.Millisecond

var (
	setConfig = regexp.MustCompile(`--entity-name (\S+) --add-config (\S+)=(\S+)`)
	addACL    = regexp.MustCompile(`--allow-principal '(\S+)'((?: --operation \w+)+) (--\S+)(?: (\S+))?`)
)

// mend carries out the command of a finding.
func mend(t testing.TB, kafka *testenv.Cluster, f Finding) {
	t.Helper()
	if m := setConfig.FindStringSubmatch(f.Fix); m != nil {
		answers, err := kafka.Admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: m[2], Value: &m[3]}}, m[1])
		require.NoError(t, err)
		require.NoError(t, answers[0].Err)
		return
	}
	m := addACL.FindStringSubmatch(f.Fix)
	require.NotNil(t, m, f.Fix)
	var ops []kadm.ACLOperation
	for name := range strings.FieldsSeq(strings.ReplaceAll(m[2], "--operation", "")) {
		op := map[string]kadm.ACLOperation{
			"Describe": kadm.OpDescribe, "DescribeConfigs": kadm.OpDescribeConfigs, "Read": kadm.OpRead,
			"Write": kadm.OpWrite, "Create": kadm.OpCreate, "IdempotentWrite": kadm.OpIdempotentWrite,
		}[name]
		require.NotZero(t, op, name)
		ops = append(ops, op)
	}
	acl := kadm.NewACLs().Allow(m[1]).AllowHosts("*").Operations(ops...).ResourcePatternType(kadm.ACLPatternLiteral)
	switch m[3] {
	case "--topic":
		acl.Topics(m[4])
	case "--transactional-id":
		acl.TransactionalIDs(m[4])
	case "--cluster":
		acl.Clusters()
	}
	answers, err := kafka.Admin.CreateACLs(t.Context(), acl)
	require.NoError(t, err)
	require.NotEmpty(t, answers)
	for _, a := range answers {
		require.NoError(t, a.Err)
	}
}

// Each weakness of a topic is named, and gone once the command that the finding gives is carried out.
func TestExamine_Topics(t *testing.T) {
	t.Parallel()
	kafka := testenv.Kafka(t)
	for name, test := range map[string]struct {
		config map[string]string
		probe  Probe
		role   func(c *Config, topic string)
		check  string
		level  Level
		found  string
	}{
		"unclean election": {
			config: map[string]string{"unclean.leader.election.enable": "true"},
			check:  "unclean-election", level: LevelWarning, found: "is on",
		},
		"compacted": {
			config: map[string]string{"cleanup.policy": "compact"},
			check:  "cleanup-policy", level: LevelWarning, found: "compact",
		},
		"largest record": {
			config: map[string]string{"max.message.bytes": "1000"}, probe: Probe{LargestRecord: 1001},
			check: "max-message-bytes", level: LevelFault, found: "takes 1001",
		},
		"append time": {
			config: map[string]string{"message.timestamp.type": "LogAppendTime"},
			check:  "timestamps", level: LevelWarning, found: "LogAppendTime",
		},
		"old timestamps": {
			config: map[string]string{"message.timestamp.before.max.ms": "60000"},
			check:  "timestamps", level: LevelWarning, found: "1m0s",
		},
		"dead letters that end": {
			config: map[string]string{"retention.ms": "60000", "max.message.bytes": "20000000"},
			role:   func(c *Config, topic string) { c.DeadTopic, c.OnPoison = topic, DeadLetter },
			check:  "cleanup-policy", level: LevelWarning, found: "removed after 1m0s",
		},
		"dead letters as small as events": {
			role:  func(c *Config, topic string) { c.DeadTopic, c.OnPoison = topic, DeadLetter },
			check: "max-message-bytes", level: LevelWarning, found: "a topic of events has 1048588",
		},
		"states that are deleted": {
			role:  func(c *Config, topic string) { once(c); c.StateTopic = topic },
			check: "cleanup-policy", level: LevelFault, found: "cleanup.policy is delete",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := kafka.Topic(t, 2, test.config)
			probe := test.probe
			change := func(*Config) {}
			if test.role != nil {
				probe.Topics = []string{kafka.Topic(t, 1, nil)}
				change = func(c *Config) { test.role(c, topic) }
			} else {
				probe.Topics = []string{topic}
			}
			d := examine(t, kafka.Addrs(), probe, change)
			d.is(LevelOK, "topic", topic)
			d.is(LevelOK, "leaders", topic)
			d.is(LevelOK, "topic-rights", topic)
			mend(t, kafka, d.is(test.level, test.check, topic, test.found))
			require.Eventually(t, func() bool {
				return examine(t, kafka.Addrs(), probe, change).finding(test.check, topic).Level == LevelOK
			}, patience, tick)
		})
	}
}

// A cluster as it should be has nothing to complain of but what cannot be known.
func TestExamine_Healthy(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts brokers of its own")
	}
	const elsewhere = "127.0.0.1:1" // where nobody listens
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{
		Brokers: 3, Settings: map[string]string{"min.insync.replicas": "2"},
		Listener: &testenv.Listener{Protocol: "PLAINTEXT", Advertise: func(broker int, addr string) string {
			if broker == 2 {
				return elsewhere
			}
			return addr
		}},
	})
	topic := kafka.Topic(t, 3, nil)
	dead := kafka.Topic(t, 3, map[string]string{"max.message.bytes": "20000000", "retention.ms": "-1"})
	probe := Probe{Topics: []string{topic}, LargestRecord: 1000}
	change := func(c *Config) { once(c); c.DeadTopic = dead }
	d := examine(t, kafka.Addrs(), probe, change)
	for _, f := range d.all {
		if f.Check != "clock-skew" {
			require.Equal(t, LevelOK, f.Level, "%+v", f)
		}
	}
	d.is(LevelUnknown, "clock-skew", "brokers")
	d.is(LevelOK, "topic", "test.state", "will create")
	topics, err := kafka.Admin.ListTopics(t.Context())
	require.NoError(t, err)
	require.False(t, topics.Has("test.state"), "nothing is created")

	t.Log("a broker that advertises an address where it is not")
	d = examine(t, kafka.ListenerAddrs(), probe, change)
	d.is(LevelFault, "bootstrap-broker", elsewhere, "refused", "WALRELAY_KAFKA_BROKERS")
	d.is(LevelFault, "advertised-broker", "broker 3 at "+elsewhere, "refused", "advertised.listeners")
	d.is(LevelOK, "advertised-broker", kafka.ListenerAddrs()[0])
	d.is(LevelOK, "min-isr", topic, "2, of 3")

	t.Log("as many in sync as there are")
	strict := kafka.Topic(t, 3, map[string]string{"min.insync.replicas": "3"})
	probe.Topics = []string{topic, strict}
	mending := examine(t, kafka.Addrs(), probe, change).is(LevelWarning, "min-isr", strict, "min.insync.replicas is 3")

	t.Log("a broker that is down")
	kafka.KillBroker(t, 2)
	require.Eventually(t, func() bool {
		return examine(t, kafka.Addrs(), probe, change).finding("min-isr", strict).Level == LevelFault
	}, patience, tick)
	d = examine(t, kafka.Addrs(), probe, change)
	d.is(LevelFault, "bootstrap-broker", kafka.Addrs()[2], "refused")
	d.is(LevelOK, "min-isr", topic, "2 in sync")
	mend(t, kafka, mending)
	require.Eventually(t, func() bool {
		return examine(t, kafka.Addrs(), probe, change).finding("min-isr", strict).Level == LevelOK
	}, patience, tick)

	t.Log("one that freezes")
	kafka.PauseBroker(t, 1)
	began := time.Now()
	d = examine(t, kafka.Addrs(), probe, func(c *Config) { change(c); c.Timeout = time.Second })
	require.Less(t, time.Since(began), patience)
	d.is(LevelFault, "bootstrap-broker", kafka.Addrs()[1])
	kafka.ResumeBroker(t, 1)

	t.Log("nobody")
	d = examine(t, []string{elsewhere}, probe, change)
	d.is(LevelFault, "bootstrap-broker", elsewhere)
	d.is(LevelUnknown, "cluster", "cluster")
}

// A single broker, a missing topic, a quota, and limits below our own.
func TestExamine_Cluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a broker of its own")
	}
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{Settings: map[string]string{
		"transaction.max.timeout.ms": "30000", "socket.request.max.bytes": "200000",
	}})
	topic := kafka.Topic(t, 1, map[string]string{"min.insync.replicas": "1"})
	probe := Probe{Topics: []string{topic, "missing"}}
	d := examine(t, kafka.Addrs(), probe, func(c *Config) { once(c); c.DeadTopic = "dead"; c.BatchBytes = 1 << 20 })
	d.is(LevelWarning, "replication", topic, "1 of the 3")
	d.is(LevelWarning, "min-isr", topic, "min.insync.replicas is 1", "min.insync.replicas=2")
	d.is(LevelFault, "topic", "missing", "--create --topic missing", "WALRELAY_CREATE_TOPICS")
	d.is(LevelWarning, "topic", "dead", "--create --topic dead")
	d.is(LevelFault, "transaction-timeout", kafka.Addrs()[0], "WALRELAY_TRANSACTION_TIMEOUT=30s")
	d.is(LevelFault, "request-bytes", kafka.Addrs()[0], "200000")
	d.is(LevelOK, "quota", "cluster")

	d = examine(t, kafka.Addrs(), probe, func(c *Config) { c.CreateTopics = true; c.Replication = 2 })
	d.is(LevelFault, "topic", "missing", "would refuse")
	d = examine(t, kafka.Addrs(), probe, func(c *Config) { c.CreateTopics = true })
	d.is(LevelOK, "topic", "missing", "will create")

	name := "walrelay"
	_, err := kafka.Admin.AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &name}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 1 << 20}},
	}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		d = examine(t, kafka.Addrs(), probe, func(c *Config) { c.ClientID = name })
		return d.finding("quota", "cluster").Level == LevelWarning
	}, patience, tick)
	d.is(LevelWarning, "quota", "cluster", "producer_byte_rate is 1.048576e+06 for client-id walrelay")
}

// The rights of a principal, from none to those that are needed: each finding's command brings the
// next. Nothing of it disturbs the instance that runs.
func TestExamine_Rights(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a broker of its own")
	}
	const listener = "listener.name.client."
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{
		Listener: &testenv.Listener{Protocol: "SASL_PLAINTEXT"},
		Settings: map[string]string{
			"authorizer.class.name":              "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":                        "User:ANONYMOUS",
			listener + "sasl.enabled.mechanisms": "PLAIN",
			listener + "plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required " +
				`user_relay="secret-of-relay";`,
		},
	})
	topic := kafka.Topic(t, 1, nil)
	probe := Probe{Topics: []string{topic}}
	change := func(c *Config) {
		once(c)
		c.SASL = &SASL{Mechanism: "PLAIN", Username: "relay", Password: always("secret-of-relay")}
	}
	look := func() diagnosis {
		d := examine(t, kafka.ListenerAddrs(), probe, change)
		require.NotContains(t, fmt.Sprint(d.all), "secret-of-relay")
		return d
	}
	// becomes carries a finding's command out and waits for what that changes.
	becomes := func(level Level, check, object string, parts ...string) {
		t.Helper()
		f := look().finding(check, object)
		require.NotEqual(t, level, f.Level, "%+v", f)
		mend(t, kafka, f)
		require.Eventually(t, func() bool { return look().finding(check, object).Level == level }, patience, tick)
		look().is(level, check, object, parts...)
	}
	d := look()
	d.is(LevelFault, "topic", topic, "--operation Describe --operation DescribeConfigs --operation Write")
	d.is(LevelFault, "idempotent-write", "cluster", "IdempotentWrite")
	d.is(LevelFault, "topic", "test.state")
	d.is(LevelFault, "transactional-id", "walrelay-test", "--operation Describe --operation Write")
	d.is(LevelUnknown, "broker-config", kafka.ListenerAddrs()[0])
	d.is(LevelUnknown, "quota", "cluster")

	mend(t, kafka, Finding{Fix: "--allow-principal 'User:relay' --operation Describe --topic " + topic})
	require.Eventually(t, func() bool { return look().finding("topic", topic).Level == LevelOK }, patience, tick)
	look().is(LevelUnknown, "topic-config", topic, "--operation DescribeConfigs")
	look().is(LevelFault, "topic-rights", topic, "lacking: DescribeConfigs, Write")
	becomes(LevelOK, "topic-rights", topic)
	look().is(LevelWarning, "replication", topic)

	d = look() // Write on a topic gives a producer id as well
	d.is(LevelOK, "idempotent-write", "cluster")
	mend(t, kafka, Finding{Fix: "--allow-principal 'User:relay' --operation Describe --transactional-id walrelay-test"})
	require.Eventually(t, func() bool { return look().finding("transactional-id", "walrelay-test").Level == LevelOK },
		patience, tick)
	becomes(LevelOK, "transactional-write", "walrelay-test")
	mend(t, kafka, d.finding("topic", "test.state"))
	require.Eventually(t, func() bool {
		return strings.Contains(look().finding("topic", "test.state").Found, "may not create")
	}, patience, tick)
	becomes(LevelOK, "topic", "test.state")
	mend(t, kafka, look().finding("broker-config", kafka.ListenerAddrs()[0]))
	require.Eventually(t, func() bool {
		d := look()
		return !strings.Contains(fmt.Sprint(d.all), "broker-config") &&
			d.finding("request-bytes", kafka.ListenerAddrs()[0]).Level == LevelOK
	}, patience, tick)
}

// An examination while the stream runs does not fence it.
func TestExamine_Running(t *testing.T) {
	t.Parallel()
	kafka := testenv.Kafka(t)
	topic := kafka.Topic(t, 3, nil)
	change := func(c *Config) {
		once(c)
		c.Stream = topic
		c.StateTopic = topic + ".state"
		c.Replication = 1
	}
	k := start(t, kafka.Addrs(), change)
	s := begin(t, k, checkpoint.Run{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan diagnosis)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			d := examine(t, kafka.Addrs(), Probe{Topics: []string{topic}}, change)
			select {
			case done <- d:
			case <-ctx.Done():
			}
		}
	}()
	for range 5 {
		s.transaction(topic, 500)
		d := <-done
		d.is(LevelOK, "transactional-write", topic)
		d.is(LevelOK, "transaction", topic)
	}
	cancel()
	for range done {
	}
	s.settle()
}

// What keeps a connection from being made is named, with the setting that mends it.
func TestExamine_Connections(t *testing.T) {
	t.Parallel()
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{
		Listener: &testenv.Listener{Protocol: "SASL_PLAINTEXT"},
		Settings: map[string]string{
			"listener.name.client.sasl.enabled.mechanisms": "PLAIN",
			"listener.name.client.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required " +
				`user_relay="right";`,
		},
	})
	web := httptest.NewTLSServer(nil)
	t.Cleanup(web.Close)
	trusted := x509.NewCertPool()
	trusted.AddCert(web.Certificate())
	tlsAddr := web.Listener.Addr().String()
	sasl := kafka.ListenerAddrs()[0]
	for name, test := range map[string]struct {
		addr   string
		change func(*Config)
		fix    string
	}{
		"password": {sasl, func(c *Config) {
			c.SASL = &SASL{Mechanism: "PLAIN", Username: "relay", Password: always("wrong")}
		}, "WALRELAY_KAFKA_SASL_PASSWORD"},
		"mechanism": {sasl, func(c *Config) {
			c.SASL = &SASL{Mechanism: "SCRAM-SHA-256", Username: "relay", Password: always("right")}
		}, "set WALRELAY_KAFKA_SASL_MECHANISM to one"},
		"no login":  {sasl, nil, "the broker hangs up"},
		"no TLS":    {kafka.Addrs()[0], func(c *Config) { c.TLS = always(&tls.Config{}) }, "the broker hangs up"},
		"authority": {tlsAddr, func(c *Config) { c.TLS = always(&tls.Config{}) }, "WALRELAY_KAFKA_TLS_CA_FILE"},
		"other name": {
			tlsAddr, func(c *Config) { c.TLS = always(&tls.Config{RootCAs: trusted, ServerName: "elsewhere"}) },
			"WALRELAY_KAFKA_TLS_SERVER_NAME",
		},
		"no such host": {"nowhere.invalid:9092", nil, "name service"},
		"nobody":       {"127.0.0.1:1", nil, "start the broker"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := examine(t, []string{test.addr}, Probe{}, test.change)
			d.is(LevelFault, "bootstrap-broker", test.addr, test.fix)
		})
	}
	d := examine(t, []string{sasl}, Probe{}, func(c *Config) {
		c.SASL = &SASL{Mechanism: "PLAIN", Username: "relay", Password: always("right")}
	})
	d.is(LevelOK, "security", sasl, "logged in by PLAIN")
}
