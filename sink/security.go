package sink

import (
	"fmt"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// SASL says who we are to the brokers.
type SASL struct {
	Mechanism string // PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
	Username  string
	Password  string
}

func (s *SASL) apply(conf *sarama.Config) error {
	net := &conf.Net.SASL
	net.Enable = true
	net.Mechanism = sarama.SASLMechanism(s.Mechanism)
	net.User, net.Password = s.Username, s.Password
	switch s.Mechanism {
	case sarama.SASLTypePlaintext:
	case sarama.SASLTypeSCRAMSHA256:
		net.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA256} }
	case sarama.SASLTypeSCRAMSHA512:
		net.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA512} }
	default:
		return fmt.Errorf("unknown SASL mechanism %q", s.Mechanism)
	}
	return nil
}

// scramClient is one SCRAM conversation (RFC 5802), as sarama asks for it.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (c *scramClient) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err != nil {
		return fmt.Errorf("prepare SCRAM credentials: %w", err)
	}
	c.conversation = client.NewConversation()
	return nil
}

func (c *scramClient) Step(challenge string) (string, error) { return c.conversation.Step(challenge) }

func (c *scramClient) Done() bool { return c.conversation.Done() }
