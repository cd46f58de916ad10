package sink

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

// admin is the connection for metadata, topics and producer ids, apart from those that produce: a
// synchronous request of sarama's holds the broker's lock for a round trip. Safe for concurrent
// use; requests go one after the other, and end with their context.
type admin struct {
	conf  *sarama.Config
	dial  *dialer
	seeds []string

	turn chan struct{} // holds the right to use what follows

	known  []string // addresses from the last metadata, tried before the seeds
	broker *sarama.Broker
	conn   net.Conn        // of broker
	ctx    context.Context //nolint:containedctx // of the request under way: sarama's calls take none
	unbind func() bool     // takes conn out of ctx
}

func newAdmin(seeds []string) *admin {
	return &admin{seeds: seeds, turn: make(chan struct{}, 1)}
}

// Dial implements golang.org/x/net/proxy.Dialer.
func (a *admin) Dial(network, address string) (net.Conn, error) {
	conn, err := a.dial.dial(a.ctx, network, address)
	if err != nil {
		return nil, err
	}
	a.conn = conn
	a.bind()
	return conn, nil
}

// bind closes the connection, and so ends what waits for it, when the request's context ends.
func (a *admin) bind() {
	if a.unbind != nil {
		a.unbind()
	}
	conn := a.conn
	a.unbind = context.AfterFunc(a.ctx, func() { _ = conn.Close() })
}

// do runs a request on a live connection and closes it after a transport error. A connection that
// was there before may be long dead, so that the request gets another one.
func (a *admin) do(ctx context.Context, request func(*sarama.Broker) error) error {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	a.ctx = ctx
	for {
		reused := a.broker != nil
		if reused {
			a.bind()
		} else if err := a.connect(); err != nil {
			return err
		}
		err := request(a.broker)
		a.unbind()
		var code sarama.KError
		if err == nil || errors.As(err, &code) {
			return err
		}
		a.disconnect()
		if !reused || ctx.Err() != nil {
			return err
		}
	}
}

// connect tries the known brokers, then the seeds, each group in random order.
func (a *admin) connect() error {
	shuffled := func(addrs []string) []string {
		addrs = slices.Clone(addrs)
		rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
		return addrs
	}
	var errs []error
	for _, addr := range append(shuffled(a.known), shuffled(a.seeds)...) {
		if a.ctx.Err() != nil {
			return context.Cause(a.ctx)
		}
		broker := sarama.NewBroker(addr)
		err := broker.Open(a.conf)
		if err == nil {
			_, err = broker.Connected()
		}
		if err == nil {
			a.broker = broker
			return nil
		}
		errs = append(errs, fmt.Errorf("connect to broker %s: %w", addr, err))
	}
	return errors.Join(errs...)
}

func (a *admin) disconnect() {
	if a.broker != nil {
		_ = a.broker.Close() // its state is of no interest any more
		a.broker = nil
	}
}

// close ends the connection once no request is under way.
func (a *admin) close() {
	a.turn <- struct{}{}
	a.disconnect()
	<-a.turn
}

func (a *admin) initProducerID(ctx context.Context) (producerID, error) {
	id := producerID{id: -1}
	err := a.do(ctx, func(b *sarama.Broker) error {
		res, err := b.InitProducerID(&sarama.InitProducerIDRequest{Version: 4, ProducerID: -1, ProducerEpoch: -1})
		if err != nil {
			return err
		}
		if res.Err != sarama.ErrNoError {
			return res.Err
		}
		id = producerID{id: res.ProducerID, epoch: res.ProducerEpoch}
		return nil
	})
	return id, err
}

// metadata asks for topics; without topics it asks for the brokers alone.
func (a *admin) metadata(ctx context.Context, topics []string) (*sarama.MetadataResponse, error) {
	var res *sarama.MetadataResponse
	err := a.do(ctx, func(b *sarama.Broker) (err error) {
		req := sarama.NewMetadataRequest(a.conf.Version, topics)
		req.AllowAutoTopicCreation = false
		if res, err = b.GetMetadata(req); err != nil {
			return err
		}
		a.known = a.known[:0]
		for _, known := range res.Brokers {
			a.known = append(a.known, known.Addr())
		}
		return nil
	})
	return res, err
}

// topicConfig is what of a topic's configuration concerns a producer.
type topicConfig struct {
	err             sarama.KError
	maxMessageBytes int
	minInSync       int
	unclean         bool
}

// defaultMaxMessageBytes is the brokers' default, assumed where the configuration may not be read.
const defaultMaxMessageBytes = 1048588

// configs describes topics.
func (a *admin) configs(ctx context.Context, topics []string) (map[string]topicConfig, error) {
	req := &sarama.DescribeConfigsRequest{Version: 4}
	for _, t := range topics {
		req.Resources = append(req.Resources, &sarama.ConfigResource{
			Type: sarama.TopicResource, Name: t,
			ConfigNames: []string{"max.message.bytes", "min.insync.replicas", "unclean.leader.election.enable"},
		})
	}
	var res *sarama.DescribeConfigsResponse
	err := a.do(ctx, func(b *sarama.Broker) (err error) {
		res, err = b.DescribeConfigs(req)
		return err
	})
	if err != nil {
		return nil, err
	}
	configs := make(map[string]topicConfig, len(topics))
	for _, r := range res.Resources {
		c := topicConfig{err: sarama.KError(r.ErrorCode)}
		for _, e := range r.Configs {
			switch e.Name {
			case "max.message.bytes":
				c.maxMessageBytes, _ = strconv.Atoi(e.Value)
			case "min.insync.replicas":
				c.minInSync, _ = strconv.Atoi(e.Value)
			case "unclean.leader.election.enable":
				c.unclean = e.Value == "true"
			}
		}
		configs[r.Name] = c
	}
	return configs, nil
}

// create makes a topic. That it exists already is no error.
func (a *admin) create(
	ctx context.Context, topic string, partitions int32, replication int16, timeout time.Duration,
) error {
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: replication}
	if partitions == 0 {
		detail.NumPartitions = -1
	}
	if replication == 0 {
		detail.ReplicationFactor = -1
	}
	req := sarama.NewCreateTopicsRequest(a.conf.Version, map[string]*sarama.TopicDetail{topic: detail}, timeout, false)
	return a.do(ctx, func(b *sarama.Broker) error {
		res, err := b.CreateTopics(req)
		if err != nil {
			return err
		}
		e := res.TopicErrors[topic]
		if e == nil || e.Err == sarama.ErrNoError || e.Err == sarama.ErrTopicAlreadyExists {
			return nil
		}
		if e.ErrMsg != nil {
			return fmt.Errorf("%w: %s", e.Err, *e.ErrMsg)
		}
		return e.Err
	})
}
