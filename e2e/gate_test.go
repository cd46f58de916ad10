package e2e

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// gate is a way to a server that can be shut. What clients send then waits in it, even when they are gone,
// and reaches the server when the gate is opened.
type gate struct {
	mu   sync.Mutex
	shut bool
	left int // bytes from clients that pass before it shuts by itself; 0: any number
	ways []*way
}

// way is a connection through a gate.
type way struct {
	client net.Conn
	server *net.TCPConn
	held   []byte // from the client
	ended  bool   // by the client
}

// gatedKafka is a broker, and the only way to it for those who take its listener's address.
func gatedKafka(t *testing.T) (cluster *testenv.Cluster, kafka *gate) {
	t.Helper()
	addr := testenv.Addr(t)
	cluster = testenv.StartKafka(t, testenv.KafkaConfig{
		Settings: map[string]string{"broker.session.timeout.ms": "60000"}, // as of the shared one
		Listener: &testenv.Listener{
			Protocol: "PLAINTEXT", Advertise: func(_ int, broker string) string {
				kafka = newGate(t, addr, broker)
				return addr
			},
		},
	})
	return cluster, kafka
}

// newGate returns an open gate.
func newGate(t *testing.T, listen, server string) *gate {
	t.Helper()
	g := &gate{}
	listener, err := net.Listen("tcp", listen)
	require.NoError(t, err)
	var open sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		g.mu.Lock()
		for _, w := range g.ways {
			_, _ = w.client.Close(), w.server.Close()
		}
		g.mu.Unlock()
		open.Wait()
	})
	open.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			conn, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			w := &way{client: client, server: conn.(*net.TCPConn)}
			g.mu.Lock()
			g.ways = append(g.ways, w)
			g.mu.Unlock()
			open.Go(func() { g.forward(w) })
			open.Go(w.back)
		}
	})
	return g
}

// forward takes what the client sends, as long as there is anything.
func (g *gate) forward(w *way) {
	chunk := make([]byte, 64<<10)
	for !w.ended {
		n, err := w.client.Read(chunk)
		g.mu.Lock()
		w.held = append(w.held, chunk[:n]...)
		w.ended = err != nil
		if !g.shut {
			w.flush()
			g.passed(n)
		}
		g.mu.Unlock()
	}
}

// passed counts what is to pass before the gate shuts. Called with mu held.
func (g *gate) passed(n int) {
	if g.left > 0 {
		g.left = max(g.left-n, 0)
		g.shut = g.left == 0
	}
}

// flush passes on what the client has sent. An error shows in back.
func (w *way) flush() {
	_, _ = w.server.Write(w.held)
	w.held = nil
	if w.ended {
		_ = w.server.CloseWrite()
	}
}

// back passes on what the server sends, and takes it all when the client is gone.
func (w *way) back() {
	_, _ = io.Copy(w.client, w.server)
	_, _ = io.Copy(io.Discard, w.server)
	_, _ = w.client.Close(), w.server.Close()
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
}

// closeAfter shuts the gate when clients have sent so many bytes more, which pass: then what takes more has begun for
// certain, and is not over.
func (g *gate) closeAfter(bytes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = bytes
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.left = false, 0
	for _, w := range g.ways {
		w.flush()
	}
}

// holds is how many bytes wait.
func (g *gate) holds() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.ways {
		n += len(w.held)
	}
	return n
}
