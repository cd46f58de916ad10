package main

import (
	"net"
	"sync"
)

// gate is a listener that can be shut: connections break, and new ones are closed at once, while what
// is behind it keeps running. The port stays taken, so that no one else gets it meanwhile.
type gate struct {
	net.Listener

	mu    sync.Mutex
	shut  bool
	conns map[*gateConn]struct{}
}

func newGate(l net.Listener) *gate {
	return &gate{Listener: l, conns: make(map[*gateConn]struct{})}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := g.admit(conn); admitted != nil {
			return admitted, nil
		}
		_ = conn.Close()
	}
}

func (g *gate) admit(conn net.Conn) net.Conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return nil
	}
	c := &gateConn{Conn: conn, gate: g}
	g.conns[c] = struct{}{}
	return c
}

// set shuts or opens the gate.
func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	if !shut {
		return
	}
	for c := range g.conns {
		_ = c.Conn.Close()
	}
	clear(g.conns)
}

// gateConn leaves the gate's books when it is closed.
type gateConn struct {
	net.Conn

	gate *gate
}

// Close implements net.Conn.
func (c *gateConn) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
