package sink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walrelay/walrelay/checkpoint"
)

func TestKafka_ConnectionDropsWithSeveralInFlight(t *testing.T) {
	t.Parallel()
	var drop, connections atomic.Int32
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"), kfake.ListenFn(func(network, addr string) (net.Listener, error) {
		l, err := net.Listen(network, addr)
		return lossy{l, &drop, &connections}, err
	}))
	k := start(t, c.ListenAddrs(), smallBatches)
	s := begin(t, k, checkpoint.Run{})
	s.some("orders", 100)
	s.settle()
	before := connections.Load()
	for range 3 {
		c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			return nil, errors.New("reset"), true
		})
		s.some("orders", 500)
		s.settle()
	}
	require.EqualValues(t, 3, connections.Load()-before, "one connection after each reset")
	s.delivered(c.ListenAddrs(), "orders")
}

// A connection is closed from this side while answers are due, whose callbacks then find fault with
// it once more. The next connection, on which other partitions go on at once, has to stay.
func TestKafka_ClosedConnectionIsForgotten(t *testing.T) {
	t.Parallel()
	var drop, connections atomic.Int32
	c := fakeKafka(t, kfake.SeedTopics(8, "orders"), kfake.ListenFn(func(network, addr string) (net.Listener, error) {
		l, err := net.Listen(network, addr)
		return lossy{l, &drop, &connections}, err
	}))
	k := start(t, c.ListenAddrs(), smallBatches)
	s := begin(t, k, checkpoint.Run{})
	s.some("orders", 1000)
	s.settle()
	before := connections.Load()
	held := make(chan struct{})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(held)
		return nil, nil, true
	})
	s.publish(s.event("orders", "a"))
	k.Flush()
	<-held
	k.mu.Lock()
	k.senders[0].broken = true // noticed with the first batch that is full
	k.mu.Unlock()
	for range 2000 {
		s.publish(s.event("orders", fmt.Sprint(s.lsn)))
	}
	k.Flush()
	s.settle()
	require.EqualValues(t, 1, connections.Load()-before)
}

// lossy is a listener whose connections are closed instead of answering while drop is positive.
type lossy struct {
	net.Listener
	drop, accepted *atomic.Int32
}

type lossyConn struct {
	net.Conn
	drop *atomic.Int32
}

func (l lossy) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.accepted.Add(1)
	return lossyConn{c, l.drop}, err
}

func (c lossyConn) Write(b []byte) (int, error) {
	if c.drop.Load() > 0 {
		c.drop.Add(-1)
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func TestKafka_LostAnswers(t *testing.T) {
	t.Parallel()
	var drop, connections atomic.Int32
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"), kfake.ListenFn(func(network, addr string) (net.Listener, error) {
		l, err := net.Listen(network, addr)
		return lossy{l, &drop, &connections}, err
	}))
	k := start(t, c.ListenAddrs(), smallBatches)
	s := begin(t, k, checkpoint.Run{})
	s.some("orders", 100)
	s.settle()
	for range 5 {
		c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			drop.Add(1) // the records are in the log by then
			c.DropControl()
			return nil, nil, false
		})
		s.some("orders", 500)
		s.settle()
	}
	s.delivered(c.ListenAddrs(), "orders")
}

func TestKafka_BrokerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t, kfake.SeedTopics(1, "orders"))
	k := start(t, c.ListenAddrs(), func(c *Config) { c.Timeout = 150 * time.Millisecond; smallBatches(c) })
	s := begin(t, k, checkpoint.Run{})
	s.some("orders", 100)
	s.settle()
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, nil, true })
	s.some("orders", 500)
	s.delivered(c.ListenAddrs(), "orders")
}

// Begin ends with its context, also while a broker accepts connections and says nothing.
func TestBegin_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	k := start(t, []string{l.Addr().String()}, func(c *Config) { c.Timeout = 2 * patience })
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		began := time.Now()
		require.Error(t, k.Begin(ctx, checkpoint.Run{Mailbox: checkpoint.NewMailbox()}))
		require.Less(t, time.Since(began), patience)
		cancel()
	}
}

// The connection for administration outlives the context of the request that opened it, and is
// opened anew when the broker has closed it meanwhile.
func TestAdmin_Reconnects(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t)
	k := start(t, c.ListenAddrs(), nil)
	begin(t, k, checkpoint.Run{})
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := k.admin.initProducerID(ctx)
		require.NoError(t, err)
		cancel()
		require.NotNil(t, k.admin.broker)
		_ = k.admin.conn.Close()
		_, err = k.admin.metadata(t.Context(), nil)
		require.NoError(t, err)
	}
}
