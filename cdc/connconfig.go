package cdc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// sessionSettings are pinned on both connections, because a role's or database's defaults would
// change the bytes of values, or end a session that has every right to be long.
func sessionSettings() map[string]string {
	return map[string]string{
		"client_encoding":                     "UTF8",
		"DateStyle":                           "ISO",
		"IntervalStyle":                       "postgres",
		"TimeZone":                            "UTC",
		"extra_float_digits":                  "3",
		"bytea_output":                        "hex",
		"search_path":                         "pg_catalog, pg_temp", // regclass and the like print qualified names
		"default_transaction_read_only":       "off",
		"idle_session_timeout":                "0",
		"idle_in_transaction_session_timeout": "0",
	}
}

func replicationSettings(cfg *Config) map[string]string {
	settings := sessionSettings()
	settings["replication"] = "database"
	settings["statement_timeout"] = "0" // the stream is one statement
	settings["lock_timeout"] = "0"
	if cfg.WALSenderTimeout > 0 {
		settings["wal_sender_timeout"] = milliseconds(cfg.WALSenderTimeout)
	}
	return settings
}

func sqlSettings() map[string]string {
	settings := sessionSettings()
	settings["statement_timeout"] = milliseconds(sqlStatementTimeout)
	settings["lock_timeout"] = "5000"
	return settings
}

// takeAnyText has a database that checks no text, whose encoding is SQL_ASCII, send and take it unchecked. In UTF-8 the
// server would end the stream at the first row that is not, again at every attempt: pg_server_to_any in
// src/backend/utils/mb/mbutils.c.
func takeAnyText(ctx context.Context, conn *pgconn.PgConn) error {
	if conn.ParameterStatus("server_encoding") != "SQL_ASCII" {
		return nil
	}
	if _, err := conn.Exec(ctx, "SET client_encoding = 'SQL_ASCII'").ReadAll(); err != nil {
		return fmt.Errorf("set client_encoding: %w", err)
	}
	return nil
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// connConfig parses the connection string anew, so that a rotated password file is read again, and
// lays our settings over it.
func connConfig(cfg *Config, settings map[string]string) (*pgx.ConnConfig, error) {
	config, err := cfg.parse()
	if err != nil {
		return nil, err
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "walrelay"
	}
	// Names of settings are case-insensitive: ours must not travel beside another spelling.
	for name := range config.RuntimeParams {
		for pinned := range settings {
			if strings.EqualFold(name, pinned) {
				delete(config.RuntimeParams, name)
			}
		}
	}
	maps.Copy(config.RuntimeParams, settings)
	if config.ValidateConnect == nil {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	config.AfterConnect = takeAnyText
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = cfg.ConnectTimeout
	}
	// 15 s + 3 * 5 s: a vanished peer is noticed within half a minute even when nobody sends.
	// The name is resolved for each attempt: a failover may have moved it.
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}
	config.DialFunc = dialer.DialContext
	return config, nil
}

// parse reads the connection string as it is now. One that was right when the process started, and is not any more, may
// be in the middle of being written: that is worth another try.
func (c *Config) parse() (*pgx.ConnConfig, error) {
	if c.ReadConnString == nil {
		return parseConnString(c.ConnString)
	}
	text, err := c.ReadConnString()
	if err != nil {
		return nil, fmt.Errorf("read connection string: %w", err)
	}
	config, err := parseConnString(text)
	if fatal, ok := errors.AsType[*FatalError](err); ok {
		return nil, fmt.Errorf("read connection string: %s", fatal.Problem)
	}
	return config, err
}

// parseConnString hides the text of pgx's error, whose redaction is a best effort: it keeps only
// the reason, and that only when it quotes nothing.
func parseConnString(s Secret) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(string(s))
	if err == nil {
		return config, nil
	}
	reason := "cannot be parsed"
	for _, safe := range []string{
		"failed to parse as URL", "failed to parse as keyword/value", "failed to read service",
		"invalid connect_timeout", "invalid port", "failed to configure TLS", "could not match",
		"unknown target_session_attrs value", "invalid min_protocol_version", "invalid max_protocol_version",
		"unknown channel_binding value", "invalid require_auth", "invalid sslcertmode",
	} {
		if strings.Contains(err.Error(), "`: "+safe) {
			reason = safe
		}
	}
	return nil, &FatalError{
		Object: "connection string", Problem: reason,
		Remedy: "write it as postgres://user@host:port/database or as keyword=value pairs",
	}
}
