package sink

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// admin is the connection for metadata, topics and producer ids, apart from those that produce: a
// synchronous request of sarama's holds the broker's lock for a round trip. Safe for concurrent
// use; requests go one after the other.
type admin struct {
	conf  *sarama.Config
	seeds []string

	mu     sync.Mutex
	known  []string // addresses from the last metadata, tried before the seeds
	broker *sarama.Broker
}

// do runs a request on a live connection and closes it after a transport error. A connection that
// was there before may be long dead, so that the request gets another one.
func (a *admin) do(request func(*sarama.Broker) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		reused := a.broker != nil
		if !reused {
			if err := a.connect(); err != nil {
				return err
			}
		}
		err := request(a.broker)
		var code sarama.KError
		if err == nil || errors.As(err, &code) {
			return err
		}
		_ = a.broker.Close()
		a.broker = nil
		if !reused {
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

func (a *admin) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broker != nil {
		_ = a.broker.Close()
		a.broker = nil
	}
}

func (a *admin) initProducerID() (producerID, error) {
	id := producerID{id: -1}
	err := a.do(func(b *sarama.Broker) error {
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
func (a *admin) metadata(topics []string) (*sarama.MetadataResponse, error) {
	var res *sarama.MetadataResponse
	err := a.do(func(b *sarama.Broker) (err error) {
		req := sarama.NewMetadataRequest(a.conf.Version, topics)
		req.AllowAutoTopicCreation = false
		res, err = b.GetMetadata(req)
		return err
	})
	if err != nil {
		return nil, err
	}
	addrs := make([]string, 0, len(res.Brokers))
	for _, b := range res.Brokers {
		addrs = append(addrs, b.Addr())
	}
	a.mu.Lock()
	a.known = addrs
	a.mu.Unlock()
	return res, nil
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
func (a *admin) configs(topics []string) (map[string]topicConfig, error) {
	req := &sarama.DescribeConfigsRequest{Version: 4}
	for _, t := range topics {
		req.Resources = append(req.Resources, &sarama.ConfigResource{
			Type: sarama.TopicResource, Name: t,
			ConfigNames: []string{"max.message.bytes", "min.insync.replicas", "unclean.leader.election.enable"},
		})
	}
	var res *sarama.DescribeConfigsResponse
	err := a.do(func(b *sarama.Broker) (err error) {
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
func (a *admin) create(topic string, partitions int32, replication int16, timeout time.Duration) error {
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: replication}
	if partitions == 0 {
		detail.NumPartitions = -1
	}
	if replication == 0 {
		detail.ReplicationFactor = -1
	}
	req := sarama.NewCreateTopicsRequest(a.conf.Version, map[string]*sarama.TopicDetail{topic: detail}, timeout, false)
	return a.do(func(b *sarama.Broker) error {
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
