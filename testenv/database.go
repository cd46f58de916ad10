package testenv

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// Database is a fresh database. It is dropped at the end of the test, with its slots and whoever is
// connected to it.
type Database struct {
	Name string
	DSN  string
	Conn *pgxpool.Pool // connects at first use

	server *Server
}

// Database creates a database for one test, with options of CREATE DATABASE if any are given.
func (s *Server) Database(t testing.TB, options ...string) *Database {
	t.Helper()
	return s.CreateDatabase(t, uniqueName(t), options...)
}

// CreateDatabase is Database for a name that the test needs.
func (s *Server) CreateDatabase(t testing.TB, name string, options ...string) *Database {
	t.Helper()
	s.Exec(t, strings.Join(append([]string{"CREATE DATABASE", name}, options...), " "))
	db := s.open(t, name)
	t.Cleanup(func() {
		db.close(t)
		if s.private { // which goes as a whole, if it is still there
			return
		}
		if err := db.drop(); err != nil {
			t.Errorf("drop database %s: %v", db.Name, err)
		}
	})
	return db
}

// On is the same database on another private server: a standby of the first one.
func (db *Database) On(t testing.TB, s *Server) *Database {
	t.Helper()
	other := s.open(t, db.Name)
	t.Cleanup(func() { other.close(t) })
	return other
}

func (s *Server) open(t testing.TB, name string) *Database {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(s.SocketDSN(name))
	if err != nil {
		t.Fatalf("parse DSN: %v", err)
	}
	cfg.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatalf("open pool: %v", err)
	}
	return &Database{Name: name, DSN: s.DSN(name), Conn: pool, server: s}
}

func (db *Database) close(t testing.TB) {
	t.Helper()
	if !db.closePool() {
		t.Errorf("test ends with a connection or transaction of db.Conn still in its hands")
	}
}

// closePool gives up when a connection is not given back, as by a test that failed meanwhile:
// pgxpool.Pool.Close would wait for it for ever.
func (db *Database) closePool() bool {
	closed := make(chan struct{})
	go func() {
		db.Conn.Close()
		close(closed)
	}()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case <-closed:
		return true
	case <-timer.C:
		return false
	}
}

// Server is where the database lies.
func (db *Database) Server() *Server { return db.server }

// ReplicationDSN is the DSN of a connection that speaks the replication protocol.
func (db *Database) ReplicationDSN() string { return db.DSN + "&replication=database" }

// Standard opens the database through database/sql, until the end of the test.
func (db *Database) Standard(t testing.TB, change ...func(*pgx.ConnConfig)) *sql.DB {
	t.Helper()
	config, err := pgx.ParseConfig(db.DSN)
	if err != nil {
		t.Fatalf("open %s: %v", db.Name, err)
	}
	for _, c := range change {
		c(config)
	}
	handle := stdlib.OpenDB(*config)
	t.Cleanup(func() {
		if err := handle.Close(); err != nil {
			t.Errorf("close %s: %v", db.Name, err)
		}
	})
	return handle
}

// Slot makes up a name for a replication slot that no other test uses.
func (db *Database) Slot(t testing.TB) string {
	t.Helper()
	return uniqueName(t)
}

// Exec runs a statement, or several without arguments.
func (db *Database) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if len(args) == 0 {
		args = []any{pgx.QueryExecModeSimpleProtocol}
	}
	if _, err := db.Conn.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("exec: %v", err)
	}
}

// QueryRow reads one row; Scan of the result tells of an error.
func (db *Database) QueryRow(t testing.TB, sql string, args ...any) pgx.Row {
	t.Helper()
	return db.Conn.QueryRow(context.Background(), sql, args...)
}

// drop tries until nobody reconnects in between.
func (db *Database) drop() error {
	var last error
	if poll(time.Minute, func() bool {
		last = db.server.admin(db.dropOnce)
		return last == nil
	}) {
		return nil
	}
	return last
}

// dropOnce first removes what keeps a database from being dropped: FORCE only ends connections, and
// not even those of walsenders.
func (db *Database) dropOnce(ctx context.Context, conn *pgx.Conn) error {
	for _, sql := range []string{
		`SELECT count(pg_terminate_backend(active_pid)) FROM pg_replication_slots
			WHERE database = $1 AND active`,
		`SELECT count(pg_drop_replication_slot(slot_name)) FROM pg_replication_slots
			WHERE database = $1 AND NOT active`,
	} {
		if _, err := conn.Exec(ctx, sql, db.Name); err != nil {
			return err
		}
	}
	rows, err := conn.Query(ctx, "SELECT gid FROM pg_prepared_xacts WHERE database = $1", db.Name)
	if err != nil {
		return err
	}
	prepared, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, gid := range prepared {
		if err := db.rollBackPrepared(gid); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, "DROP DATABASE "+db.Name+" WITH (FORCE)")
	return err
}

// rollBackPrepared ends a prepared transaction, which can only be done in its own database.
func (db *Database) rollBackPrepared(gid string) error {
	return db.server.connect(db.Name, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "ROLLBACK PREPARED '"+strings.ReplaceAll(gid, "'", "''")+"'")
		return err
	})
}
