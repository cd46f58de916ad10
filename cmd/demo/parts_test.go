package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestGate_ShutBreaksAndRefuses(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := newGate(l)
	done := make(chan struct{})
	go func() { // echoes
		defer close(done)
		for {
			conn, err := g.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	defer func() {
		require.NoError(t, l.Close())
		<-done
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		return conn
	}
	answers := func(conn net.Conn) bool {
		if _, err := conn.Write([]byte("x")); err != nil {
			return false
		}
		n, err := conn.Read(make([]byte, 1))
		return n == 1 && err == nil
	}
	before := dial()
	require.True(t, answers(before))
	g.set(true)
	require.False(t, answers(before))
	require.False(t, answers(dial()))
	g.set(false)
	after := dial()
	require.True(t, answers(after))
	require.NoError(t, after.Close())
	require.Eventually(t, func() bool { // those that have left are forgotten
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.conns) == 0
	}, 10*time.Second, time.Millisecond)
}

func TestPlanOutages(t *testing.T) {
	t.Parallel()
	require.Equal(t, outagePlan{first: 12 * time.Second, length: 5 * time.Second, every: 40 * time.Second}, planOutages(0))
	require.Equal(t, planOutages(0), planOutages(time.Hour))
	require.Equal(t, outagePlan{first: 3 * time.Second, length: 1800 * time.Millisecond, every: 40 * time.Second},
		planOutages(9*time.Second))
}

func TestBroker_NoOutageThatWouldNotEnd(t *testing.T) {
	t.Parallel()
	b := &broker{gate: newGate(nil)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	plan := outagePlan{first: time.Millisecond, length: time.Millisecond, every: time.Hour}
	b.fail(ctx, plan) // returns although a minute is not over
	state := b.state(time.Now())
	require.Equal(t, 1, state.outages)
	require.Zero(t, state.down)
	require.Zero(t, state.next)
	require.GreaterOrEqual(t, state.downtime, plan.length)
}

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	for _, connection := range []string{
		"postgres://ada:se%20cret@127.0.0.1:5433/other?sslmode=disable",
		"postgresql://ada:se%20cret@127.0.0.1:5433?sslmode=disable",
		"host=127.0.0.1 port=5433 user=ada password='se cret' dbname=other sslmode=disable",
	} {
		changed, err := withDatabase(connection, "mine")
		require.NoError(t, err)
		config, err := pgx.ParseConfig(changed)
		require.NoError(t, err)
		require.Equal(t, []any{"127.0.0.1", uint16(5433), "ada", "se cret", "mine"},
			[]any{config.Host, config.Port, config.User, config.Password, config.Database})
	}
	_, err := withDatabase("postgres://ada:secret%@127.0.0.1/x", "mine")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}

func TestSweep_SparesThoseThatRun(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	parent := os.TempDir()
	dead := filepath.Join(parent, homePrefix+"dead")
	starting := filepath.Join(parent, homePrefix+"starting")
	for _, dir := range []string{dead, starting} {
		require.NoError(t, os.Mkdir(dir, 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dead, "lock"), nil, 0o600))
	running := &home{dir: filepath.Join(parent, homePrefix+"running")}
	require.NoError(t, os.Mkdir(running.dir, 0o700))
	require.NoError(t, running.prepare())

	sweep(parent)
	require.NoDirExists(t, dead)
	require.DirExists(t, starting)
	require.DirExists(t, running.dir)
	require.NoError(t, running.close())
	require.NoDirExists(t, running.dir)
}

func TestPassable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	require.False(t, passable(dir))
	require.False(t, passable(filepath.Join(dir, "absent")))
	require.True(t, passable("/"))
}
