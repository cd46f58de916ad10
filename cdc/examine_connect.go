package cdc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// open opens a connection for queries that cannot write. Only when anyServer is set may it be one that
// replays another's log.
func (e *examination) open(ctx context.Context, anyServer bool) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, examineConnect)
	defer cancel()
	settings := sqlSettings()
	settings["statement_timeout"] = milliseconds(examineTimeout)
	settings["lock_timeout"] = "1000"
	config, err := connConfig(e.cfg, settings)
	if err != nil {
		return nil, err
	}
	e.application = config.RuntimeParams["application_name"]
	if anyServer {
		config.ValidateConnect = nil
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	// Not as a setting of the connection, which would make the search for a writable host fail.
	if _, err := conn.Exec(ctx, "SET default_transaction_read_only = on"); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

// connect opens the connection for queries, if need be to a server that is no primary.
func (e *examination) connect(ctx context.Context) bool {
	conn, err := e.open(ctx, false)
	if err == nil {
		e.server.SQL = conn
		e.pooler(ctx)
		return true
	}
	if sqlState(err) != "" || errors.Is(err, context.DeadlineExceeded) {
		e.add(e.refused("connection", err))
		return false
	}
	// It may be that a server was reached, and was none that takes writes.
	if conn, anyErr := e.open(ctx, true); anyErr == nil {
		e.server.SQL, e.noPrimary = conn, true
		e.add(Finding{
			Check: "connection", Object: serverObject, Level: LevelFault,
			Found: "no configured host is a primary that accepts writes: " + e.recovery(ctx),
			Why:   "only a primary decodes the log here, and the stream records its position there",
			Fix: "name the primary, or all hosts, in WALRELAY_DATABASE_URL (host1,host2), or promote: " +
				"SELECT pg_promote() on the standby",
		})
		return true
	}
	e.add(e.refused("connection", err))
	return false
}

func (e *examination) recovery(ctx context.Context) string {
	var recovery bool
	if err := e.server.SQL.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&recovery); err == nil && recovery {
		return "the server is in recovery"
	}
	return "its transactions are read-only"
}

// transport says of each host beyond this machine how far the connection proves who it is.
func (e *examination) transport() {
	warnings, err := TLSWarnings(e.cfg)
	if err != nil {
		return // the attempt to connect says it
	}
	for _, warning := range warnings {
		host, rest, _ := strings.Cut(strings.TrimPrefix(warning, "PostgreSQL at "), ": ")
		mode, fix, _ := strings.Cut(rest, "; ")
		e.add(Finding{
			Check: "tls", Object: "server " + host, Level: LevelWarning, Found: mode,
			Why: "whoever is on the way may read the outbox and the password, or answer in the server's place", Fix: fix,
		})
	}
}

// pooler compares the process that the server says it is with the one that whoever answered named.
func (e *examination) pooler(ctx context.Context) {
	var pid uint32
	if err := e.server.SQL.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		e.unknown("connection", serverObject, err)
		return
	}
	if pid == e.server.SQL.PgConn().PID() {
		e.add(ok("connection", serverObject, "reached directly"))
		return
	}
	e.add(Finding{
		Check: "connection", Object: serverObject, Level: LevelWarning,
		Found: "a pooler or proxy stands between walrelay and PostgreSQL",
		Why:   "poolers cannot carry replication, and proxies keep half-open connections that hold the slot",
		Fix:   "name PostgreSQL's own host and port in WALRELAY_DATABASE_URL",
	})
}

// replication tries the other kind of connection: it connects, asks who the server is, and hangs up.
func (e *examination) replication(ctx context.Context) {
	const id = "replication-connection"
	ctx, cancel := context.WithTimeout(ctx, examineConnect)
	defer cancel()
	config, err := connConfig(e.cfg, replicationSettings(e.cfg))
	if err != nil {
		return // said already
	}
	if e.noPrimary {
		config.ValidateConnect = nil
	}
	s := &e.server
	if s.Repl, err = pgconn.ConnectConfig(ctx, &config.Config); err != nil {
		s.Repl = nil
		e.add(e.refused(id, err))
		return
	}
	defer func() {
		_ = s.Repl.Close(ctx)
		s.Repl = nil
	}()
	system, err := pglogrepl.IdentifySystem(ctx, s.Repl)
	if err != nil {
		e.add(e.refused(id, err))
		return
	}
	s.SystemID, s.Timeline, s.Flushed = system.SystemID, uint32(system.Timeline), system.XLogPos
	if s.timelines, err = s.readTimelines(ctx); err != nil {
		e.unknown(id, serverObject, err)
		return
	}
	e.identified = true
	e.add(ok(id, serverObject, fmt.Sprintf("accepted; system identifier %s, timeline %d", s.SystemID, s.Timeline)))
}

// refused explains why a connection was not to be had.
func (e *examination) refused(id string, err error) Finding {
	f := Finding{
		Check: id, Object: serverObject, Level: LevelFault, Found: Reason(err),
		Why: "without it nothing is streamed",
		Fix: "start PostgreSQL and open the way to it, or correct WALRELAY_DATABASE_URL",
	}
	if id == "replication-connection" {
		f.Why = "the log is read through a connection of this kind; ordinary queries work"
	}
	role := e.role
	if role == "" {
		role = e.configured(func(c *pgx.ConnConfig) string { return c.User })
	}
	switch sqlState(err) {
	case "28000": // invalid_authorization_specification
		if strings.Contains(err.Error(), "pg_hba.conf") {
			f.Fix = "add this line to pg_hba.conf, before any that rejects: " + e.hbaLine(err, role) +
				" ; then SELECT pg_reload_conf()"
		} else {
			f.Fix = "let the role log in: ALTER ROLE " + pgx.Identifier{role}.Sanitize() + " LOGIN"
		}
	case "28P01": // invalid_password
		f.Fix = "correct the password in WALRELAY_DATABASE_URL, or set it: ALTER ROLE " +
			pgx.Identifier{role}.Sanitize() + " PASSWORD '...'"
	case "42501": // insufficient_privilege
		f.Fix = e.grantReplication(role)
	case "53300": // too_many_connections: max_wal_senders is told apart by its text only
		f.Fix = e.provider.restart("max_wal_senders", "20")
		if id == "connection" {
			f.Fix = e.provider.restart("max_connections", "200")
		}
	case "3D000": // invalid_catalog_name
		f.Fix = "CREATE DATABASE " + pgx.Identifier{e.configured(
			func(c *pgx.ConnConfig) string { return c.Database })}.Sanitize() + ", or correct WALRELAY_DATABASE_URL"
	case "55000": // object_not_in_prerequisite_state
		f.Fix = e.provider.restart("wal_level", "logical")
	case "08P01": // protocol_violation: what poolers answer to the parameter replication
		f.Found = "refused by a pooler: " + f.Found
		f.Fix = "name PostgreSQL's own host and port in WALRELAY_DATABASE_URL: poolers cannot carry replication"
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		f.Found = "host " + dns.Name + " is not known"
	}
	return f
}

func (e *examination) configured(part func(*pgx.ConnConfig) string) string {
	config, err := e.cfg.parse()
	if err != nil {
		return ""
	}
	return part(config)
}

// hbaHost finds the address in the server's message; in another language than English it is there too.
var hbaHost = regexp.MustCompile(`"([0-9A-Fa-f.:]+)"`)

// hbaLine is the line that pg_hba.conf lacks. "replication" in its place of the database is for physical
// replication only: a logical connection is let in by the line of its database.
func (e *examination) hbaLine(err error, role string) string {
	kind, address := "hostssl", "ADDRESS/32"
	if found := hbaHost.FindStringSubmatch(err.Error()); found != nil {
		address = found[1] + "/32"
		if strings.Contains(found[1], ":") {
			address = found[1] + "/128"
		}
	}
	if strings.Contains(err.Error(), "no encryption") {
		kind = "host"
	}
	database := e.configured(func(c *pgx.ConnConfig) string { return c.Database })
	return strings.Join([]string{kind, hbaName(database), hbaName(role), address, "scram-sha-256"}, " ")
}

// hbaName quotes a name for pg_hba.conf, where a keyword loses its meaning in quotes.
func hbaName(name string) string { return `"` + name + `"` }
