package sink

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// The mechanism of Amazon MSK: a token like OAUTHBEARER's, signed with the credentials of an AWS identity.
const mskIAM = "AWS_MSK_IAM"

// SASL says who we are to the brokers.
type SASL struct {
	Mechanism string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM

	// Username and Password are for PLAIN and SCRAM. Password is asked for at each connection, so that one
	// that was changed is taken up.
	Username string
	Password func() (string, error)

	OAuth *OAuth // OAUTHBEARER's
	MSK   *MSK   // AWS_MSK_IAM's
}

// apply sets everything up but the password, which each connection gets anew. Tokens are fetched until ctx ends.
func (s *SASL) apply(ctx context.Context, c *Config, conf *sarama.Config) error {
	net := &conf.Net.SASL
	net.Enable = true
	net.Mechanism = sarama.SASLMechanism(s.Mechanism)
	net.User, net.Password = s.Username, "asked for at each connection" // which sarama wants to be there
	switch s.Mechanism {
	case sarama.SASLTypePlaintext:
	case sarama.SASLTypeSCRAMSHA256:
		net.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA256} }
	case sarama.SASLTypeSCRAMSHA512:
		net.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA512} }
	case sarama.SASLTypeOAuth:
		net.TokenProvider = s.OAuth.tokens(ctx, c.Timeout)
	case mskIAM:
		net.Mechanism = sarama.SASLTypeOAuth
		net.TokenProvider = s.MSK.tokens(ctx, c.Timeout)
	default:
		return fmt.Errorf("unknown SASL mechanism %q", s.Mechanism)
	}
	return nil
}

// remedy is what to look at when the brokers refuse the login.
func (s *SASL) remedy() string {
	switch s.Mechanism {
	case sarama.SASLTypeOAuth:
		return "look at what the brokers demand of a token (issuer, audience, scopes) and at their clocks"
	case mskIAM:
		return "allow the identity kafka-cluster:Connect, and look at WALRELAY_KAFKA_MSK_REGION and this host's clock"
	default:
		return "look at WALRELAY_KAFKA_SASL_USERNAME and WALRELAY_KAFKA_SASL_PASSWORD, and at the user's credentials for " +
			s.Mechanism + " at the brokers"
	}
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
