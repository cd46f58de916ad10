package sink

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/IBM/sarama"
)

// link is a connection for requests that wait for their answers, apart from those that produce: a
// synchronous request of sarama's holds the broker's lock for a round trip. Safe for concurrent use;
// requests go one after the other, and end with their context.
type link struct {
	cfg   *Config
	conf  *sarama.Config
	dial  *dialer
	addrs func(ctx context.Context) ([]string, error) // of brokers, in the order in which to try them

	turn chan struct{} // holds the right to use what follows

	broker *sarama.Broker
	conn   net.Conn        // of broker
	ctx    context.Context //nolint:containedctx // of the request under way: sarama's calls take none
	unbind func() bool     // takes conn out of ctx
}

func newLink(addrs func(ctx context.Context) ([]string, error)) *link {
	return &link{addrs: addrs, turn: make(chan struct{}, 1)}
}

// open sets the link up for the time of Run. conf is everybody's but for the dialer.
func (l *link) open(c *Config, conf *sarama.Config, dial *dialer) {
	own := *conf
	own.Net.Proxy.Dialer = l
	l.cfg, l.conf, l.dial = c, &own, dial
}

// Dial implements golang.org/x/net/proxy.Dialer.
func (l *link) Dial(network, address string) (net.Conn, error) {
	conn, err := l.dial.dial(l.ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.conn = conn
	l.bind()
	return conn, nil
}

// bind closes the connection, and so ends what waits for it, when the request's context ends.
func (l *link) bind() {
	if l.unbind != nil {
		l.unbind()
	}
	conn := l.conn
	l.unbind = context.AfterFunc(l.ctx, func() { _ = conn.Close() })
}

// do runs a request on a live connection, and closes it after a transport error, when the broker sends us to another
// or when it does not let us log in anew. A connection that was there before may be long dead, so that the request gets
// another one.
func (l *link) do(ctx context.Context, request func(*sarama.Broker) error) error {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.ctx = ctx
	for {
		reused := l.broker != nil
		if reused {
			l.bind()
		} else if err := l.connect(); err != nil {
			return l.because(err)
		}
		err := request(l.broker)
		l.unbind()
		var code sarama.KError
		if err == nil || errors.As(err, &code) && code != sarama.ErrNotController && !refusesLogin(code) {
			return err
		}
		l.disconnect()
		if !reused || ctx.Err() != nil {
			return l.because(err)
		}
	}
}

// because is the reason for an error: when the context has ended, that has closed the connection.
func (l *link) because(err error) error {
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	return err
}

func (l *link) connect() error {
	addrs, err := l.addrs(l.ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, addr := range addrs {
		if l.ctx.Err() != nil {
			return context.Cause(l.ctx)
		}
		broker, err := l.cfg.open(l.conf, addr)
		if err == nil {
			l.broker = broker
			return nil
		}
		errs = append(errs, fmt.Errorf("connect to broker %s: %w", addr, err))
	}
	return errors.Join(errs...)
}

// disconnect makes the next request look for its broker again.
func (l *link) disconnect() {
	if l.broker != nil {
		_ = l.broker.Close() // its state is of no interest any more
		l.broker = nil
	}
}

// close ends the connection once no request is under way.
func (l *link) close() {
	l.turn <- struct{}{}
	l.disconnect()
	<-l.turn
}
