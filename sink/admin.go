package sink

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

// admin asks for metadata, topics and producer ids. Safe for concurrent use.
type admin struct {
	*link
	seeds []string
	known []string // addresses from the last metadata, tried before the seeds
}

func newAdmin(seeds []string) *admin {
	a := &admin{seeds: seeds}
	a.link = newLink(a.addrs)
	return a
}

// addrs are the known brokers, then the seeds, each group in random order.
func (a *admin) addrs(context.Context) ([]string, error) {
	shuffled := func(addrs []string) []string {
		addrs = slices.Clone(addrs)
		rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
		return addrs
	}
	return append(shuffled(a.known), shuffled(a.seeds)...), nil
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
	cleanup         string // cleanup.policy
}

// defaultMaxMessageBytes is the brokers' default, assumed where the configuration may not be read.
const defaultMaxMessageBytes = 1048588

// configs describes topics.
func (a *admin) configs(ctx context.Context, topics []string) (map[string]topicConfig, error) {
	req := &sarama.DescribeConfigsRequest{Version: 4}
	for _, t := range topics {
		req.Resources = append(req.Resources, &sarama.ConfigResource{
			Type: sarama.TopicResource, Name: t,
			ConfigNames: []string{
				"max.message.bytes", "min.insync.replicas", "unclean.leader.election.enable", "cleanup.policy",
			},
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
			case "cleanup.policy":
				c.cleanup = e.Value
			}
		}
		configs[r.Name] = c
	}
	return configs, nil
}

// create makes a topic; numbers that are 0 are the brokers' defaults. That it exists already is no error.
func (a *admin) create(
	ctx context.Context, topic string, detail *sarama.TopicDetail, timeout time.Duration,
) error {
	if detail.NumPartitions == 0 {
		detail.NumPartitions = -1
	}
	if detail.ReplicationFactor == 0 {
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
