package sink

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

// open connects to a broker and logs in, with the certificates and the password as they are now: what was
// renewed on disk is taken up without a restart.
func (c *Config) open(conf *sarama.Config, addr string) (*sarama.Broker, error) {
	fresh := *conf
	if c.TLS != nil {
		tls, err := c.TLS()
		if err != nil {
			return nil, fmt.Errorf("set up TLS: %w", err)
		}
		fresh.Net.TLS.Config = tls
	}
	if c.SASL != nil && c.SASL.Password != nil {
		password, err := c.SASL.Password()
		if err != nil {
			return nil, fmt.Errorf("log in by %s: %w", c.SASL.Mechanism, err)
		}
		fresh.Net.SASL.Password = password
	}
	broker := sarama.NewBroker(addr)
	err := broker.Open(&fresh)
	if err == nil {
		_, err = broker.Connected()
	}
	if err != nil {
		return nil, c.refusal(conf, err)
	}
	return broker, nil
}

// refusal explains why a broker does not let us in. A token that was refused is of no use any more.
func (c *Config) refusal(conf *sarama.Config, err error) error {
	if c.SASL == nil {
		return err
	}
	var remedy string
	switch {
	case errors.Is(err, sarama.ErrSASLAuthenticationFailed):
		remedy = c.SASL.remedy()
		if tokens, ok := conf.Net.SASL.TokenProvider.(interface{ forget() }); ok {
			tokens.forget()
		}
	case errors.Is(err, sarama.ErrUnsupportedSASLMechanism):
		remedy = "the listener does not offer it: set WALRELAY_KAFKA_SASL_MECHANISM to one that it does"
	case errors.Is(err, sarama.ErrIllegalSASLState):
		remedy = "the listener asks for no login: address its SASL listener, or unset WALRELAY_KAFKA_SASL_MECHANISM"
	default:
		return err
	}
	return &LoginError{Mechanism: c.SASL.Mechanism, Remedy: remedy, Err: err}
}

// LoginError is a broker's refusal to let us in.
type LoginError struct {
	Mechanism string
	Remedy    string
	Err       error // the broker's answer
}

// Error names mechanism, answer and remedy.
func (e *LoginError) Error() string {
	return fmt.Sprintf("log in by %s: %v; %s", e.Mechanism, e.Err, e.Remedy)
}

// Unwrap makes all refusals alike to those who classify answers: an operator has to act, and it passes.
func (e *LoginError) Unwrap() error { return sarama.ErrSASLAuthenticationFailed }

// refusesLogin says whether a broker's answer is about the login, which comes before requests, also in the middle of
// a connection's life.
func refusesLogin(code sarama.KError) bool {
	return code == sarama.ErrSASLAuthenticationFailed || code == sarama.ErrUnsupportedSASLMechanism ||
		code == sarama.ErrIllegalSASLState
}
