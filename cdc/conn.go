package cdc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"
)

// Server is a pair of connections to one PostgreSQL server. Each belongs to one goroutine at a
// time; the methods of Server use SQL unless they say that they use Repl.
type Server struct {
	// SQL runs queries.
	SQL *pgx.Conn
	// Repl runs replication commands; queries on it only in the simple protocol.
	Repl *pgconn.PgConn

	// Version is server_version_num, for instance 150018.
	Version int
	// SystemID is the cluster's system identifier: physical replicas share it, restored dumps don't.
	SystemID string
	// Timeline is the one on which the server writes now.
	Timeline uint32
	// Flushed is how far the server's log was on disk when Dial asked.
	Flushed pglogrepl.LSN
	// WALSenderTimeout is what the server allows between two status reports on Repl.
	WALSenderTimeout time.Duration

	cfg       *Config
	log       *zap.Logger
	timelines *Timelines
	snapshot  string   // exported by Repl when it created the slot, until its next command
	started   string   // when its postmaster started: tells servers of one system identifier apart
	warnings  []string // about servers that were passed over
	burst     *burst   // what Repl reads through
	temporary bool     // the slot is to go with Repl

	viaRootSince pglogrepl.LSN // of the publication, see PublicationState
}

// defaultWALSenderTimeout replaces a server's wal_sender_timeout = 0 on our own session: otherwise
// a host that died would keep the slot for as long as TCP takes, 15 minutes and more.
const defaultWALSenderTimeout = time.Minute

// sqlStatementTimeout ends a query that hangs. All of ours read a few catalog rows.
const sqlStatementTimeout = 30 * time.Second

// Dial opens both connections to the same server and reads who it is. It creates nothing.
func Dial(ctx context.Context, cfg *Config) (*Server, error) { return dialNewer(ctx, cfg, &witness{}) }

// dialNewer is Dial by a process that has seen servers before. Of several hosts it takes the first that
// was not left behind by a promotion which the witness knows of.
func dialNewer(ctx context.Context, cfg *Config, seen *witness) (*Server, error) {
	s := &Server{cfg: cfg, log: cfg.Logger}
	replConfig, err := connConfig(cfg, replicationSettings(cfg))
	if err != nil {
		return nil, err
	}
	validate(&replConfig.Config, func(ctx context.Context, conn *pgconn.PgConn) error {
		return s.identify(ctx, conn, seen)
	})
	replConfig.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		s.burst = newBurst(r) // of the last host tried, which is the one that answered
		return pgproto3.NewFrontend(s.burst, w)
	}
	if s.Repl, err = pgconn.ConnectConfig(ctx, &replConfig.Config); err != nil {
		return nil, Diagnose(fmt.Errorf("open replication connection: %w", err))
	}
	s.burst.pausable(s.Repl.Conn())
	if s.SQL, err = connectSQL(ctx, cfg, s.isSame); err != nil {
		s.Close(ctx)
		return nil, err
	}
	answers, cancel := context.WithTimeout(ctx, cfg.ReceiveTimeout)
	defer cancel()
	if err := s.settle(answers); err != nil {
		s.Close(ctx)
		return nil, Diagnose(fmt.Errorf("identify server: %w", err))
	}
	if s.timelines, err = s.readTimelines(answers); err != nil {
		s.Close(ctx)
		return nil, err
	}
	return s, nil
}

// Close closes both connections. It waits no longer than ctx allows.
func (s *Server) Close(ctx context.Context) {
	if s.SQL != nil {
		_ = s.SQL.Close(ctx) // what has not ended well has ended all the same
	}
	if s.Repl != nil {
		_ = s.Repl.Close(ctx)
	}
}

// Timelines returns the history of the server's timeline as it was when Dial returned.
func (s *Server) Timelines() *Timelines { return s.timelines }

// StatusInterval is the time between two status reports: the configured one, or a third of what
// the server allows if that is less.
func (s *Server) StatusInterval() time.Duration {
	return min(s.cfg.StatusInterval, s.WALSenderTimeout/3)
}

// Connect opens a connection for queries, with the session settings of a stream: values print as they do
// in the log. Of the configuration it needs ConnString, ConnectTimeout and ReceiveTimeout; without the last,
// an answer may take as long as it likes.
func Connect(ctx context.Context, cfg *Config) (*pgx.Conn, error) { return connectSQL(ctx, cfg) }

// connectSQL opens a connection for queries, to the first host that passes the checks.
func connectSQL(ctx context.Context, cfg *Config, checks ...pgconn.ValidateConnectFunc) (*pgx.Conn, error) {
	config, err := connConfig(cfg, sqlSettings())
	if err != nil {
		return nil, err
	}
	for _, check := range checks {
		validate(&config.Config, check)
	}
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil || cfg.ReceiveTimeout == 0 {
			return conn, err
		}
		return &answering{Conn: conn, within: cfg.ReceiveTimeout}, nil
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, Diagnose(fmt.Errorf("open SQL connection: %w", err))
	}
	return conn, nil
}

// answering is a connection on which everything that is sent must be answered in time. Otherwise a query on
// a half-open one would wait until TCP gives up, 15 minutes and more, or for ever behind a proxy.
type answering struct {
	net.Conn
	within time.Duration
}

// Write implements net.Conn. The end of pgx's context makes writes fail too, so its deadline is not undone.
func (c *answering) Write(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.within)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// validate adds a check after which another host may be tried.
func validate(config *pgconn.Config, check pgconn.ValidateConnectFunc) {
	first := config.ValidateConnect
	config.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := first(ctx, conn); err != nil {
			return err
		}
		return check(ctx, conn)
	}
}

const postmasterStarted = "SELECT pg_postmaster_start_time()::text"

// identify reads who the server behind a replication connection is. It refuses one that is out of date.
func (s *Server) identify(ctx context.Context, repl *pgconn.PgConn, seen *witness) error {
	system, err := pglogrepl.IdentifySystem(ctx, repl)
	if err != nil {
		return fmt.Errorf("identify server: %w", err)
	}
	s.SystemID, s.Timeline, s.Flushed = system.SystemID, uint32(system.Timeline), system.XLogPos
	if err := seen.outdated(s); err != nil {
		s.warnings = append(s.warnings, fmt.Sprintf("server %s is passed over: %v", repl.Conn().RemoteAddr(), err))
		return err
	}
	s.started, err = firstValue(ctx, repl, postmasterStarted)
	return err
}

// isSame refuses a server other than the one identified.
func (s *Server) isSame(ctx context.Context, conn *pgconn.PgConn) error {
	return startedAt(ctx, conn, s.started)
}

// startedAt refuses a server other than the one whose postmaster started then.
func startedAt(ctx context.Context, conn *pgconn.PgConn, want string) error {
	started, err := firstValue(ctx, conn, postmasterStarted)
	if err == nil && started != want {
		return errors.New("the two connections reached different servers")
	}
	return err
}

// settle reads and sets what else matters on the two connections.
func (s *Server) settle(ctx context.Context) error {
	var pid uint32
	err := s.SQL.QueryRow(ctx, "SELECT pg_backend_pid(), current_setting('server_version_num')::int").
		Scan(&pid, &s.Version)
	if err != nil {
		return err
	}
	if pid != s.SQL.PgConn().PID() {
		s.log.Warn("a proxy stands between walrelay and PostgreSQL; connect directly if anything is amiss")
	}
	if s.Version >= 170000 { // the setting is new in 17
		if _, err := s.replValue(ctx, "SET transaction_timeout = 0"); err != nil {
			return err
		}
	}
	return s.readWALSenderTimeout(ctx)
}

func (s *Server) readWALSenderTimeout(ctx context.Context) error {
	setting, err := s.replValue(ctx, "SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'")
	if err != nil {
		return err
	}
	ms, err := strconv.ParseInt(setting, 10, 64)
	if err != nil {
		return fmt.Errorf("read wal_sender_timeout: %w", err)
	}
	s.WALSenderTimeout = time.Duration(ms) * time.Millisecond
	if ms > 0 {
		return nil
	}
	s.WALSenderTimeout = defaultWALSenderTimeout
	_, err = s.replValue(ctx, "SET wal_sender_timeout = "+milliseconds(defaultWALSenderTimeout))
	return err
}

// replValue runs a statement on the replication connection and returns its first value, if any.
func (s *Server) replValue(ctx context.Context, sql string) (string, error) {
	return firstValue(ctx, s.Repl, sql)
}

func firstValue(ctx context.Context, conn *pgconn.PgConn, sql string) (string, error) {
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return "", err
	}
	if len(results) == 0 || len(results[0].Rows) == 0 || len(results[0].Rows[0]) == 0 {
		return "", nil
	}
	return string(results[0].Rows[0][0]), nil
}

// tableName names a table in messages and SQL: qualified, quoted.
func tableName(schema, table string) string { return pgx.Identifier{schema, table}.Sanitize() }
