package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/walrelay/walrelay/testenv"
)

// postgresFaults are those of the database, and what is done to its tables meanwhile.
func postgresFaults() []*fault {
	const group = "postgres"
	return []*fault{
		{
			group: group, name: "pg-crash", about: "immediate shutdown, and start with crash recovery",
			most: 4 * time.Second, strike: restart(testenv.Immediate),
		},
		{
			group: group, name: "pg-kill", about: "SIGKILL of all processes of the server, and start",
			most: 2 * time.Second,
			strike: func(_ context.Context, w *world, hold func()) error {
				w.server.Kill(w.t)
				hold()
				w.server.Start(w.t)
				return nil
			},
		},
		{
			group: group, name: "pg-restart", about: "fast shutdown, which waits for walrelay, and start",
			most: time.Second, strike: restart(testenv.Fast),
		},
		{
			group: group, name: "failover", about: "SIGKILL of the primary, and a standby takes over with the slot",
			since: failoverMajor, least: time.Second, most: 4 * time.Second, strike: failover,
		},
		{
			group: group, name: "walsender-terminate", about: "pg_terminate_backend of the walsender",
			strike: func(ctx context.Context, w *world, _ func()) error {
				if _, err := w.relays.active(ctx); err != nil {
					return err
				}
				_, pid := w.streaming(ctx)
				_, err := w.db.Conn.Exec(ctx, "SELECT pg_terminate_backend($1)", pid)
				return err
			},
		},
		{
			group: group, name: "walsender-pause", about: "SIGSTOP and SIGCONT of the walsender",
			least: time.Second, most: 12 * time.Second,
			strike: func(ctx context.Context, w *world, hold func()) error {
				if _, err := w.relays.active(ctx); err != nil {
					return err
				}
				_, pid := w.streaming(ctx)
				if pid == 0 {
					return nil // just now gone
				}
				_ = syscall.Kill(pid, syscall.SIGSTOP) // it may be gone too
				hold()
				_ = syscall.Kill(pid, syscall.SIGCONT)
				return nil
			},
		},
		{
			group: group, name: "alter-table", about: "ALTER TABLE ADD COLUMN, and DROP COLUMN",
			least: 500 * time.Millisecond, most: 3 * time.Second, strike: alterTable,
		},
		{
			group: group, name: "new-partition", about: "a new partition of the partitioned outbox",
			strike: func(ctx context.Context, w *world, _ func()) error { return w.addBucket(ctx) },
		},
		{
			group: group, name: "alter-publication", about: "an unrelated table joins the publication, and leaves it",
			least: 500 * time.Millisecond, most: 3 * time.Second, strike: alterPublication,
		},
		{
			group: group, name: "pg-credentials", about: "another password for walrelay's role, or one that has expired",
			least: time.Second, most: 6 * time.Second, strike: changeRole,
		},
	}
}

func restart(mode testenv.StopMode) func(context.Context, *world, func()) error {
	return func(_ context.Context, w *world, hold func()) error {
		w.server.Stop(w.t, mode)
		hold()
		w.server.Start(w.t)
		return nil
	}
}

func alterTable(ctx context.Context, w *world, hold func()) error {
	w.columns++
	table, column := pick(w.random, tables...), fmt.Sprintf("extra_%d", w.columns)
	if err := w.sql(ctx, "ALTER TABLE "+table+" ADD COLUMN "+column+" text NOT NULL DEFAULT 'x'"); err != nil {
		return err
	}
	hold()
	return w.sql(ctx, "ALTER TABLE "+table+" DROP COLUMN "+column)
}

func alterPublication(ctx context.Context, w *world, hold func()) error {
	if err := w.sql(ctx, "CREATE TABLE IF NOT EXISTS unrelated (n int)", "ALTER PUBLICATION walrelay ADD TABLE unrelated",
		"INSERT INTO unrelated SELECT generate_series(1, 100)"); err != nil {
		return err
	}
	hold()
	return w.sql(ctx, "ALTER PUBLICATION walrelay DROP TABLE unrelated", "DROP TABLE unrelated")
}
