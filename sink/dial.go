package sink

import (
	"context"
	"net"
	"time"
)

// dialer opens every connection to a broker: the name is resolved anew each time, half-open peers
// are probed within seconds, and the end of ctx ends dials and connections, since sarama's calls
// take no context.
type dialer struct {
	ctx     context.Context //nolint:containedctx // sarama's dialer has no context argument
	timeout time.Duration
}

// Dial implements golang.org/x/net/proxy.Dialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	return d.dial(d.ctx, network, address)
}

// dial is Dial with a context of its own for dialling alone.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	nd := net.Dialer{Timeout: d.timeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}
	conn, err := nd.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(d.ctx, func() { _ = conn.Close() })
	return &boundConn{Conn: conn, stop: stop}, nil
}

// boundConn releases its hold on the context when it is closed.
type boundConn struct {
	net.Conn
	stop func() bool
}

func (c *boundConn) Close() error {
	c.stop()
	return c.Conn.Close()
}
