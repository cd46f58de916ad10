package testenv

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Config describes a private PostgreSQL server.
type Config struct {
	// Settings go into postgresql.conf, over the defaults of testenv (see defaultSettings).
	Settings map[string]string
	// HBA replaces the lines of pg_hba.conf, which trust every connection. testenv itself comes
	// over the Unix socket as user postgres and must still be let in.
	HBA []string
	// Files are written into the data directory, readable by the server alone (certificates, keys).
	Files map[string][]byte
}

// Server is a running PostgreSQL, or one that a test has stopped.
type Server struct {
	Major   int
	Port    int
	Version int    // as in server_version_num: 180004
	Dir     string // the data directory
	Socket  string // the directory of the Unix socket
	LogFile string

	programs string // the unpacked distribution
	private  bool
	child    *child
}

// StopMode is how PostgreSQL is told to shut down; see "Shutting Down the Server" in its manual.
type StopMode syscall.Signal

// The ways to shut down. A fast shutdown waits until every walsender has sent all there is.
const (
	Smart     = StopMode(syscall.SIGTERM)
	Fast      = StopMode(syscall.SIGINT)
	Immediate = StopMode(syscall.SIGQUIT)
)

// Postgres returns the server of that major which all tests of this process share.
func Postgres(t testing.TB, major int) *Server {
	t.Helper()
	return share(t, fmt.Sprintf("PostgreSQL %d", major), func() (*Server, error) {
		return newPostgres(major, Config{})
	})
}

// StartPostgres starts a server for one test, which may stop, kill and pause it.
func StartPostgres(t testing.TB, major int, cfg Config) *Server {
	t.Helper()
	s, err := newPostgres(major, cfg)
	if err != nil {
		t.Fatalf("start PostgreSQL %d: %v", major, err)
	}
	s.private = true
	t.Cleanup(func() { s.cleanup(t) })
	return s
}

func (s *Server) cleanup(t testing.TB) {
	if t.Failed() {
		log, _ := os.ReadFile(s.LogFile)
		t.Logf("log of PostgreSQL %d ends:\n%s", s.Major, tail(log, 30))
	}
	if err := s.close(); err != nil {
		t.Errorf("stop PostgreSQL %d: %v", s.Major, err)
	}
}

// DSN is the URL of a database over TCP.
func (s *Server) DSN(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", "postgres"),
		Host:     loopback(s.Port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// SocketDSN is the connection string of a database over the Unix socket.
func (s *Server) SocketDSN(database string) string {
	return fmt.Sprintf("host=%s port=%d user=postgres password=postgres dbname=%s sslmode=disable",
		s.Socket, s.Port, database)
}

// Exec runs a statement in the database "postgres".
func (s *Server) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	err := s.admin(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, args...)
		return err
	})
	if err != nil {
		t.Fatalf("exec on PostgreSQL %d: %v", s.Major, err)
	}
}

// QueryRow reads one row of the database "postgres" into dest.
func (s *Server) QueryRow(t testing.TB, sql string, args []any, dest ...any) {
	t.Helper()
	err := s.admin(func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sql, args...).Scan(dest...)
	})
	if err != nil {
		t.Fatalf("query PostgreSQL %d: %v", s.Major, err)
	}
}

// Stop shuts the server down and waits for its end.
func (s *Server) Stop(t testing.TB, mode StopMode) {
	t.Helper()
	if err := s.child.stop(syscall.Signal(mode), time.Minute); err != nil {
		t.Fatalf("stop PostgreSQL %d: %v", s.Major, err)
	}
}

// Start starts the server again after Stop or Kill, on the same port and data.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatalf("start PostgreSQL %d: %v", s.Major, err)
	}
}

// Restart is Stop and Start.
func (s *Server) Restart(t testing.TB, mode StopMode) {
	t.Helper()
	s.Stop(t, mode)
	s.Start(t)
}

// Kill ends all processes of the server at once, without giving them time for anything.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if err := s.kill(); err != nil {
		t.Fatalf("kill PostgreSQL %d: %v", s.Major, err)
	}
}

// Pause freezes all processes of the server: connections stay, nothing answers.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	if _, err := s.freeze(); err != nil {
		t.Fatalf("pause PostgreSQL %d: %v", s.Major, err)
	}
}

// Resume ends a Pause.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	for _, pid := range children(s.child.pid()) {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	if err := s.child.signal(syscall.SIGCONT); err != nil {
		t.Fatalf("resume PostgreSQL %d: %v", s.Major, err)
	}
}

// Running says whether the postmaster runs; a paused one does.
func (s *Server) Running() bool { return !s.child.exited() }

// PID is the postmaster's.
func (s *Server) PID() int { return s.child.pid() }

// freeze stops the postmaster first, so that it starts no more processes, and then the others, each
// of which is a session of its own (InitPostmasterChild in miscinit.c calls setsid).
func (s *Server) freeze() (others []int, err error) {
	if err := s.child.signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	others = children(s.child.pid())
	for _, pid := range others {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	return others, nil
}

func (s *Server) kill() error {
	others, err := s.freeze()
	if err != nil {
		return err
	}
	for _, pid := range others {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err := s.child.stop(syscall.SIGKILL, time.Minute); err != nil {
		return err
	}
	if !poll(time.Minute, func() bool {
		return !slices.ContainsFunc(others, alive)
	}) {
		return errors.New("its processes do not end")
	}
	return nil
}

// close ends the server for good and removes its data, which nobody needs any more.
func (s *Server) close() error {
	if err := s.kill(); err != nil {
		return err
	}
	dropSharedMemory(s.Dir)
	return os.RemoveAll(filepath.Dir(s.Dir))
}

// start runs the server on its data directory and waits until it lets us in.
func (s *Server) start() error {
	log, err := os.OpenFile(s.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open server log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the server has a descriptor of its own
	cmd := s.command("postgres", "-D", s.Dir)
	cmd.Stdout, cmd.Stderr = log, log
	if s.child, err = startChild(cmd); err != nil {
		return err
	}
	ready := poll(startLimit, func() bool {
		err = s.admin(func(ctx context.Context, conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&s.Version)
		})
		return err == nil || s.child.exited()
	})
	if !ready || err != nil {
		text, _ := os.ReadFile(s.LogFile)
		return fmt.Errorf("await server: %w; its log ends:\n%s", errors.Join(err, s.kill()), tail(text, 30))
	}
	return nil
}

// admin connects to the database "postgres" for a moment.
func (s *Server) admin(use func(ctx context.Context, conn *pgx.Conn) error) error {
	return s.connect("postgres", use)
}

func (s *Server) connect(database string, use func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.SocketDSN(database))
	if err != nil {
		return err
	}
	return errors.Join(use(ctx, conn), conn.Close(ctx))
}

func profile(major int) string { return "postgres-" + strconv.Itoa(major) }
