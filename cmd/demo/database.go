package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// database is a database made for one demo, on a server of ours or of the user's.
type database struct {
	url     string // holds a password: never shown
	version string // for example 18.4

	server *process // nil: the user's
	admin  string   // URL of the database from which ours was made
	name   string
}

// openDatabase makes a database on the server of that URL; without one it starts a server.
func openDatabase(ctx context.Context, h *home, name, admin string) (*database, error) {
	db := &database{admin: admin, name: name}
	if admin == "" {
		if err := db.startServer(ctx, h); err != nil {
			return nil, errors.Join(err, db.stopServer())
		}
	}
	if err := db.create(ctx); err != nil {
		return nil, errors.Join(err, db.stopServer())
	}
	return db, nil
}

// startServer initialises a server in the home and runs it: on loopback only, without Unix socket,
// behind a password that nobody knows.
func (db *database) startServer(ctx context.Context, h *home) error {
	programs, err := unpackPostgres(ctx, h)
	if err != nil {
		return fmt.Errorf("%w\nto use a server of your own, set WALRELAY_DATABASE_URL", err)
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	password, data := rand.Text(), h.path("data")
	passwordFile := filepath.Join(data, "password")
	if err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(passwordFile, []byte(password), 0o600),
		give(data), give(passwordFile)); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	log := h.path("postgres.log")
	cluster := filepath.Join(data, "cluster")
	err = runToEnd(ctx, serverCommand(programs, "initdb", "--pgdata", cluster, "--username", "demo",
		"--pwfile", passwordFile, "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"), log)
	if err != nil {
		return err
	}
	args := []string{"-D", cluster}
	for _, setting := range []string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(port), "unix_socket_directories=",
		"wal_level=logical",
		"dynamic_shared_memory_type=mmap", // lies in the data directory and goes with it
		"max_wal_size=256MB",
	} {
		args = append(args, "-c", setting)
	}
	// SIGQUIT is an immediate shutdown: unlike a kill it leaves no shared memory behind.
	if db.server, err = launch(serverCommand(programs, "postgres", args...), log, syscall.SIGQUIT); err != nil {
		return err
	}
	db.admin = (&url.URL{
		Scheme: "postgres", User: url.UserPassword("demo", password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/postgres", RawQuery: "sslmode=disable",
	}).String()
	if err := db.awaitServer(ctx); err != nil {
		return fmt.Errorf("await PostgreSQL: %w\n%s", err, lastWords(log))
	}
	return nil
}

// serverCommand is one of the server's programs, to be run by a user that it accepts.
func serverCommand(programs, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(programs, name), args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.Dir = "/"
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody()}
	}
	return cmd
}

// give makes the server's user the owner of a file.
func give(path string) error {
	if os.Getuid() != 0 {
		return nil
	}
	owner := nobody()
	return os.Chown(path, int(owner.Uid), int(owner.Gid))
}

// nobody is who runs PostgreSQL when we are root, which it refuses. It must have a name, and its number
// differs between systems.
func nobody() *syscall.Credential {
	if known, err := user.Lookup("nobody"); err == nil {
		uid, uidErr := strconv.ParseUint(known.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(known.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return &syscall.Credential{Uid: 65534, Gid: 65534}
}

// awaitServer waits until the server lets us in.
func (db *database) awaitServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := db.asAdmin(ctx, func(*pgx.Conn) error { return nil })
		if err == nil {
			return nil
		}
		select {
		case <-db.server.done:
			return errors.New("it has ended")
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// create makes the database. One of our own keeps everything apart from what the server holds else.
func (db *database) create(ctx context.Context) (err error) {
	if db.url, err = withDatabase(db.admin, db.name); err != nil {
		return err
	}
	return db.asAdmin(ctx, func(conn *pgx.Conn) error {
		// Distributions append their name: 18.4 (Debian 18.4-1).
		db.version, _, _ = strings.Cut(conn.PgConn().ParameterStatus("server_version"), " ")
		if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{db.name}.Sanitize()); err != nil {
			return fmt.Errorf("create database: %w", err)
		}
		return nil
	})
}

// close drops the database, and its slot with it, or stops our server.
func (db *database) close() error {
	if db.server != nil {
		return db.stopServer()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	return db.asAdmin(ctx, func(conn *pgx.Conn) error {
		for {
			// DROP DATABASE takes idle slots along but not one that a walsender still holds.
			_, err := conn.Exec(ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots
				WHERE database = $1 AND active`, db.name)
			if err == nil {
				_, err = conn.Exec(ctx, "DROP DATABASE "+pgx.Identifier{db.name}.Sanitize()+" WITH (FORCE)")
			}
			if err == nil {
				return nil
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("drop database %s: %w", db.name, err)
			}
		}
	})
}

func (db *database) stopServer() error {
	if db.server == nil {
		return nil
	}
	return db.server.stop(syscall.SIGINT, 15*time.Second) // a fast shutdown
}

func (db *database) asAdmin(ctx context.Context, use func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, db.admin)
	if err != nil {
		return err // pgx leaves the password out
	}
	return errors.Join(use(conn), conn.Close(ctx))
}

// withDatabase is a connection string for another database of the same server.
func withDatabase(connection, name string) (string, error) {
	if !strings.HasPrefix(connection, "postgres://") && !strings.HasPrefix(connection, "postgresql://") {
		return connection + " dbname=" + name, nil // keywords: the last one counts
	}
	u, err := url.Parse(connection)
	if err != nil {
		return "", errors.New("read the database URL: it is malformed") // the error would show the password
	}
	u.Path = "/" + name
	return u.String(), nil
}

// freePort finds a loopback port that is free at the moment.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find free port: %w", err)
	}
	address, ok := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil || !ok {
		return 0, fmt.Errorf("find free port: %w", err)
	}
	return address.Port, nil
}
