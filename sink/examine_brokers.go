package sink

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

// meeting is what came of connecting to one address.
type meeting struct {
	addr     string
	id       int32 // of the broker; -1 when it was met under a bootstrap address
	err      error
	metadata *sarama.MetadataResponse
	apis     *sarama.ApiVersionsResponse
	expires  time.Time // of its certificate; zero without TLS
}

// brokers meets every bootstrap address, and then every broker under the address that it advertises,
// which is the one that produces go to. It returns the addresses that answer.
func (x *examiner) brokers(ctx context.Context) (alive []string) {
	seeds := x.meet(ctx, x.cfg.Brokers, nil)
	var first *meeting
	for _, m := range seeds {
		f := findings{object: m.addr}
		switch {
		case m.err != nil:
			x.unreachable(&f, "bootstrap-broker", m)
		case first != nil && cluster(first) != cluster(m):
			f.bad(LevelFault, "bootstrap-broker", fmt.Sprintf("it belongs to cluster %s, %s to %s",
				cluster(m), first.addr, cluster(first)), "a start that happens to ask this one streams into another cluster",
				"name brokers of one cluster only in WALRELAY_KAFKA_BROKERS")
		default:
			first = cmp.Or(first, m)
			f.ok("bootstrap-broker", "reachable, cluster %s of %d brokers", cluster(m), len(m.metadata.Brokers))
			x.connected(&f, m)
			alive = append(alive, m.addr)
		}
		x.add(f.all...)
	}
	if first == nil {
		return nil
	}
	members := slices.SortedFunc(slices.Values(first.metadata.Brokers), func(a, b *sarama.Broker) int {
		return cmp.Compare(a.ID(), b.ID())
	})
	var addrs []string
	for _, b := range members {
		addrs = append(addrs, b.Addr())
	}
	for i, m := range x.meet(ctx, addrs, seeds) {
		m.id = members[i].ID()
		f := findings{object: fmt.Sprintf("broker %d at %s", m.id, m.addr)}
		if m.err != nil {
			x.unreachable(&f, "advertised-broker", m)
		} else {
			f.ok("advertised-broker", "reachable at the address that it advertises")
			x.speaks(&f, m)
			if !slices.Contains(alive, m.addr) {
				x.connected(&f, m)
				alive = append(alive, m.addr)
			}
			x.reached = append(x.reached, m)
		}
		x.add(f.all...)
	}
	return alive
}

func cluster(m *meeting) string {
	if m.metadata.ClusterID == nil {
		return "without an id"
	}
	return *m.metadata.ClusterID
}

// meet connects to all addresses at once, but to those met already.
func (x *examiner) meet(ctx context.Context, addrs []string, met []*meeting) []*meeting {
	meetings := make([]*meeting, len(addrs))
	var group sync.WaitGroup
	for i, addr := range addrs {
		if at := slices.IndexFunc(met, func(m *meeting) bool { return m.addr == addr }); at >= 0 {
			again := *met[at]
			meetings[i] = &again
			continue
		}
		m := &meeting{addr: addr, id: -1}
		meetings[i] = m
		group.Go(func() { m.err = x.greet(ctx, m) })
	}
	group.Wait()
	return meetings
}

func (x *examiner) greet(ctx context.Context, m *meeting) error {
	l := x.to(m.addr)
	defer l.close()
	return x.ask(ctx, l, func(b *sarama.Broker) (err error) {
		names, _ := x.names()
		if len(names) == 0 {
			names = []string{"walrelay"} // without one, sarama asks for all topics of the cluster
		}
		req := sarama.NewMetadataRequest(l.conf.Version, names)
		req.AllowAutoTopicCreation = false
		if m.metadata, err = b.GetMetadata(req); err != nil {
			return err
		}
		if state, ok := b.TLSConnectionState(); ok && len(state.PeerCertificates) > 0 {
			m.expires = state.PeerCertificates[0].NotAfter
		}
		m.apis, err = b.ApiVersions(&sarama.ApiVersionsRequest{
			Version: 3, ClientSoftwareName: "walrelay", ClientSoftwareVersion: "doctor",
		})
		if err == nil {
			err = answered(sarama.KError(m.apis.ErrorCode))
		}
		return err
	})
}

// unreachable says what kept us from a broker.
func (x *examiner) unreachable(f *findings, check string, m *meeting) {
	why := "a start that happens to ask this one first waits for it"
	if check == "advertised-broker" {
		why = "events go to the leader of their partition under the address that it advertises, whatever " +
			"WALRELAY_KAFKA_BROKERS says: those of its partitions are not delivered"
	}
	f.bad(LevelFault, check, m.err.Error(), why, x.remedy(check, m))
}

// remedy is what mends a connection that fails.
func (x *examiner) remedy(check string, m *meeting) string {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		dns       *net.DNSError
		login     *LoginError
		token     *tokenError
		text      = m.err.Error()
	)
	switch {
	case errors.As(m.err, &authority):
		return "set WALRELAY_KAFKA_TLS_CA_FILE to the authority that signed the brokers' certificates"
	case errors.As(m.err, &name):
		return "set WALRELAY_KAFKA_TLS_SERVER_NAME to a name in the certificate, or issue one for the broker's host"
	case errors.As(m.err, &invalid):
		return "issue a new certificate for the broker"
	case strings.Contains(text, "remote error: tls"):
		return "the broker refuses our certificate: set WALRELAY_KAFKA_TLS_CERT_FILE and WALRELAY_KAFKA_TLS_KEY_FILE to " +
			"one that an authority in its truststore signed"
	case errors.As(m.err, &login):
		return login.Remedy
	case errors.As(m.err, &token):
		return "look at what grants the token, and at the way to it"
	case errors.Is(m.err, io.EOF), errors.Is(m.err, syscall.ECONNRESET):
		return "the broker hangs up: compare the listener's protocol (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL) with " +
			"WALRELAY_KAFKA_TLS and WALRELAY_KAFKA_SASL_MECHANISM"
	case check == "advertised-broker":
		return "set the broker's advertised.listeners to an address that is reachable from here, or open the way to " + m.addr
	case errors.As(m.err, &dns):
		return "correct WALRELAY_KAFKA_BROKERS, or the name service"
	default:
		return "start the broker, open the way to it, or take it out of WALRELAY_KAFKA_BROKERS"
	}
}

// connected says how: encrypted or not, and for how long.
func (x *examiner) connected(f *findings, m *meeting) {
	const soon = 30 * 24 * time.Hour
	switch {
	case m.expires.IsZero() && x.cfg.SASL != nil && x.cfg.SASL.Mechanism == sarama.SASLTypePlaintext && !local(m.addr):
		f.bad(LevelWarning, "security", "the password goes over the network as it is", "whoever listens can read it and "+
			"every event", "set WALRELAY_KAFKA_TLS=true and name the port of a SASL_SSL listener")
	case m.expires.IsZero() && !local(m.addr):
		f.bad(LevelWarning, "security", "the connection is not encrypted", "whoever listens can read every event",
			"set WALRELAY_KAFKA_TLS=true and name the port of an SSL or SASL_SSL listener")
	case !m.expires.IsZero() && m.expires.Sub(now()) < soon:
		f.bad(LevelWarning, "security", "its certificate ends on "+m.expires.UTC().Format(time.DateOnly),
			"from then on no connection is made", "issue a new certificate for the broker")
	default:
		how := "plain, to this machine"
		if !m.expires.IsZero() {
			how = "TLS, certificate valid until " + m.expires.UTC().Format(time.DateOnly)
		}
		if x.cfg.SASL != nil {
			how += ", logged in by " + x.cfg.SASL.Mechanism
		}
		f.ok("security", "%s", how)
	}
}

// local says that an address is on this machine.
func local(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// api is a request that walrelay makes, in the oldest version that does: https://kafka.apache.org/protocol.
type api struct {
	name    string
	key     int16
	version int16
}

// speaks compares what the broker speaks with what is asked of it.
func (x *examiner) speaks(f *findings, m *meeting) {
	// InitProducerId 3 and Produce 8 came with Kafka 2.5: a producer that raises its epoch (KIP-360), and
	// answers that name the record to blame (KIP-467).
	needs := []api{{"Produce", 0, 8}, {"InitProducerId", 22, 3}, {"DescribeConfigs", 32, 1}}
	if x.cfg.ExactlyOnce {
		needs = append(needs, api{"Fetch", 1, 11}, api{"FindCoordinator", 10, 2}, api{"AddPartitionsToTxn", 24, 1},
			api{"EndTxn", 26, 1})
	}
	most := map[int16]int16{}
	for _, key := range m.apis.ApiKeys {
		most[key.ApiKey] = key.MaxVersion
	}
	var lacks []string
	for _, need := range needs {
		if has, known := most[need.key]; !known || has < need.version {
			lacks = append(lacks, fmt.Sprintf("%s version %d", need.name, need.version))
		}
	}
	if len(lacks) > 0 {
		f.bad(LevelFault, "broker-version", "it does not speak "+strings.Join(lacks, ", "),
			"idempotent batches and the blame for a refused record need Kafka 2.5", "upgrade the broker to Kafka 2.5 or later")
		return
	}
	level := "unknown"
	for _, feature := range m.apis.FinalizedFeatures {
		if feature.Name == "metadata.version" {
			level = fmt.Sprint(feature.MaxVersionLevel)
		}
	}
	f.ok("broker-version", "speaks Produce up to version %d, metadata.version %s", most[0], level)
}
